"""One ticket database in a container fails in every way that a container can, and the requests go on."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import docker
import pytest
from docker.errors import NotFound

from tests.harness.containers import ContainerMySQL, ContainerPair
from tests.harness.load import Load
from tests.harness.processes import wait_until
from tests.harness.ticketd import PATIENT, REPOSITORY, TicketServer

pytestmark = [pytest.mark.containers, pytest.mark.timeout(300)]


@pytest.fixture
def pair(container_pair: ContainerPair) -> Iterator[ContainerPair]:
    """The two databases, running, whatever the test before has done to them."""
    container_pair.start()
    yield container_pair
    container_pair.start()


@pytest.fixture
def sequence(pair: ContainerPair, new_name: Callable[[], str]) -> str:
    """A sequence of this test's own, made by hand as the README says."""
    name = new_name()
    for database in pair:
        database.execute(f"CREATE TABLE `{name}` LIKE Tickets64")
    return name


@contextmanager
def under_load(pair: ContainerPair, sequence: str) -> Iterator[tuple[list[TicketServer], Load]]:
    """Two ticket servers and sixteen clients; at the end no request has failed and no ticket came twice."""
    with (
        TicketServer(pair.urls, settings=PATIENT) as one,
        TicketServer(pair.urls, settings=PATIENT) as two,
    ):
        servers = [one, two]
        for server in servers:
            server.wait_health("pass")
        with Load([server.address for server in servers], clients=16, mix=[sequence], pause=0.005) as load:
            until_drawn(load, 0, 1)
            yield servers, load
            until_drawn(load, 0, 1)
        failures = load.result.failures()
        logs = "\n\n".join(f"{server.name}:\n{server.log_text()[-10_000:]}" for server in servers)
    assert not failures, f"{len(failures)} requests failed, first {failures[:3]}\n\n{logs}"
    load.result.check()


def until_drawn(load: Load, *residues: int) -> None:
    """Let the load run until it gets new tickets of these databases (1: odd, 0: even)."""
    seen = len(issued(load))

    def drawn() -> bool:
        return {*residues} <= {ids[0] % 2 for ids in issued(load)[seen:]}

    wait_until(drawn, 30, f"tickets of {residues}; {load.result!r}")


def wait_all(servers: list[TicketServer], database: ContainerMySQL, status: str) -> None:
    for server in servers:
        server.wait_database(database.name, status, timeout=60)


FAULTS: dict[str, tuple[Callable[[ContainerMySQL], None], Callable[[ContainerMySQL], None]]] = {
    "is killed": (ContainerMySQL.kill, ContainerMySQL.start),
    "is stopped": (ContainerMySQL.stop, ContainerMySQL.start),
    "is frozen": (ContainerMySQL.freeze, ContainerMySQL.thaw),
    "is removed with its data and made anew": (ContainerMySQL.remove, ContainerMySQL.create),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_request_fails_while_a_database(fault: str, pair: ContainerPair, sequence: str) -> None:
    """The one that was made anew is empty: its tables are made again above what the other one's marks say.

    A new container's start can hold up the other database's disk for a second: the servers have to be patient.
    """
    strike, mend = FAULTS[fault]
    with under_load(pair, sequence) as (servers, load):
        for residue, victim in ((1, pair.odd), (0, pair.even)):
            strike(victim)
            wait_all(servers, victim, "down")
            until_drawn(load, 1 - residue)
            mend(victim)
            wait_all(servers, victim, "up")
            until_drawn(load, residue)
            for server in servers:
                server.wait_health("pass")


def test_with_both_databases_dead_it_says_so_and_recovers_by_itself(pair: ContainerPair, sequence: str) -> None:
    with TicketServer(pair.urls) as server:
        server.wait_health("pass")
        before = {server.ticket(sequence) for _ in range(10)}
        for database in pair:
            database.kill()
        wait_until(lambda: server.get("/readyz").status == 503, 15, "the server to be not ready")
        reply = server.get(f"/ticket/{sequence}")
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) >= 1
        pair.start()
        server.wait_health("pass")
        after = [server.ticket(sequence) for _ in range(10)]
    assert {ticket % 2 for ticket in after} == {0, 1}
    assert not before & {*after}


def test_a_ticket_is_on_disk_before_it_is_handed_out(pair: ContainerPair, sequence: str) -> None:
    """Both containers are killed under load, so that no mark on the other one can make up for a lost row."""
    with (
        TicketServer(pair.urls, settings=PATIENT) as server,
        Load([server.address], clients=16, mix=[sequence]) as load,
    ):
        server.wait_health("pass")
        load.run_until_tickets(300)
        for database in pair:
            database.kill()
    load.result.check()
    pair.start()
    for residue, database in ((1, pair.odd), (0, pair.even)):
        ((_, table),) = database.execute(f"SHOW CREATE TABLE `{sequence}`")
        counter = int(table.partition("AUTO_INCREMENT=")[2].split()[0])
        assert counter > max(ids[0] for ids in issued(load) if ids[0] % 2 == residue)


def issued(load: Load) -> list[Sequence[int]]:
    return [answer.ids for answer in load.result.answers if answer.ids]


_MAKES_ONE = """
import sys
from tests.harness.containers import ContainerMySQL
database = ContainerMySQL("odd")
database.create()
print(database.container_name, flush=True)
sys.stdin.read()
"""


def test_a_container_ends_with_the_test_run_however_it_ends() -> None:
    with (
        subprocess.Popen(
            [sys.executable, "-c", _MAKES_ONE],
            cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as test_run,
        contextlib.closing(docker.from_env()) as client,
    ):  # fmt: skip
        assert test_run.stdout is not None
        name = test_run.stdout.readline().strip()
        assert client.containers.get(name).status == "running"
        test_run.kill()

        def is_gone() -> bool:
            try:
                client.containers.get(name)
            except NotFound:
                return True
            return False

        wait_until(is_gone, 60, f"{name} to be removed")
