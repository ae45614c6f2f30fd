"""The commands of the page for plain SQL: ids of a ticket server in psql and mysql, and ids without a ticket server."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.harness.commands import Ran
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair
from tests.harness.postgresql import PostgreSQL
from tests.harness.schema import PASSWORD, SCHEMA, USER
from tests.harness.ticketd import PATIENT, TicketServer
from tests.recipes.conftest import TOKEN
from tests.recipes.front import Front
from tests.recipes.languages import LANGUAGES, Recipe
from tests.recipes.pages import commands

pytestmark = pytest.mark.any_engine

WITH_PSQL, WITH_MYSQL, BULK_LOAD = commands("plain-sql.md")
_schemas = itertools.count(1)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return LANGUAGES["bash"].prepare(tmp_path)


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgreSQL]:
    with PostgreSQL() as running:
        yield running


@pytest.fixture
def photos(postgresql: PostgreSQL) -> Callable[[], list[str]]:
    """An empty table photos in PostgreSQL; the ids in it."""
    made = postgresql.psql(
        "DROP TABLE IF EXISTS photos; CREATE TABLE photos (id bigint PRIMARY KEY, title text NOT NULL);"
    )
    assert made.status == 0, made.errors
    return lambda: postgresql.psql("SELECT id FROM photos ORDER BY id;").lines


def run(recipe: Recipe, script: str, front: Front, settings: Mapping[str, str], token: str = TOKEN) -> Ran:
    """Run a script of the page, after its client."""
    settings = {"TICKETD_URLS": front.url, "TICKETD_TOKEN": token, **settings}
    return recipe.run_command(["bash", "-euo", "pipefail", "-c", f". ./take.sh\n{script}"], settings, timeout=60)


def option_file(database: TicketMySQL, path: Path, schema: str = SCHEMA) -> None:
    """Write an option file that leads mysql to this database."""
    connection = f"host=127.0.0.1\nport={database.port}\nuser={USER}\npassword={PASSWORD}\n"
    path.write_text(f"[client]\n{connection}\n[mysql]\ndatabase={schema}\n", encoding="utf-8")


def test_a_row_is_stored_with_psql(
    recipe: Recipe, front: Front, postgresql: PostgreSQL, photos: Callable[[], list[str]]
) -> None:
    ran = run(recipe, WITH_PSQL, front, postgresql.variables)
    assert ran.status == 0, ran
    assert len(photos()) == 1
    assert photos() == front.given


def test_no_row_is_stored_without_an_id(
    recipe: Recipe, front: Front, postgresql: PostgreSQL, photos: Callable[[], list[str]]
) -> None:
    ran = run(recipe, WITH_PSQL, front, postgresql.variables, token="a-wrong-token")
    assert ran.status != 0
    assert "401" in ran.errors
    assert photos() == []


def test_a_row_is_stored_with_mysql(recipe: Recipe, front: Front, mysql_pair: MySQLPair) -> None:
    application = mysql_pair.odd
    schema = f"plain_sql_{next(_schemas)}"
    application.make_schema(schema, tables=False)
    application.execute("CREATE TABLE photos (id BIGINT PRIMARY KEY, title TEXT NOT NULL)", database=schema)
    option_file(application, recipe.directory / ".my.cnf", schema)
    ran = run(recipe, WITH_MYSQL, front, {"HOME": str(recipe.directory)})
    assert ran.status == 0, ran
    rows = application.execute("SELECT CAST(id AS CHAR), title FROM photos", database=schema)
    assert rows == [(front.given[0], "The harbour")]


def test_a_block_numbers_the_rows_of_a_bulk_load(
    recipe: Recipe, front: Front, postgresql: PostgreSQL, photos: Callable[[], list[str]]
) -> None:
    postgresql.psql(
        "DROP TABLE IF EXISTS staging; CREATE TABLE staging AS SELECT 'x' AS title FROM generate_series(1, 57);"
    )
    for loads in (1, 2):
        ran = run(recipe, BULK_LOAD, front, postgresql.variables)
        assert ran.status == 0, ran
        assert len(photos()) == 57 * loads
    assert photos() == sorted(front.given, key=int)


@pytest.fixture
def draw(recipe: Recipe, own_pair: MySQLPair) -> Callable[[int], list[int]]:
    """Draws so many ids of photos, one by one, without a ticket server."""
    option_file(own_pair.odd, recipe.directory / "odd.cnf")
    option_file(own_pair.even, recipe.directory / "even.cnf")

    def drawn(count: int) -> list[int]:
        script = f". ./draw.sh\nfor ((n = 0; n < {count}; n++)); do draw photos; done"
        ran = recipe.run_command(["bash", "-euo", "pipefail", "-c", script], {}, timeout=60)
        assert ran.status == 0, ran
        return [int(line) for line in ran.lines]

    return drawn


def test_an_application_and_a_server_draw_from_the_same_databases(
    draw: Callable[[int], list[int]], own_pair: MySQLPair
) -> None:
    with TicketServer(own_pair.urls, settings=PATIENT) as server:
        server.wait_health()
        ids = []
        for _ in range(10):
            ids += [*draw(2), server.ticket("photos"), server.ticket("photos")]
    assert len(set(ids)) == 40
    assert {each % 2 for each in ids[0::4] + ids[1::4]} == {0, 1}, "an application asks both databases"


def test_an_application_draws_while_one_database_is_frozen_or_gone(
    draw: Callable[[int], list[int]], own_pair: MySQLPair
) -> None:
    before = draw(2)
    own_pair.odd.freeze()
    frozen = draw(3)
    own_pair.odd.kill()
    gone = draw(5)
    assert {each % 2 for each in frozen + gone} == {0}
    assert len({*before, *frozen, *gone}) == 10
