"""What is particular to PostgreSQL as a ticket database: its locks, its tables, its settings and accounts."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.databases.session import LARGEST_ID, Book, Counter, Drawn, Mark, Marked, Note, Session, Want, Write
from app.errors import (
    DatabaseError,
    DatabaseFailed,
    DatabaseRefused,
    SequenceBusy,
    SequenceExhausted,
    SequenceMissing,
    SequenceUnusable,
)
from tests.engines.postgresql_bench import EVEN, ODD, PostgreSQLBench, record
from tests.servers_shared import FreshDatabase, OwnServer, SharedServers


@pytest.fixture
async def bench(shared_servers: SharedServers, fresh_database: FreshDatabase) -> AsyncIterator[PostgreSQLBench]:
    """An empty database."""
    database = fresh_database("postgresql").rpartition("/")[2]
    bench = PostgreSQLBench(shared_servers.server("postgresql"), database)
    yield bench
    await bench.close()


@pytest.fixture
async def lonely(own_server: OwnServer) -> AsyncIterator[PostgreSQLBench]:
    """An empty database in a server of the test's own."""
    bench = PostgreSQLBench(own_server("postgresql"))
    yield bench
    await bench.close()


async def drawn(session: Session, *wanted: Want) -> list[Any]:
    """The first id of each draw, or the class of the error."""
    results = await session.draw(wanted)
    return [each.first if isinstance(each, Drawn) else type(each) for each in results]


@pytest.fixture(params=["read committed", "repeatable read", "serializable"])
async def isolated(request: pytest.FixtureRequest, bench: PostgreSQLBench) -> PostgreSQLBench:
    """A database with another isolation level for everybody; a mark `a`, and the stamp `1.word`."""
    bench.run(f"ALTER DATABASE {bench.database} SET default_transaction_isolation = '{request.param}'")
    session = await bench.open(None)
    await record(session, "1.word")
    assert await session.write([Write(Book.MARKS, "a", None, Note(1, tenure="t"))], None) == [True]
    return bench


async def do(session: Session, by: str) -> bool:
    """Raise the mark `a` to 9, by a mark or by a write, under the stamp `1.word`."""
    if by == "mark":
        return (await session.mark([Mark("a", "t", 9, 0, False)], "1.word"))[0] is Marked.DONE
    return (await session.write([Write(Book.MARKS, "a", Note(1, tenure="t"), Note(9, tenure="t"))], "1.word"))[0]


@pytest.mark.parametrize("by", ["mark", "write"])
async def test_what_waited_for_a_change_of_the_record_is_refused(isolated: PostgreSQLBench, by: str) -> None:
    session = await isolated.open(None)
    with isolated.transaction("UPDATE _ticket_ring SET stamp = '2.word'") as change:
        raising = asyncio.create_task(do(session, by))
        await isolated.wait_for_locks()
        change.commit()
        assert not await raising
    assert (await session.read(Book.MARKS, ["a"]))["a"].high == 1


@pytest.mark.parametrize("by", ["mark", "write"])
async def test_a_change_of_the_record_waits_for_what_began_before_it(isolated: PostgreSQLBench, by: str) -> None:
    session, changer = await isolated.open(None), await isolated.open(None)
    ring = await session.read_ring()
    with isolated.transaction("SELECT FROM _ticket_notes WHERE name = 'a' FOR UPDATE") as lock:
        raising = asyncio.create_task(do(session, by))
        await isolated.wait_for_locks()
        changing = asyncio.create_task(changer.write_ring(ring, ring._replace(stamp="2.word")))
        await isolated.wait_for_locks(2)
        assert not changing.done()
        lock.rollback()
        assert await changing
        assert (await changer.read(Book.MARKS, ["a"]))["a"].high == 9
        assert await raising


@pytest.mark.parametrize("by", ["mark", "write"])
async def test_what_waited_for_a_row_is_judged_by_the_newest_row(isolated: PostgreSQLBench, by: str) -> None:
    session = await isolated.open(None)
    with isolated.transaction("UPDATE _ticket_ring SET ring_offset = 2") as change:
        raising = asyncio.create_task(do(session, by))
        await isolated.wait_for_locks()
        isolated.run("UPDATE _ticket_notes SET tenure = NULL WHERE name = 'a'")
        change.commit()
        assert not await raising
    with isolated.transaction("DELETE FROM _ticket_notes") as change:
        insert = Write(Book.MARKS, "a", None, Note(3))
        writing = asyncio.create_task(session.write([insert, Write(Book.MARKS, "b", Note(1), None)], "1.word"))
        await isolated.wait_for_locks()
        change.commit()
        assert await writing == [True, False]


