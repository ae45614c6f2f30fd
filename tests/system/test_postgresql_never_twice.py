"""Tickets from PostgreSQL, by itself and beside MySQL: databases go back in time, fail, and no ticket comes twice."""

from collections.abc import Callable, Iterator

import pytest

from tests.harness.load import Load, Want
from tests.harness.notebook import Notebook
from tests.harness.pair import Schema
from tests.harness.postgresql import PostgreSQL
from tests.harness.ticketd import PATIENT, TicketServer

ODD, EVEN = 1, 2
USER = "server"
SETTINGS = PATIENT | {"TICKETS_PROBE_INTERVAL": 0.2}
Servers = tuple[TicketServer, TicketServer]

pytestmark = pytest.mark.any_engine


def urls(pair: list[PostgreSQL]) -> str:
    return " ".join(each.url_of(USER) for each in pair)


@pytest.fixture(scope="module")
def pair() -> Iterator[list[PostgreSQL]]:
    """Two PostgreSQL servers that the tests of this module kill and put back."""
    with PostgreSQL(listens=True) as odd, PostgreSQL(listens=True) as even:
        for each in (odd, even):
            each.make_user(USER)
        yield [odd, even]


@pytest.fixture(scope="module")
def servers(pair: list[PostgreSQL]) -> Iterator[Servers]:
    with TicketServer(urls(pair), settings=SETTINGS) as one, TicketServer(urls(pair), settings=SETTINGS) as other:
        for server in (one, other):
            server.wait_health()
        yield one, other


@pytest.fixture
def notebook(servers: Servers, new_name: Callable[[], str]) -> Notebook:
    """For a sequence of the test's own, from which every database and server has drawn every kind already."""
    notebook = Notebook(new_name())
    assert servers[0].put(f"/sequence/{notebook.sequence}").status == 201
    notebook.take_all_kinds(*servers, rounds=1)
    return notebook


def take_everything(notebook: Notebook, servers: Servers) -> None:
    """From every server and every database, in every way; no ticket may have been there before."""
    for server in servers:
        server.wait_health()
    notebook.take_all_kinds(*servers, rounds=1)
    for server in servers:
        notebook.take_from(server, ODD)
        notebook.take_from(server, EVEN)
    notebook.take_all_kinds(*servers, rounds=1)
    notebook.check()


def position(database: PostgreSQL, sequence: str) -> int:
    """Where the database itself stands."""
    return database.numbers(f"SELECT id FROM {USER}.ticket_sequences WHERE sequence = '{sequence}';")[0]


def test_an_earlier_copy_of_its_files(pair: list[PostgreSQL], servers: Servers, notebook: Notebook) -> None:
    saved = pair[0].save()
    for server in servers:
        server.wait_health()
    notebook.take_all_kinds(*servers)
    pair[0].put_back(saved)
    take_everything(notebook, servers)


def test_a_base_backup_that_nobody_recovers(pair: list[PostgreSQL], servers: Servers, notebook: Notebook) -> None:
    """The server starts on it as on its own data: identifier and timeline are those of the original."""
    saved = pair[1].base_backup()
    notebook.take_all_kinds(*servers)
    pair[1].put_back(saved)
    take_everything(notebook, servers)


def test_a_standby_that_lagged_and_was_promoted(pair: list[PostgreSQL], servers: Servers, notebook: Notebook) -> None:
    """While it is a standby it draws nothing, and the other database serves."""
    saved = pair[0].base_backup("-R")
    notebook.take_all_kinds(*servers)
    before = notebook.highest(ODD)
    pair[0].put_back(saved)
    for server in servers:
        shown = server.wait_database(pair[0].url_of(USER).rpartition("@")[2].partition("/")[0], "down")
        assert shown["last_error"]
    notebook.take_all_kinds(*servers, rounds=1)
    assert notebook.highest(ODD) == before
    pair[0].promote()
    take_everything(notebook, servers)
    assert notebook.highest(ODD) > before


def test_a_dump_that_is_restored_under_running_servers(
    pair: list[PostgreSQL], servers: Servers, notebook: Notebook
) -> None:
    """The rows come back with their birth marks, and the server was never restarted."""
    dump = pair[0].dump(USER)
    notebook.take_all_kinds(*servers)
    ran = pair[0].psql(f"BEGIN; {dump} COMMIT;")
    assert ran.status == 0, ran.errors
    take_everything(notebook, servers)


