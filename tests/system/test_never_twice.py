"""Never twice: what happens to a ticket database between two tickets must not matter.

Each test makes one database go back in time in one way (truncated, remade, restored, replaced, promoted), shows that
the database by itself would now give tickets again, and takes tickets of every kind from every server.
"""

import itertools
import time
from collections.abc import Callable, Iterator

import pytest

from tests.harness.engine import Engine
from tests.harness.history import Kind
from tests.harness.mysqld import TicketMySQL
from tests.harness.notebook import Notebook
from tests.harness.pair import MySQLPair, Schema
from tests.harness.schema import LEAST_PRIVILEGES, USER
from tests.harness.ticketd import PATIENT, TicketServer

ODD, EVEN = 1, 2
PROBE_SECONDS = 0.2
SETTINGS = PATIENT | {"TICKETS_PROBE_INTERVAL": PROBE_SECONDS}
SIZES: dict[Kind, int] = {"single": 1, "count": 7, "block": 150}

Servers = tuple[TicketServer, TicketServer]


@pytest.fixture(scope="module")
def schema(engine: Engine) -> Iterator[Schema]:
    """A schema on two ticket databases for the tests of this module, which kill them and put them back."""
    with MySQLPair(engine) as pair:
        yield pair.make_schema("rough")


@pytest.fixture
def pair(schema: Schema) -> MySQLPair:
    """Both ticket databases, running as they should."""
    schema.pair.start()
    return schema.pair


@pytest.fixture(scope="module")
def both_servers(schema: Schema) -> Iterator[Servers]:
    with TicketServer(schema.urls, settings=SETTINGS) as one, TicketServer(schema.urls, settings=SETTINGS) as other:
        yield one, other


@pytest.fixture
def servers(pair: MySQLPair, both_servers: Servers) -> Servers:
    """Two ticket servers on the pair, both with a health of `pass`."""
    start(*both_servers)
    return both_servers


def start(*servers: TicketServer) -> None:
    """Start those that do not run, side by side; wait until all is well."""
    for server in servers:
        if not server.running:
            server.start()
    for server in servers:
        server.wait_alive()
        server.wait_health()


@pytest.fixture
def notebook(servers: Servers, new_name: Callable[[], str]) -> Notebook:
    """For a sequence of the test's own, from which every database and server has drawn every kind already."""
    return used_sequence(servers, new_name())


def used_sequence(servers: Servers, name: str) -> Notebook:
    notebook = Notebook(name)
    assert servers[0].put(f"/sequence/{name}").status == 201
    notebook.take_all_kinds(*servers, rounds=1)
    return notebook


def counter(database: TicketMySQL, schema: Schema, table: str) -> int:
    """What the database would give next, if it were asked by itself."""
    statement = str(database.execute(f"SHOW CREATE TABLE `{table}`", database=schema.name)[0][1])
    _, _, number = statement.partition("AUTO_INCREMENT=")
    return int(number.split()[0]) if number else 1


def let_marks_be_written() -> None:
    """Two rounds of probes, in which every server tells the ledger what it has issued."""
    time.sleep(2 * PROBE_SECONDS + 0.3)


def take_everything(notebook: Notebook, *servers: TicketServer) -> None:
    """From every server and every database, in every way; no ticket may have been there before."""
    notebook.take_all_kinds(*servers, rounds=1)
    for server in servers:
        notebook.take_from(server, ODD)
        notebook.take_from(server, EVEN)
    notebook.take_all_kinds(*servers, rounds=1)
    notebook.check()


# -- a table that begins again


def truncate(database: TicketMySQL, schema: Schema, table: str) -> None:
    database.execute(f"TRUNCATE `{table}`", database=schema.name)


def drop_and_remake(database: TicketMySQL, schema: Schema, table: str) -> None:
    """In one stroke: a server that found it missing would make it."""
    database.execute("CREATE TABLE _new LIKE Tickets64", database=schema.name)
    database.execute(f"RENAME TABLE `{table}` TO _old, _new TO `{table}`", database=schema.name)
    database.execute("DROP TABLE _old", database=schema.name)


def drop(database: TicketMySQL, schema: Schema, table: str) -> None:
    database.execute(f"DROP TABLE `{table}`", database=schema.name)


