"""`ticketd grow` beside ticket servers that draw: databases join and leave, and nothing comes twice."""

import signal
import subprocess
from collections.abc import Sequence

import pytest

from tests.load import Load
from tests.servers import Engine, engines
from tests.servers_processes import DEADLINE, running, wait_until
from tests.servers_shared import SharedServers
from tests.ticketd import PROGRAM, QUICK, TicketServer, environment, settled
from tests.torture.faults import signalled

ENGINES: list[Engine] = ["mariadb", "postgresql", "redis", *(engines("mysql") or engines("redis"))]


@pytest.fixture(scope="module")
def urls(shared_servers: SharedServers) -> list[str]:
    """Databases that are empty at first, one on each engine."""
    return [shared_servers.database(engine) for engine in ENGINES]


def grow(urls: list[str], *arguments: str, program: Sequence[str] = PROGRAM) -> tuple[int, str]:
    """Run `ticketd grow`, and return its exit status and what it printed."""
    done = subprocess.run(
        [*program, "grow", *arguments],
        env=environment(databases=" ".join(urls), probe_interval=0.2, database_timeout=5),
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def killed(urls: list[str], increment: int, step: str) -> None:
    """Kill `ticketd grow` with SIGKILL where it says that this step begins."""
    program = signalled(signal.SIGKILL, step)
    assert grow(urls, "--increment", str(increment), program=program) == (-signal.SIGKILL, "")


@pytest.mark.timeout(400)
def test_databases_join_and_leave_while_tickets_are_drawn(urls: list[str]) -> None:
    with TicketServer(urls[:2], **QUICK) as first:
        first.request("PUT", "/sequence/photos").raise_for_status()
        for number in range(5):
            first.request("PUT", f"/sequence/s{number}", json={"bits": 32}).raise_for_status()
        first.request("PUT", "/sequence/flakes", json={"kind": "snowflake"}).raise_for_status()
        settled(first)
        with TicketServer(urls, **QUICK) as second, Load(first, second, is_one=False) as load:
            load.wait(100)
            flakes = [second.take("flakes", 50)]
            assert "run `ticketd grow`" in second.health()["databases"][2]["last_error"]
            assert grow(urls, "--status") == (0, "")
            for increment in (4, 3):
                assert grow(urls, "--increment", str(increment)) == (0, "")
                wait_until(lambda n=increment: len(up(second)) == n, DEADLINE, "every database to serve")  # type: ignore[misc]
                load.wait_for_each(increment)
                flakes.append(second.take("flakes", 50))
        load.check()
        assert len({each for ids in flakes for each in ids}) == 150


@pytest.mark.timeout(400)
def test_the_servers_take_back_or_finish_what_a_killed_run_has_begun(shared_servers: SharedServers) -> None:
    """The record on the database of offset 1 decides: until then they take the change back after 5 s."""
    urls = [shared_servers.database(engine) for engine in ENGINES[:3]]
    with TicketServer(urls[:2], **QUICK) as server:
        server.request("PUT", "/sequence/photos").raise_for_status()
    servers = [TicketServer(urls, **QUICK) for _ in range(2)]
    with running(*servers), Load(*servers, is_one=False, increment=6) as load:

        def serve(databases: int) -> None:
            wait_until(lambda: {*map(serving, servers)} == {databases}, DEADLINE, f"{databases} databases to serve")
            load.wait(100)

        serve(2)
        killed(urls, 3, "stopping the draws 1")
        for server in servers:
            server.freeze()  # or they could take the change back before it is asked for
        killed(urls, 3, "starting the draws 0")
        status, said = grow(urls, "--status")
        for server in servers:
            server.thaw()
        assert (status, "is not decided" in said) == (1, True)
        serve(2)
        killed(urls, 3, "starting the draws 1")
        serve(3)
        killed(urls, 2, "starting the draws 2")
        serve(2)
        assert grow(urls, "--status") == (0, "")
    load.check()


def serving(server: TicketServer) -> int:
    """Return how many databases are up, 0 while a warning stands."""
    return 0 if server.health()["warnings"] else len(up(server))


def up(server: TicketServer) -> list[str]:
    return [each["name"] for each in server.health()["databases"] if each["status"] == "up"]


def test_a_server_with_another_increment_is_named_and_nothing_is_changed(urls: list[str]) -> None:
    with TicketServer(urls[:3], increment=3, **QUICK) as server:
        server.request("PUT", "/sequence/photos").raise_for_status()
        status, said = grow(urls, "--increment", "5")
        assert (status, "has TICKETS_INCREMENT set" in said) == (1, True)
        assert server.take("photos")


def test_a_database_that_does_not_belong_to_the_ring_is_named_and_left_as_it_is(
    urls: list[str], shared_servers: SharedServers
) -> None:
    status, said = grow([*urls[:3], urls[1]], "--increment", "4")
    assert (status, "is the same data as" in said) == (1, True)
    foreign = [shared_servers.database("redis") for _ in range(2)]
    with TicketServer(foreign, **QUICK) as stranger:
        status, said = grow([*urls[:3], foreign[1]], "--increment", "4")
        assert (status, "belongs to another ring" in said) == (1, True)
        assert len(up(stranger)) == 2