@pytest.mark.parametrize("code", ["40001", "40P01"])
async def test_a_statement_that_postgresql_undid_is_sent_once_more(bench: PostgreSQLBench, code: str) -> None:
    session = await bench.open(ODD)
    await session.make("photos", 64, 0)
    bench.run(
        "CREATE SEQUENCE tries",
        "CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF nextval('tries') IN (1, 3, 4) THEN "
        f"RAISE EXCEPTION USING ERRCODE = '{code}'; END IF; RETURN NEW; END $$",
        "CREATE TRIGGER undo BEFORE UPDATE ON ticket_sequences FOR EACH ROW EXECUTE FUNCTION undo()",
    )
    assert await drawn(session, Want("photos", 1)) == [1]
    with pytest.raises(DatabaseFailed, match="undid a statement twice"):
        await session.draw([Want("photos", 1)])


# --- rows of ticket_sequences -----------------------------------------------------------------------------------------


async def test_rows_that_are_odd_are_unusable_and_concern_no_other(bench: PostgreSQLBench) -> None:
    session = await bench.open(ODD)
    await session.make("good", 64, 0)
    bench.run("ALTER TABLE ticket_sequences ALTER id DROP NOT NULL, ALTER bits DROP NOT NULL")
    bench.run("ALTER TABLE ticket_sequences ADD CHECK (sequence <> 'checked' OR id < 3)")
    bench.run(
        "INSERT INTO ticket_sequences VALUES ('b16', 0, 16), ('null', NULL, 64), ('nobits', 0, NULL), ('minus', -1, 64)"
    )
    bench.run("INSERT INTO ticket_sequences VALUES ('1st', 0, 64), ('checked', 1, 64), ('above', 9, 32)")
    bench.run(f"UPDATE ticket_sequences SET id = {1 << 40} WHERE sequence = 'above'")
    names = ["b16", "null", "nobits", "minus"]
    found = await session.sequences(None)
    for name in (*names, "1st"):
        assert isinstance(found[name], SequenceUnusable)
    assert isinstance(above := found["above"], Counter)
    assert above.position == above.ceiling == (1 << 32) - 1
    wanted = [Want(name, 1) for name in (*names, "above", "good")]
    assert await drawn(session, *wanted) == [SequenceUnusable] * 4 + [SequenceExhausted, 1]
    assert await drawn(session, Want("checked", 1), Want("good", 1), Want("absent", 1)) == [
        SequenceUnusable,
        3,
        SequenceMissing,
    ]
    raised = await session.raise_above({"b16": 1, "null": 1, "good": 7})
    assert [type(each) for each in raised.values()] == [SequenceUnusable, SequenceUnusable, type(None)]


async def test_nothing_overflows_at_the_end_of_a_bigint(bench: PostgreSQLBench) -> None:
    session, even = await bench.open(ODD), await bench.open(EVEN)
    await session.make("photos", 64, LARGEST_ID - 3)
    assert await drawn(session, Want("photos", 200_000), Want("photos", 1, LARGEST_ID)) == [SequenceExhausted] * 2
    assert await drawn(even, Want("photos", 1)) == [LARGEST_ID - 1]
    assert await drawn(even, Want("photos", 1)) == [SequenceExhausted]
    assert await drawn(session, Want("photos", 1), Want("photos", 1)) == [LARGEST_ID, SequenceExhausted]
    assert await session.raise_above({"photos": LARGEST_ID}) == {"photos": None}


async def test_a_locked_row_is_waited_for_and_then_drawn_from(bench: PostgreSQLBench) -> None:
    session = await bench.open(ODD)
    await session.make("photos", 64, 0)
    with bench.transaction("UPDATE ticket_sequences SET id = 100") as other:
        drawing = asyncio.create_task(drawn(session, Want("photos", 1)))
        await bench.wait_for_locks()
        other.commit()
        assert await drawing == [101]
    with bench.transaction("SELECT FROM ticket_sequences FOR UPDATE"):
        hasty = await bench.open(ODD, seconds=0.3)
        assert await drawn(hasty, Want("photos", 1)) == [SequenceBusy]
        assert isinstance((await hasty.raise_above({"photos": 5}))["photos"], SequenceBusy)


