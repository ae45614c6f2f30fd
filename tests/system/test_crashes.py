"""Tickets of every kind outlive kill -9 of whatever gave them, and so do the marks and the bumps."""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.harness.history import Answer, Kind
from tests.harness.load import Load, Want
from tests.harness.notebook import Notebook
from tests.harness.pair import Schema
from tests.harness.processes import wait_until
from tests.harness.ticketd import PATIENT, TicketServer

ODD, EVEN = 1, 2
QUICK_PROBES: dict[str, object] = {"TICKETS_PROBE_INTERVAL": 0.2}
MIX = (
    Want("photos", weight=4),
    Want("photos", "count", 20),
    Want("photos", "block", 1000),
    Want("accounts", "block", 10_000),
    Want("accounts", "count", 100),
)


@pytest.fixture
def server(fragile: Schema) -> Iterator[TicketServer]:
    with TicketServer(fragile.urls, settings=QUICK_PROBES | PATIENT) as server:
        server.wait_health()
        yield server


def kill_and_restart(schema: Schema) -> None:
    """kill -9 of both databases at once, and both back."""
    schema.pair.kill()
    schema.pair.start()


def test_tickets_just_acknowledged_outlive_a_kill_of_both_databases(fragile: Schema, server: TicketServer) -> None:
    """A block leaves one row behind: what is below its end must be as used up as what is written."""
    notebook = Notebook()
    for kind, size in (("block", 10_000), ("block", 2), ("count", 1000), ("single", 1)):
        notebook.take(server)
        for _ in range(2):
            notebook.take(server, kind, size)  # type: ignore[arg-type]
        kill_and_restart(fragile)
        for database in fragile.pair:
            server.wait_database(database.name, "up")
    for offset in (ODD, EVEN):
        notebook.take_from(server, offset)
    notebook.take_all_kinds(server, rounds=1)
    notebook.check()


@pytest.mark.parametrize("kind", ["block", pytest.param("count", marks=pytest.mark.long), "single"])
def test_a_database_alone_keeps_what_it_gave(kind: Kind, fragile: Schema) -> None:
    """No other one keeps marks and no server remembers: all there is to go by is what it has on disk.

    For a block that is the id above its end. Without the REPLACE that draws it MySQL gives most of the block again;
    MariaDB has its counter on disk where the row was there before.
    """
    size = {"block": 10_000, "count": 1000, "single": 1}[kind]
    notebook = Notebook()
    settings = QUICK_PROBES | PATIENT | {"TICKETS_INCREMENT": 2}
    odd = fragile.pair.odd
    with TicketServer(odd.url_of(fragile.name), settings=settings) as server:
        server.wait_ready()
        for _ in range(2):
            notebook.take(server, kind, size)
            notebook.take(server, kind, size)
            server.kill()
            odd.kill()
            odd.restart()
            server.start()
            server.wait_ready()
        notebook.take_from(server, ODD)
        notebook.take(server, "block", 500)
    notebook.check()


def test_four_servers_while_the_databases_are_killed_and_come_back(fragile: Schema) -> None:
    settings = QUICK_PROBES | {"TICKETS_DATABASE_TIMEOUT": 1, "TICKETS_REQUEST_TIMEOUT": 8}
    odd, even = fragile.pair
    with contextlib.ExitStack() as stack:
        servers = [TicketServer(fragile.urls, settings=settings) for _ in range(4)]
        with ThreadPoolExecutor() as starters:
            list(starters.map(stack.enter_context, servers))
        for server in servers:
            server.wait_health()
        with Load([server.address for server in servers], clients=16, mix=MIX, pause=0.1, timeout=30) as load:
            load.run_until_tickets(200)
            for database in (odd, even):
                database.kill()
                load.run_until_tickets(50)
                database.restart()
                for server in servers:
                    server.wait_database(database.name, "up")
                load.run_until_tickets(50)
            both_down_at = time.monotonic()
            kill_and_restart(fragile)
            for server in servers:
                server.wait_health()
            load.run_until_tickets(200)
        load.result.check()
        assert [each for each in load.result.failures() if each.arrived_at < both_down_at] == []
        assert {each.status for each in load.result.failures()} <= {503}


@pytest.mark.parametrize("what", [pytest.param("databases", marks=pytest.mark.long), "everything"])
def test_a_bump_outlives_a_kill(what: str, fragile: Schema, server: TicketServer) -> None:
    notebook = Notebook()
    notebook.take_all_kinds(server, rounds=1)
    for above in (50_000, 49_000, 1_000_000_001):
        reply = server.post("/sequence/photos/bump", json={"above": above})
        assert reply.status == 200, reply.text
        if what == "everything":
            server.kill()
        fragile.pair.kill()
        fragile.pair.start()
        if what == "everything":
            server.start()
            server.wait_alive()
        server.wait_health()
        for offset in (ODD, EVEN):
            assert notebook.take_from(server, offset) > above
    notebook.take_all_kinds(server, rounds=1)
    notebook.check()