@pytest.mark.parametrize("harm", [truncate, pytest.param(drop_and_remake, marks=pytest.mark.long), drop])
def test_a_table_begins_again_under_running_servers(
    harm: Callable[[TicketMySQL, Schema, str], None],
    schema: Schema,
    servers: Servers,
    new_name: Callable[[], str],
) -> None:
    for first, size in SIZES.items():
        notebook = used_sequence(servers, new_name())
        let_marks_be_written()
        harm(schema.pair.odd, schema, notebook.sequence)
        if harm is not drop:
            assert counter(schema.pair.odd, schema, notebook.sequence) < notebook.highest(ODD)
        for server in servers:
            notebook.take(server, first, size)
            notebook.take(server, first, size)
        take_everything(notebook, *servers)


@pytest.mark.parametrize("first", ["single", pytest.param("count", marks=pytest.mark.long), "block"])
def test_a_truncated_table_meets_a_server_that_has_not_heard_what_the_others_issued(
    first: Kind, schema: Schema, servers: Servers, new_name: Callable[[], str]
) -> None:
    """What it knows itself is less than what has been issued; even a block, which chooses where it begins, has to
    be found out."""
    busy = servers[0]
    notebook = Notebook(new_name())
    assert busy.put(f"/sequence/{notebook.sequence}").status == 201
    with TicketServer(schema.urls, settings=SETTINGS | {"TICKETS_PROBE_INTERVAL": 30}) as late:
        late.wait_health()
        for _ in range(4):
            notebook.take(late)
        for _ in range(4):
            notebook.take(busy, "count", 500)
        let_marks_be_written()
        truncate(schema.pair.odd, schema, notebook.sequence)
        for _ in range(4):
            notebook.take(late, first, SIZES[first])
        notebook.check()
        for _ in range(4):
            notebook.take(busy, "block", 1000)
            notebook.take(busy)
        notebook.check()
        late.terminate()  # a killed one's announcements would stand for five of its intervals


@pytest.mark.parametrize("harm", [truncate, pytest.param(drop_and_remake, marks=pytest.mark.long), drop])
def test_a_table_begins_again_while_no_server_runs(
    harm: Callable[[TicketMySQL, Schema, str], None], schema: Schema, servers: Servers, notebook: Notebook
) -> None:
    for server in servers:
        server.kill()  # nothing is tidied up
    harm(schema.pair.odd, schema, notebook.sequence)
    start(*servers)
    take_everything(notebook, *servers)


# -- a database that is not the one it was


def put_back(database: TicketMySQL, saved: object) -> None:
    database.restore_data_directory(saved)  # type: ignore[arg-type]


def promote(database: TicketMySQL, saved: object) -> None:
    """A replica that lagged: what was there at the time, on a server with an identity of its own."""
    database.restore_data_directory(saved)  # type: ignore[arg-type]
    (database.data / "auto.cnf").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("how", "victim"),
    [
        pytest.param(put_back, 0, id="put_back-odd"),
        pytest.param(promote, 1, id="promote-even"),
        pytest.param(put_back, 1, id="put_back-even", marks=pytest.mark.long),
        pytest.param(promote, 0, id="promote-odd", marks=pytest.mark.long),
    ],
)
def test_an_earlier_copy_under_running_servers(
    how: Callable[[TicketMySQL, object], None], victim: int, schema: Schema, servers: Servers, notebook: Notebook
) -> None:
    database = schema.pair[victim]
    saved = database.save_data_directory()
    notebook.take_all_kinds(*servers)
    database.kill()
    notebook.take_all_kinds(*servers, rounds=1)
    how(database, saved)
    database.start()
    database.wait_ready()
    for server in servers:
        server.wait_health()
    take_everything(notebook, *servers)


def test_an_earlier_copy_meets_a_server_that_has_not_heard_what_the_others_issued(
    schema: Schema, servers: Servers, new_name: Callable[[], str]
) -> None:
    """By its own tickets it could not tell: that the database was restarted has to be enough."""
    busy, database = servers[0], schema.pair.odd
    notebook = Notebook(new_name())
    assert busy.put(f"/sequence/{notebook.sequence}").status == 201
    with TicketServer(schema.urls, settings=SETTINGS | {"TICKETS_PROBE_INTERVAL": 30}) as late:
        late.wait_health()
        for _ in range(4):
            notebook.take(late)
        saved = database.save_data_directory()
        for _ in range(4):
            notebook.take(busy, "count", 500)
        let_marks_be_written()
        database.kill()
        database.restore_data_directory(saved)
        database.restart()
        for _ in range(6):
            notebook.take(late)
        notebook.check()
        late.wait_database(database.name, "up")
        notebook.take_from(late, ODD)
        notebook.take_from(busy, ODD)
        notebook.check()
        late.terminate()