async def test_ids_of_another_residue_are_refused(bench: PostgreSQLBench) -> None:
    session = await bench.open(ODD)
    await session.make("photos", 64, 0)
    bench.run(
        "CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.id = NEW.id + 1; RETURN NEW; END'"
    )
    bench.run("CREATE TRIGGER meddle BEFORE UPDATE ON ticket_sequences FOR EACH ROW EXECUTE FUNCTION meddle()")
    with pytest.raises(DatabaseRefused, match="gave the id 2 of photos"):
        await session.draw([Want("photos", 1)])


async def test_a_table_without_birth_is_served_with_a_warning_and_twins_are_not(bench: PostgreSQLBench) -> None:
    bench.run("CREATE TABLE ticket_sequences (sequence text, id bigint, bits smallint, note text)")
    bench.run("INSERT INTO ticket_sequences VALUES ('photos', 5, 64), ('twin', 1, 64), ('twin', 8, 64)")
    session = await bench.open(ODD)
    photos = (await session.sequences(["photos"]))["photos"]
    assert isinstance(photos, Counter)
    assert "has no column birth" in photos.warnings[0]
    assert isinstance((await session.sequences(None))["twin"], SequenceUnusable)
    assert await drawn(session, Want("photos", 1), Want("twin", 1)) == [7, SequenceUnusable]
    await asyncio.gather(*[(await bench.open(None)).make(name, 64, 1) for name in ("new", "NEW", "new")])
    (new,) = (await session.sequences(["new"])).values()
    assert isinstance(new, Counter)
    bench.run("VACUUM FULL ticket_sequences")
    after = (await session.sequences(["photos"]))["photos"]
    assert isinstance(after, Counter)
    assert after.birth != photos.birth


# --- tables, settings and accounts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (
            "CREATE TABLE ticket_sequences (sequence text, id integer, bits smallint)",
            "without the columns bits smallint",
        ),
        ("CREATE VIEW ticket_sequences AS SELECT 'a'::text AS sequence", "without the columns bits smallint"),
        ("CREATE TABLE _ticket_notes (book text)", "without a column that it needs"),
        ("CREATE TABLE _ticket_ring (); COMMENT ON TABLE _ticket_ring IS 'ticketd layout 2'", "without a column"),
    ],
)
async def test_tables_of_another_shape_are_refused_and_not_altered(
    bench: PostgreSQLBench, statement: str, words: str
) -> None:
    for each in statement.split(";"):
        bench.run(each)
    with pytest.raises(DatabaseRefused, match=words):
        await bench.open(ODD)


async def test_tables_of_another_layout_are_refused(bench: PostgreSQLBench) -> None:
    await bench.open(ODD)
    bench.run("COMMENT ON TABLE _ticket_notes IS 'ticketd layout 2'")
    with pytest.raises(DatabaseRefused, match="_ticket_notes of another release"):
        await bench.open(ODD)


async def test_settings_of_the_user_do_not_reach_the_session(bench: PostgreSQLBench) -> None:
    alter = f"ALTER DATABASE {bench.database} SET"
    bench.run(f"{alter} synchronous_commit = off", f"{alter} search_path = b, public")
    session = await bench.open(ODD)
    assert session.facts.warnings == ()
    assert session.facts.version.startswith("PostgreSQL 1")
    bench.run("CREATE SCHEMA b")
    await session.make("photos", 64, 0)
    assert bench.run("SELECT sequence FROM public.ticket_sequences") == [("photos",)]
    bench.run(f"{alter} search_path = nowhere")
    with pytest.raises(DatabaseRefused, match="no schema in this user's search path"):
        await bench.open(ODD)


async def test_what_weakens_durability_is_warned_of_and_a_read_only_server_fails(lonely: PostgreSQLBench) -> None:
    await lonely.open(ODD)
    lonely.run("ALTER TABLE ticket_sequences SET UNLOGGED")
    lonely.server.stop()
    lonely.server.options += ["-c", "fsync=off", "-c", "full_page_writes=off"]
    lonely.server.start()
    session = await lonely.open(ODD)
    words = " ".join((await session.look("one:8000", Note())).facts.warnings)
    assert all(each in words for each in ("fsync is off", "full_page_writes is off", "ticket_sequences is UNLOGGED"))
    lonely.run("ALTER SYSTEM SET default_transaction_read_only = on")
    lonely.server.stop()
    lonely.server.start()
    session = await lonely.open(ODD)
    with pytest.raises(DatabaseFailed, match="read-only"):
        await session.look("one:8000", Note())


