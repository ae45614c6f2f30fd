"""What is particular to PostgreSQL as a ticket database: its locks, its tables, its settings and accounts."""

import asyncio
from dataclasses import replace

import pytest

from app import errors
from app.databases import engines
from app.databases.postgresql import findings
from app.databases.postgresql.session import PostgreSQLSession
from app.databases.session import Counter, Note, Want
from app.errors import DatabaseFailed, DatabaseRefused
from tests.engines.bench import Bench, drawn

SEQUENCES = "ticket_sequences"


pytestmark = pytest.mark.parametrize("bench", ["postgresql"], indirect=True)


# --- rows of ticket_sequences -----------------------------------------------------------------------------------------


async def test_rows_that_are_odd_are_unusable_and_concern_no_other(bench: Bench) -> None:
    bench.run(f"CREATE TABLE {SEQUENCES} (sequence text, id bigint, bits smallint, note text)")
    bench.run(f"ALTER TABLE {SEQUENCES} ADD CHECK (sequence <> 'checked' OR id < 3)")
    rows = (
        "('b16', 0, 16), ('null', NULL, 64), ('nobits', 0, NULL), ('minus', -1, 64), ('twin', 1, 64), ('twin', 8, 64)"
    )
    bench.run(f"INSERT INTO {SEQUENCES} VALUES {rows}, ('1st', 0, 64), ('checked', 1, 64), ('above', {1 << 40}, 32)")
    session = await bench.with_photos()
    names = ["b16", "null", "nobits", "minus"]
    found = await session.sequences(None)
    assert all(isinstance(found[name], errors.SequenceUnusable) for name in (*names, "twin", "1st"))
    assert isinstance(above := found["above"], Counter)
    assert above.position == above.ceiling == (1 << 32) - 1
    wanted = [Want(name, 1) for name in (*names, "above", "photos", "checked", "absent")]
    assert await drawn(session, *wanted[:-2]) == [errors.SequenceUnusable] * 4 + [errors.SequenceExhausted, 1]
    assert await drawn(session, *wanted[-3:]) == [3, errors.SequenceUnusable, errors.SequenceMissing]
    raised = await session.raise_above({"b16": 1, "null": 1, "photos": 7})
    assert [type(each) for each in raised.values()] == [errors.SequenceUnusable, errors.SequenceUnusable, type(None)]
    await asyncio.gather(*[(await bench.open(None)).make(name, 64, 1) for name in ("new", "NEW", "new")])
    (new,) = (await session.sequences(["new"])).values()
    assert isinstance(new, Counter)
    assert "has no column birth" in new.warnings[0]
    bench.run(f"VACUUM FULL {SEQUENCES}")
    assert (await session.sequences(["new"]))["new"] != new  # which has another birth


# --- tables, settings and accounts ------------------------------------------------------------------------------------


async def test_settings_of_the_user_do_not_reach_the_session(bench: Bench) -> None:
    alter = f"ALTER DATABASE {bench.address.database} SET"
    bench.run(f"{alter} synchronous_commit = off")
    bench.run(f"{alter} default_transaction_isolation = 'serializable'")
    bench.run(f"{alter} search_path = b, public")
    session = await bench.open()
    assert isinstance(session, PostgreSQLSession)
    assert await session.ask("SHOW synchronous_commit") == [("on",)]
    assert await session.ask("SHOW transaction_isolation") == [("read committed",)]
    bench.run("CREATE SCHEMA b")
    await session.make("photos", 64, 0)
    assert bench.run("SELECT sequence FROM public.ticket_sequences") == [("photos",)]
    bench.run(f"{alter} search_path = nowhere")
    with pytest.raises(DatabaseRefused, match="no schema in this user's search path"):
        await bench.open()


async def test_the_doctor_names_transactions_that_keep_dead_rows(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "FINDINGS", findings.FINDINGS.replace("1 minute", "0 seconds"))
    await bench.with_photos()
    with bench.transaction(f"UPDATE {SEQUENCES} SET id = 1") as writer, bench.transaction("SELECT 1") as reader:
        found = " ".join(text for _, _, text in (await engines.examine(bench.address, 10.0)).findings)
        named = [f"of process {each.connection.info.backend_pid} (postgres)" in found for each in (writer, reader)]
    assert named == [True, False]


async def test_a_copy_of_the_database_has_another_birth(bench: Bench) -> None:
    facts, copy = (await bench.open()).facts, f"{bench.address.database}_copy"
    await bench.close()
    bench.run(f"CREATE DATABASE {copy} TEMPLATE {bench.address.database}")
    try:
        bench.address = replace(bench.address, database=copy)
        found = (await bench.open()).facts
        assert (found.machine, found.births != facts.births) == (facts.machine, True)
    finally:
        bench.run(f"DROP DATABASE {copy} WITH (FORCE)")


async def test_without_its_table_of_sequences_it_fails_and_the_next_session_makes_it_anew(bench: Bench) -> None:
    session = await bench.with_photos()
    bench.run(f"ALTER TABLE {SEQUENCES} SET UNLOGGED")
    assert "UNLOGGED" in (await session.look("one:8000", Note())).facts.warnings[0]
    bench.run(f"DROP TABLE {SEQUENCES}")
    with pytest.raises(DatabaseFailed, match="has lost a table"):
        await session.draw([Want("photos", 1)])
    assert await (await bench.open()).sequences(None) == {}
