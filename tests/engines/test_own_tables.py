"""What a session on SQL refuses: tables of another shape, kinds of releases before, triggers that change ids."""

import pytest

from app.databases.session import Want
from app.errors import DatabaseFailed, DatabaseRefused
from tests.engines.bench import Bench
from tests.servers import engines

MYSQL, ALL = engines("mariadb", "mysql"), engines("mariadb", "mysql", "postgresql")
TRIGGER = "CREATE TRIGGER t BEFORE INSERT ON photos FOR EACH ROW SET NEW.id = 1000"
FUNCTION = "CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.id = NEW.id + 1; RETURN NEW; END'"
TRIGGER_OF_ROWS = "CREATE TRIGGER a BEFORE UPDATE ON ticket_sequences FOR EACH ROW EXECUTE FUNCTION act()"


@pytest.mark.parametrize(
    ("bench", "statement", "words"),
    [
        *((engine, "ALTER TABLE _ticket_notes COMMENT = 'layout 2'", "_ticket_notes") for engine in MYSQL),
        *((engine, "ALTER TABLE _ticket_notes ENGINE = MyISAM", "_ticket_notes") for engine in MYSQL),
        ("postgresql", "COMMENT ON TABLE _ticket_notes IS 'ticketd layout 2'", "_ticket_notes of another release"),
        ("postgresql", "CREATE TABLE ticket_sequences (sequence text, id integer, bits smallint)", "the columns bits"),
        ("postgresql", "CREATE VIEW ticket_sequences AS SELECT 'a'::text AS sequence", "the columns bits smallint"),
        ("postgresql", "CREATE TABLE _ticket_notes (book text)", "without a column that it needs"),
    ],
    indirect=["bench"],
)
async def test_tables_of_another_shape_are_refused_and_not_altered(bench: Bench, statement: str, words: str) -> None:
    if not statement.startswith("CREATE"):
        await bench.open()
    bench.run(statement)
    with pytest.raises(DatabaseRefused, match=words):
        await bench.open()


@pytest.mark.parametrize(
    ("bench", "table"),
    [(engine, "_kinds") for engine in ALL] + [(engine, "_definitions") for engine in MYSQL],
    indirect=["bench"],
)
async def test_kinds_of_releases_before_are_never_taken_for_plain_tickets(bench: Bench, table: str) -> None:
    bench.run(f"CREATE TABLE {table} (sequence VARCHAR(64), kind VARCHAR(32), decided BOOLEAN)")
    await bench.open()
    bench.run(f"INSERT INTO {table} VALUES ('likes', 'instagram', true)")
    with pytest.raises(DatabaseRefused, match="make them again"):
        await bench.open()


@pytest.mark.parametrize(
    ("bench", "statements"),
    [
        *((engine, [TRIGGER]) for engine in MYSQL),
        (
            "postgresql",
            [FUNCTION, TRIGGER_OF_ROWS],
        ),
    ],
    indirect=["bench"],
)
async def test_an_id_that_a_trigger_has_changed_is_refused(bench: Bench, statements: list[str]) -> None:
    session = await bench.with_photos()
    for statement in statements:
        bench.run(statement)
    with pytest.raises((DatabaseRefused, DatabaseFailed), match=r"gave the id|drew nothing"):
        await session.draw([Want("photos", 1)])