def test_an_earlier_copy_while_no_server_runs(schema: Schema, servers: Servers, notebook: Notebook) -> None:
    one, other = servers
    database = schema.pair.odd
    saved = database.save_data_directory()
    notebook.take_all_kinds(*servers)
    for server in servers:
        server.kill()
    database.kill()
    database.restore_data_directory(saved)
    database.restart()
    assert counter(database, schema, notebook.sequence) < notebook.highest(ODD)
    start(one)
    take_everything(notebook, one)
    start(other)
    take_everything(notebook, one, other)


def test_the_copy_comes_back_while_the_other_database_is_down(
    schema: Schema, servers: Servers, notebook: Notebook
) -> None:
    """The servers have read the marks while they could be read."""
    odd, even = schema.pair
    saved = odd.save_data_directory()
    notebook.take_all_kinds(*servers)
    let_marks_be_written()
    odd.kill()
    odd.restore_data_directory(saved)
    even.kill()
    odd.restart()
    for server in servers:
        server.wait_database(odd.name, "up")
        assert any("unprotected" in each["reason"] for each in server.get("/healthz").json()["warnings"])
    for server in servers:
        notebook.take_from(server, ODD)
    notebook.check()
    even.restart()
    for server in servers:
        server.wait_health()
    take_everything(notebook, *servers)


@pytest.mark.parametrize(
    "tables",
    [
        pytest.param(True, id="with the first tables", marks=pytest.mark.long),
        pytest.param(False, id="with the schema alone"),
    ],
)
def test_an_empty_server_in_a_dead_ones_place(
    tables: bool, schema: Schema, servers: Servers, notebook: Notebook
) -> None:
    """No command beyond starting it: tables and marks come from the other database."""
    photos = used_photos(servers)
    database = schema.pair.even
    database.kill()
    notebook.take_all_kinds(*servers, rounds=1)
    database.wipe()
    database.start()
    database.wait_ready()
    if tables:
        database.make_schema(schema.name)
    else:
        database.execute(f"CREATE DATABASE `{schema.name}`", database=None)
        database.execute(f"GRANT {LEAST_PRIVILEGES} ON `{schema.name}`.* TO '{USER}'@'127.0.0.1'", database=None)
    for server in servers:
        server.wait_database(database.name, "up")
    take_everything(notebook, *servers)
    take_everything(photos, *servers)
    for server in servers:
        server.wait_health()


def used_photos(servers: Servers) -> Notebook:
    photos = Notebook("photos")
    photos.take_all_kinds(*servers, rounds=1)
    return photos


def test_the_marks_survive_the_loss_of_the_database_that_kept_them(
    schema: Schema, servers: Servers, notebook: Notebook
) -> None:
    """The even database is replaced by an empty one, and then the odd one goes back: the marks have come anew."""
    odd, even = schema.pair
    saved = odd.save_data_directory()
    notebook.take_all_kinds(*servers)
    even.wipe()
    even.start()
    even.wait_ready()
    even.make_schema(schema.name)
    for server in servers:
        server.wait_health()
    odd.kill()
    odd.restore_data_directory(saved)
    odd.restart()
    for server in servers:
        server.wait_health()
    take_everything(notebook, *servers)


def test_a_copy_from_before_a_bump(schema: Schema, servers: Servers, notebook: Notebook) -> None:
    database = schema.pair.odd
    saved = database.save_data_directory()
    above = 7_000_000
    assert servers[0].post(f"/sequence/{notebook.sequence}/bump", json={"above": above}).status == 200
    database.kill()
    database.restore_data_directory(saved)
    database.restart()
    for server in servers:
        server.wait_health()
        assert notebook.take_from(server, ODD) > above
    take_everything(notebook, *servers)


@pytest.mark.long  # one goes back above, and what follows on it in test_the_marks_survive
def test_each_database_goes_back_in_its_turn(schema: Schema, servers: Servers, notebook: Notebook) -> None:
    saved = [database.save_data_directory() for database in schema.pair]
    for database, copy in itertools.islice(itertools.cycle(zip(schema.pair, saved, strict=True)), 3):
        notebook.take_all_kinds(*servers)
        database.kill()
        database.restore_data_directory(copy)
        database.restart()
        for server in servers:
            server.wait_health()
        take_everything(notebook, *servers)
