"""Two bodies of data for one offset: ticket servers that different lists, or one name, lead to different databases."""

import re
from collections.abc import Sequence

import pytest

from tests.harness.load import Load
from tests.harness.pair import MySQLPair
from tests.harness.processes import wait_until
from tests.harness.proxy import FaultyProxy
from tests.harness.rings import WATCHFUL, Issued, Rings
from tests.harness.ticketd import TicketServer

USE_INTERVALS = 5
"""For so many probe intervals the announcements of a server that is dead stand."""
INTERVAL = float(str(WATCHFUL["TICKETS_PROBE_INTERVAL"]))
OLD, COMMON, NEW = 1, 2, 3
"""The database of offset 1, that of offset 2, and another one for offset 1."""
SMALLEST_STEP = 1_000
SHARE = 0.02 * 2**32


@pytest.fixture
def bodies(rings: Rings) -> Rings:
    """Two databases, and a third one that is configured as the first."""
    rings.set_globals(NEW, 2, 1)
    return rings


def copy(rings: Rings, source: int, target: int) -> None:
    """Have the target hold what the source holds, the server's own tables too."""
    for name in rings.tables(target):
        rings.execute(target, f"DROP TABLE `{name}`")
    for name in rings.tables(source):
        rings.execute(target, rings.execute(source, f"SHOW CREATE TABLE `{name}`")[0][1])
        for row in rings.execute(source, f"SELECT * FROM `{name}`"):
            values = ", ".join("NULL" if each is None else f"'{each}'" for each in row)
            rings.execute(target, f"INSERT INTO `{name}` VALUES ({values})")


def advances(servers: Sequence[TicketServer], sequence: str = "photos") -> list[int]:
    """How often each server has advanced the sequence."""
    return [len(re.findall(rf"advanced.*{sequence}", server.log_text())) for server in servers]


def changes(rings: Rings) -> int:
    """How often a body has been taken in, at most: the ring's number rises with each."""
    return max(
        int(rings.execute(offset, "SELECT COALESCE(MAX(number), 0) FROM _ring")[0][0]) for offset in (OLD, COMMON)
    )


def draw(issued: Issued, servers: Sequence[TicketServer], seconds: float) -> None:
    with Load([server.address for server in servers], clients=4, pause=0.01) as load:
        load.run_for(seconds)
    for answer in load.result.answers:
        issued.record(answer)
    load.result.check()


def waits_for(waiting: TicketServer, name: str, user: TicketServer, place: str) -> None:
    """The database is not taken in, and /healthz says why."""
    found = waiting.wait_database(name, "quarantined")
    assert re.search(rf"[\w.-]+:{user.port} draws from {re.escape(place)}$", found["last_error"]), found


@pytest.mark.parametrize("copied", [False, True], ids=["empty", "a copy of long ago"])
def test_a_database_replaced_while_a_server_uses_the_old_one(bodies: Rings, issued: Issued, *, copied: bool) -> None:
    """Then the old server ends, the old list comes back, and the new server is killed."""
    old_list, new_list = bodies.urls(OLD, COMMON), bodies.urls(NEW, COMMON)
    with TicketServer(old_list, settings=WATCHFUL) as first, TicketServer(new_list, settings=WATCHFUL) as second:
        first.wait_health("pass")
        waits_for(second, bodies.name(NEW), first, bodies.name(OLD))
        draw(issued, [first, second], 3)
        assert first.wait_health("pass")
        assert advances([first, second]) == [0, 0]
        first.terminate()
        second.wait_database(bodies.name(NEW), "up")
        issued.from_now_on()
        draw(issued, [second], 1)
        assert issued.residues(2) == {0, 1}
        first.start()
        first.wait_alive()
        waits_for(first, bodies.name(OLD), second, bodies.name(NEW))
        draw(issued, [first, second], 2)
        second.kill()
        first.wait_database(bodies.name(OLD), "up")
        issued.from_now_on()
        draw(issued, [first], 1)
        assert issued.residues(2) == {0, 1}
        if copied:
            copy(bodies, OLD, NEW)
        second.start()
        second.wait_alive()
        second.wait_looked()
        draw(issued, [first, second], 2)
        assert max(advances([first, second])) <= changes(bodies)
        assert issued.highest() < SHARE


def test_a_copy_of_a_database_beside_its_original(bodies: Rings, issued: Issued) -> None:
    """A copy cannot be told from a restart: one of the two stays in the end, and each change advances once."""
    with TicketServer(bodies.urls(OLD, COMMON), settings=WATCHFUL) as first:
        first.wait_health("pass")
        draw(issued, [first], 1)
        copy(bodies, OLD, NEW)
        before = changes(bodies)
        with TicketServer(bodies.urls(NEW, COMMON), settings=WATCHFUL) as second:
            draw(issued, [first, second], 4)
            states = {
                (server.port, each["name"]): each["status"] for server in (first, second) for each in server.databases()
            }
            of_the_offset = [states[first.port, bodies.name(OLD)], states[second.port, bodies.name(NEW)]]
            assert sorted(of_the_offset) == ["quarantined", "up"], states
            assert changes(bodies) - before <= 3
            assert max(advances([first, second])) <= 3
            assert issued.highest() < SHARE


def test_a_name_that_leads_two_servers_to_different_databases(bodies: Rings, issued: Issued) -> None:
    """Each keeps to one at first, then every connection goes to the other one in turn."""
    ports = [bodies.pair[OLD - 1].port, bodies.pair[NEW - 1].port]
    with FaultyProxy(ports[0]) as proxy:
        urls = (
            f"{bodies.pair[OLD - 1].url_of(bodies.schema, proxy.port)} {bodies.pair[COMMON - 1].url_of(bodies.schema)}"
        )
        with TicketServer(urls, settings=WATCHFUL) as first:
            first.wait_health("pass")
            draw(issued, [first], 1)
            proxy.targets = [ports[1]]
            with TicketServer(urls, settings=WATCHFUL) as second:
                waits_for(second, proxy.name, first, proxy.name)
                draw(issued, [first, second], 2)
                proxy.targets = ports
                proxy.cut()
                before = changes(bodies)
                draw(issued, [first, second], 15)
                changed = changes(bodies) - before
                assert max(advances([first, second])) <= changed
                assert issued.highest() < SHARE
                proxy.targets = [ports[0]]
                proxy.cut()
                for server in (first, second):
                    server.wait_health("pass")
                draw(issued, [first, second], 1)


def test_both_databases_restarted_at_once_while_a_server_is_dead(own_pair: MySQLPair, issued: Issued) -> None:
    """A restart waits for nobody, whatever the dead server has announced."""
    with TicketServer(own_pair.urls, settings=WATCHFUL) as first:
        with TicketServer(own_pair.urls, settings=WATCHFUL) as second:
            first.wait_health("pass")
            second.wait_health("pass")
            issued.take(second, 4)
        own_pair.kill()
        own_pair.start()
        wait_until(lambda: first.get("/readyz").status == 200, USE_INTERVALS * INTERVAL * 4, "tickets")
        issued.take(first, 10)
        assert "draws from" not in str(first.wait_health("pass"))
        assert advances([first]) <= [2]