async def test_an_account_that_owns_nothing_works_with_the_tables_of_an_operator(bench: PostgreSQLBench) -> None:
    name = bench.database
    bench.run("REVOKE CREATE ON SCHEMA public FROM PUBLIC", f"CREATE ROLE {name} LOGIN")
    try:
        with pytest.raises(DatabaseRefused, match="privileges that a ticket server needs"):
            await bench.open(ODD, user=name)
        operator = await bench.open(None)
        bench.run(f"GRANT SELECT, INSERT, UPDATE (id) ON ticket_sequences TO {name}")
        bench.run(f"GRANT SELECT, UPDATE ON _ticket_ring TO {name}")
        with pytest.raises(DatabaseRefused, match="privileges that a ticket server needs"):
            await bench.open(ODD, user=name)
        bench.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON _ticket_notes TO {name}")
        session = await bench.open(ODD, user=name)
        assert session.facts.births == operator.facts.births
        await session.make("photos", 64, 0)
        assert await drawn(session, Want("photos", 1)) == [1]
        ring = await record(session, "1.word")
        assert await session.write([Write(Book.MARKS, "a", None, Note(tenure="t"))], ring.stamp) == [True]
        assert await session.mark([Mark("a", "t", 1, 1, True)], ring.stamp) == [Marked.DONE]
        assert await session.write([Write(Book.MARKS, "a", Note(1, 1, "t", True), None)], None) == [True]
        assert "one" in (await session.look("one", Note())).heartbeats
        assert await session.raise_above({"photos": 9}) == {"photos": None}
    finally:
        await bench.close()
        bench.run(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


async def test_a_copy_of_the_database_has_another_birth(bench: PostgreSQLBench) -> None:
    facts, copy = (await bench.open(ODD)).facts, f"{bench.database}_copy"
    await bench.close()
    bench.server.execute(f"CREATE DATABASE {copy} TEMPLATE {bench.database}")
    try:
        found = (await bench.open(ODD, database=copy)).facts
        assert found.machine == facts.machine
        assert found.births != facts.births
    finally:
        bench.server.drop_database(copy)


async def test_a_standby_says_so_and_is_another_machine_once_it_is_promoted(lonely: PostgreSQLBench) -> None:
    facts = (await lonely.open(ODD)).facts
    lonely.server.stop()
    (lonely.server.data_dir / "standby.signal").touch()
    lonely.server.start()
    with pytest.raises(DatabaseFailed, match="is a standby"):
        await lonely.open(ODD)
    lonely.run("SELECT pg_promote()")
    promoted = (await lonely.open(ODD)).facts
    assert promoted.machine != facts.machine
    assert promoted.births == facts.births


async def test_what_was_dropped_is_a_failure_and_the_next_session_makes_it_anew(bench: PostgreSQLBench) -> None:
    session = await bench.open(ODD)
    await session.make("photos", 64, 0)
    bench.run("DROP TABLE ticket_sequences")
    with pytest.raises(DatabaseError, match="has lost a table"):
        await session.draw([Want("photos", 1)])
    assert await (await bench.open(ODD)).sequences(None) == {}
    body = (await session.read_ring()).body
    bench.run("DELETE FROM _ticket_ring")
    for call in (
        session.read_ring,
        lambda: session.mark([Mark("a", "t", 1, 1, False)], "1.word"),
        lambda: session.write([Write(Book.MARKS, "a", None, Note())], None),
        lambda: session.look("one:8000", Note()),
    ):
        with pytest.raises(DatabaseFailed):
            await call()
    assert (await (await bench.open(ODD)).read_ring()).body != body


async def test_kinds_of_releases_before_are_never_taken_for_plain_tickets(bench: PostgreSQLBench) -> None:
    bench.run("CREATE TABLE _kinds (sequence text, kind text, decided boolean)")
    await bench.open(ODD)
    bench.run("INSERT INTO _kinds VALUES ('likes', 'instagram', true)")
    with pytest.raises(DatabaseRefused, match="make them again"):
        await bench.open(ODD)