def test_a_bump_while_tickets_are_drawn(fragile: Schema, server: TicketServer) -> None:
    above = 1_000_000
    with (
        TicketServer(fragile.urls, settings=QUICK_PROBES | PATIENT) as other,
        Load([server.address, other.address], clients=8, mix=MIX, pause=0.05, timeout=30) as load,
    ):
        load.run_until_tickets(50)
        for _ in range(3):
            above *= 10
            assert server.post("/sequence/photos/bump", json={"above": str(above)}).status == 200
            bumped = time.monotonic()
            load.run_until_tickets(50)
            later = [a for a in load.result.between(bumped, time.monotonic()).answers if a.sequence == "photos"]
            assert min(min(answer.ids) for answer in later if answer.ids) > above
    load.result.check()
    assert load.result.failures() == []


# -- marks that cannot be kept


def wait_for_warning(server: TicketServer, words: str) -> None:
    try:
        wait_until(lambda: words in str(warnings_of(server)), 20, f"{words!r} to be warned of")
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {server.get('/healthz').text}\n{server.log_text()[-3000:]}") from error


def warnings_of(server: TicketServer) -> list[str]:
    return [each["reason"] for each in server.get("/healthz").json()["warnings"]]


def test_a_database_alone_is_unprotected_and_serves(fragile: Schema, server: TicketServer) -> None:
    even = fragile.pair.even
    even.kill()
    server.wait_database(even.name, "down")
    assert any("unprotected" in reason for reason in warnings_of(server))
    assert {server.ticket("photos") % 2 for _ in range(4)} == {1}
    even.restart()
    server.wait_health()
    assert warnings_of(server) == []


def test_a_database_alone_does_not_serve_where_that_is_refused(fragile: Schema) -> None:
    settings = QUICK_PROBES | PATIENT | {"TICKETS_UNVERIFIED": "refuse", "TICKETS_REQUEST_TIMEOUT": 1}
    notebook = Notebook()
    with TicketServer(fragile.urls, settings=settings) as server:
        server.wait_health()
        notebook.take_all_kinds(server, rounds=1)
        for database in fragile.pair:
            database.kill()
            server.wait_database(database.name, "down")
            for _ in range(3):
                assert notebook.ask(server).status == 503
            database.restart()
            server.wait_health()
            notebook.take_all_kinds(server, rounds=1)
    notebook.check()


def test_marks_that_cannot_be_written_are_warned_of(fragile: Schema, server: TicketServer) -> None:
    """The even database lets nobody write its ledger: the odd one draws unprotected, or does not draw at all."""
    notebook = Notebook()
    notebook.take_all_kinds(server, rounds=1)
    with (
        TicketServer(fragile.urls, settings=QUICK_PROBES | PATIENT | {"TICKETS_UNVERIFIED": "refuse"}) as strict,
        _unwritable_marks(fragile),
    ):
        for each in (server, strict):
            for _ in range(4):
                notebook.take(each)
            wait_for_warning(each, "cannot keep high-water marks")
        notebook.take_from(server, ODD)
        notebook.take_from(server, EVEN)
        answers: list[Answer] = [notebook.ask(strict) for _ in range(6)]
        assert {i % 2 for answer in answers for i in answer.ids} == {0}
        assert "unprotected" in str(warnings_of(server))
    server.wait_health()
    notebook.take_all_kinds(server, rounds=1)
    notebook.check()


@contextlib.contextmanager
def _unwritable_marks(schema: Schema) -> Iterator[None]:
    user = "'ticketd'@'127.0.0.1'"
    everything = f"SELECT, INSERT, DELETE, UPDATE, CREATE ON `{schema.name}`.*"
    schema.execute(1, f"REVOKE {everything} FROM {user}")
    schema.execute(1, f"GRANT SELECT ON `{schema.name}`.* TO {user}")
    for table in ("photos", "_servers", "_layout", "_in_use"):
        schema.execute(1, f"GRANT INSERT, DELETE, UPDATE ON `{schema.name}`.`{table}` TO {user}")
    schema.pair.even.end_connections()  # those that are open keep what they may do
    try:
        yield
    finally:
        schema.execute(1, f"GRANT {everything} TO {user}")
        schema.pair.even.end_connections()