def test_a_row_that_is_set_back(pair: list[PostgreSQL], servers: Servers, notebook: Notebook) -> None:
    pair[0].rows(f"UPDATE {USER}.ticket_sequences SET id = 0 WHERE sequence = '{notebook.sequence}';")
    take_everything(notebook, servers)


def test_a_row_that_is_deleted_and_made_again(pair: list[PostgreSQL], servers: Servers, notebook: Notebook) -> None:
    pair[1].rows(
        f"BEGIN; DELETE FROM {USER}.ticket_sequences WHERE sequence = '{notebook.sequence}'; "
        f"INSERT INTO {USER}.ticket_sequences (sequence) VALUES ('{notebook.sequence}'); COMMIT;"
    )
    take_everything(notebook, servers)


def test_an_empty_server_in_a_dead_ones_place(pair: list[PostgreSQL], servers: Servers, notebook: Notebook) -> None:
    pair[1].kill()
    notebook.take_all_kinds(*servers, rounds=1)
    pair[1].wipe()
    pair[1].make_user(USER)
    take_everything(notebook, servers)
    assert position(pair[1], notebook.sequence) >= notebook.highest(EVEN)


def test_one_is_killed_under_load_and_no_request_fails(
    pair: list[PostgreSQL], servers: Servers, new_name: Callable[[], str]
) -> None:
    sequence = new_name()
    assert servers[0].put(f"/sequence/{sequence}").status == 201
    for server in servers:
        server.wait_health()
    with Load([server.address for server in servers], mix=[sequence], clients=8) as load:
        load.run_until_tickets(200)
        pair[0].restart(kill=True)
        load.run_until_tickets(200)
    assert not load.result.failures()
    load.result.check()


def test_a_ring_of_mysql_and_postgresql(
    fresh_schema: Schema, pair: list[PostgreSQL], new_name: Callable[[], str]
) -> None:
    """Each keeps the other's marks: the PostgreSQL server goes back, and nothing comes twice."""
    pair[1].make_user("mixed")
    databases = f"{fresh_schema.urls.split()[0]} {pair[1].url_of('mixed')}"
    with TicketServer(databases, settings=SETTINGS) as one, TicketServer(databases, settings=SETTINGS) as other:
        for server in (one, other):
            server.wait_health()
        notebook = Notebook(new_name())
        assert one.put(f"/sequence/{notebook.sequence}", json={"bits": 53}).status == 201
        notebook.take_all_kinds(one, other)
        saved = pair[1].base_backup()
        notebook.take_all_kinds(one, other)
        pair[1].put_back(saved)
        take_everything(notebook, (one, other))
        assert one.post(f"/sequence/{notebook.sequence}/bump", json={"above": 10**6}).status == 200
        assert notebook.take_from(other, ODD) > 10**6
        assert notebook.take_from(other, EVEN) > 10**6
        notebook.check()


def test_a_ring_moves_from_mysql_to_postgresql_under_load(
    fresh_schema: Schema, pair: list[PostgreSQL], new_name: Callable[[], str]
) -> None:
    """One database after the other is replaced by an empty one; the servers are restarted one after the other."""
    for each in pair:
        each.make_user("moved")
    first, second = fresh_schema.urls.split()
    new_first, new_second = [each.url_of("moved") for each in pair]
    sequence = new_name()
    with (
        TicketServer(f"{first} {second}", settings=SETTINGS) as one,
        TicketServer(f"{first} {second}", settings=SETTINGS) as other,
    ):
        for server in (one, other):
            server.wait_health()
        assert one.put(f"/sequence/{sequence}").status == 201
        mix: list[Want | str] = [sequence, Want(sequence, "count", 7), Want(sequence, "block", 150)]
        with Load([one.address, other.address], mix=mix, clients=4, pause=0.005) as load:
            for urls in (f"{first} {new_second}", f"{new_first} {new_second}"):
                load.run_until_tickets(100)
                for server in (one, other):
                    server.environment["TICKETS_DATABASES"] = urls
                    server.restart()
                    server.wait_ready()
                for server in (one, other):
                    server.wait_health()
            load.run_until_tickets(100)
        names = [each["name"] for each in one.get("/healthz").json()["databases"]]
    assert names == [f"127.0.0.1:{each.port}" for each in pair]
    assert load.result.duplicates() == []
    highest = [max(i for a in load.result.answers for i in a.ids if i % 2 == offset % 2) for offset in (ODD, EVEN)]
    moved = f"SELECT id FROM moved.ticket_sequences WHERE sequence = '{sequence}';"
    assert all(each.numbers(moved)[0] >= most for each, most in zip(pair, highest, strict=True))
