"""A group of three MySQL servers in single-primary mode as one ticket database."""

from collections.abc import Iterator

import pytest

from tests.load import Load
from tests.servers import DatabaseServer, Engine, engines
from tests.servers_processes import DEADLINE, free_port, running, wait_until
from tests.servers_shared import FreshDatabase
from tests.system.test_nodes import nodes
from tests.ticketd import pair, settled

GROUP = "6a9f9a4e-0000-11ef-8000-000000000001"
MEMBERS = "SELECT MEMBER_PORT FROM performance_schema.replication_group_members WHERE MEMBER_STATE = 'ONLINE'"
WAITING = (
    "SELECT COUNT(*) FROM performance_schema.variables_by_thread WHERE VARIABLE_NAME = 'group_replication_consistency' "
    "AND VARIABLE_VALUE = 'BEFORE_ON_PRIMARY_FAILOVER'"
)


@pytest.fixture
def group(engine: Engine) -> Iterator[list[DatabaseServer]]:
    """Three servers in one group; the first one is the primary. A restarted one joins the group by itself."""
    ports, found = [free_port() for _ in range(3)], list[DatabaseServer]()
    for number, port in enumerate(ports, 1):
        settings = {
            "group_name": GROUP,
            "group_seeds": ",".join(f"127.0.0.1:{each}" for each in ports),
            "local_address": f"127.0.0.1:{port}",
            "consistency": "EVENTUAL",
            "member_expel_timeout": 0,  # a member that is suspected, after 5 s, is out at once
            "start_on_boot": "OFF",
        }
        options = [
            *("--log-bin=binlog", "--gtid-mode=ON", "--enforce-gtid-consistency=ON", f"--server-id={number}"),
            *("--performance-schema=ON", "--report-host=127.0.0.1", "--plugin-load-add=group_replication.so"),
            *(f"--loose-group-replication-{name}={value}" for name, value in settings.items()),
        ]
        found.append(DatabaseServer(engine, offset=1, increment=2, options=options))
    with running(*found):
        found[0].execute("SET GLOBAL group_replication_bootstrap_group = ON")
        for server in found:
            server.execute("CHANGE REPLICATION SOURCE TO SOURCE_USER='root' FOR CHANNEL 'group_replication_recovery'")
            server.execute("START GROUP_REPLICATION")
            server.options.append("--loose-group-replication-start-on-boot=ON")
        found[0].execute("SET GLOBAL group_replication_bootstrap_group = OFF")
        found[0].create_database("tickets")
        wait_until(lambda: all(has_all(each, found) for each in found), DEADLINE, "the group to be complete")
        yield found


def has_all(member: DatabaseServer, members: list[DatabaseServer]) -> bool:
    """Whether the members, as this one sees it, are these."""
    return {port for (port,) in member.execute(MEMBERS)} == {each.port for each in members}


@pytest.mark.parametrize("engine", engines("mysql"))
def test_servers_use_the_primary_and_follow_an_election(
    group: list[DatabaseServer], fresh_database: FreshDatabase
) -> None:
    plain = fresh_database("redis")
    listed = ",".join(f"127.0.0.1:{each.port}" for each in (group[1], group[0], group[2]))
    with pair([f"mysql://root@{listed}/tickets", plain]) as (first, second):

        def agree() -> bool:
            """Whether both servers use the primary, as the second member sees it."""
            primary = group[1].execute(f"{MEMBERS} AND MEMBER_ROLE = 'PRIMARY'")
            return nodes(first) == nodes(second) == [*(f"127.0.0.1:{port}" for (port,) in primary), None]

        wait_until(agree, DEADLINE, "both servers to use the primary")
        assert group[0].execute(WAITING)[0][0] > 0
        with Load(first, second) as load:
            load.wait(100)
            group[0].kill()
            wait_until(lambda: has_all(group[1], group[1:]), DEADLINE, "the group to go on with two members")
            wait_until(agree, DEADLINE, "both servers to use the next primary")
            group[0].start()
            wait_until(lambda: has_all(group[1], group), DEADLINE, "the server to join again")
            load.wait(100)
            wait_until(agree, DEADLINE, "both servers to use the next primary still")
            settled(first, second)
            load.wait(100)
            load.wait_for_each()
        load.check()
