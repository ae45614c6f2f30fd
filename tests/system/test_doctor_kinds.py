"""`ticketd doctor` on sequences of other kinds than `ticket`: what the databases record, and who serves them."""

import contextlib
import json
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.harness.doctor import doctor, notes, the_one_line, wrong
from tests.harness.pair import Schema
from tests.harness.processes import wait_until
from tests.harness.ticketd import PATIENT, TicketServer

DAY_MS = 86_400_000
TABLES = "_kinds", "_definitions"
KINDS = {
    "likes": {"kind": "instagram", "epoch": 1400000000000, "shards": 2000},
    "messages": {"kind": "snowflake"},
    "events": {"kind": "flake"},
}
LIKES = "kind instagram with epoch 1400000000000, shards 2000"
RECORDED = (
    "records sequences of other kinds: events (kind flake); "
    f"likes ({LIKES}); messages (kind snowflake with epoch 1288834974657)"
)


def serve(databases: str | None, data_dir: Path | None = None) -> TicketServer:
    """A server that has made a sequence of some kinds on both databases, and has drawn from each."""
    server = TicketServer(databases, data_dir=data_dir, settings=PATIENT)
    server.__enter__()
    server.wait_health("pass", 60)
    with ThreadPoolExecutor() as makers:
        made = makers.map(lambda name: server.put(f"/sequence/{name}", json=KINDS[name]).status, KINDS)
        assert set(made) <= {200, 201}
    for name in KINDS:
        for _ in range(2):  # from the one database and from the other
            assert server.get(f"/ticket/{name}?count=10").status == 200
    return server


@pytest.fixture
def schema(fresh_schema: Schema) -> Schema:
    """A schema whose server has ended in good order."""
    server = serve(fresh_schema.urls)
    server.terminate()
    server.__exit__(None, None, None)
    return fresh_schema


def record(schema: Schema, index: int, change: str, *values: str) -> None:
    """Have a database record something else of a sequence, for servers of every release."""
    for table in TABLES:
        schema.execute(index, f"UPDATE {table} SET {change}", list(values))


def names(schema: Schema) -> tuple[str, str]:
    return schema.pair.odd.name, schema.pair.even.name


def put_right(schema: Schema, index: int) -> None:
    """Start a server, which writes to one database what the other one records."""
    with TicketServer(schema.urls, settings=PATIENT) as server:
        server.wait_health("pass", 60)
        wait_until(lambda: schema.execute(index, "SELECT COUNT(*) FROM _kinds") == [(len(KINDS),)], 60, "all kinds")
    assert wrong(doctor(schema.urls)) == []


# -- nothing wrong


def test_what_is_recorded_and_who_serves_is_said(fresh_schema: Schema) -> None:
    server = serve(fresh_schema.urls)
    try:
        ran = doctor(fresh_schema.urls)
        odd, even = names(fresh_schema)
        assert wrong(ran) == []
        assert ran.lines[0].endswith(", 9 sequences")
        assert f"{odd}, {even}: {RECORDED}" in notes(ran)
        assert f"{odd}, {even}: is served by a ticket server of release 0.3.0" in notes(ran)
        server.terminate()
        ran = doctor(fresh_schema.urls)
        assert wrong(ran) == []
        assert not [note for note in notes(ran) if "served by" in note]
    finally:
        server.__exit__(None, None, None)


def test_the_embedded_pair_says_it_too(tmp_path: Path) -> None:
    server = serve(None, tmp_path)
    try:
        ran = doctor(None, data_dir=tmp_path)
        assert wrong(ran) == []
        assert notes(ran)[1:] == [
            f"odd.sqlite3, even.sqlite3: {RECORDED}",
            "odd.sqlite3, even.sqlite3: is served by a ticket server of release 0.3.0",
        ]
        server.terminate()
        with contextlib.closing(sqlite3.connect(tmp_path / "even.sqlite3")) as connection:
            for table in TABLES:
                connection.execute(f"UPDATE {table} SET kind = 'uuid4', parameters = '{{}}' WHERE sequence = 'likes'")
            connection.execute("UPDATE _inner_sequences SET last = 5 WHERE name <> '_1'")
            connection.commit()
        below, differs = wrong(doctor(None, data_dir=tmp_path))
        assert below.startswith("even.sqlite3: likes (_")
        assert "): is below its high-water mark: the next id would be 6, but odd.sqlite3" in below
        assert differs.startswith(f"even.sqlite3: likes: is of kind uuid4 here and of {LIKES} on odd.sqlite3")
    finally:
        server.__exit__(None, None, None)


# -- one thing wrong


def test_definitions_that_contradict_each_other(schema: Schema) -> None:
    parameters = json.dumps({"epoch": 1400000000000, "shards": 1999})
    record(schema, 1, "parameters = %s WHERE sequence = 'likes'", parameters)
    odd, even = names(schema)
    line = the_one_line(schema.urls)
    assert line.startswith(
        f"{even}: likes: is of {LIKES.replace('2000', '1999')} here and of {LIKES} on {odd}: servers serve that one"
    )
    assert "then delete its row from _definitions" in line


def test_a_definition_that_one_lacks(schema: Schema) -> None:
    schema.execute(0, "DELETE FROM _kinds WHERE sequence = 'likes'")
    schema.execute(0, "DELETE FROM _definitions WHERE folded = 'likes'")
    odd, even = names(schema)
    line = the_one_line(schema.urls)
    assert line.startswith(f"{odd}: likes: is not recorded here, but {even} records it as {LIKES}. To fix it: start a")
    put_right(schema, 0)


def test_a_table_of_the_same_name(schema: Schema) -> None:
    schema.execute(0, "CREATE TABLE likes LIKE photos")
    found = wrong(doctor(schema.urls))
    assert any(
        line.startswith(f"{names(schema)[0]}: likes: has a table of plain tickets, but is rec") for line in found
    )


def test_a_kind_of_a_newer_release(schema: Schema) -> None:
    for index in (0, 1):
        record(schema, index, "kind = 'uuid9', parameters = '{}' WHERE sequence = 'events'")
    first, second = wrong(doctor(schema.urls))
    for name, line in zip(names(schema), (first, second), strict=True):
        assert line.startswith(f"{name}: events: is of kind uuid9, which this version of ticketd does not know. To fix")


def test_a_kind_that_ends_soon(schema: Schema) -> None:
    for days, words in ((91, None), (89, "its ids end at 20"), (-1, "its ids have ended at 20")):
        parameters = json.dumps({"epoch": int(time.time() * 1000) + days * DAY_MS - (1 << 40), "shards": 5})
        for index in (0, 1):
            record(schema, index, "parameters = %s WHERE sequence = 'likes'", parameters)
        found = wrong(doctor(schema.urls))
        if words is None:
            assert found == []
        else:
            (line,) = found
            assert line.startswith(f"{names(schema)[0]}: likes: {words}")
            assert "To fix it: use another sequence for new objects" in line


def test_an_own_table_that_is_missing(schema: Schema) -> None:
    even = names(schema)[1]
    for table in ("_kinds", "_servers", "_inner_high_water"):
        schema.execute(1, f"DROP TABLE {table}")
        found = wrong(doctor(schema.urls))
        assert [line for line in found if line.startswith(f"{even}: {table}: is missing. To fix it: GRANT SELECT")]
        put_right(schema, 1)


def test_servers_of_older_releases_are_named(schema: Schema) -> None:
    schema.execute(0, "REPLACE INTO _probe (id, at) VALUES (1, UTC_TIMESTAMP(6))")
    schema.execute(
        1,
        "INSERT INTO _servers (instance, of_release, kinds, probe_interval, at) "
        "VALUES ('ab', '0.2.9', 'ticket,snowflake,flake', 1, UTC_TIMESTAMP(6))",
    )
    odd, even = names(schema)
    first, second = wrong(doctor(schema.urls))
    assert first.startswith(
        f"{odd}: is served by a ticket server of an older release, which does not know sequences of"
    )
    assert second.startswith(f"{even}: is served by a ticket server of release 0.2.9, which does not know sequences of "
                             "kind instagram. To fix it: upgrade that server, or stop it")  # fmt: skip


def test_an_older_server_where_there_are_plain_tickets_alone_is_a_note(fresh_schema: Schema) -> None:
    with TicketServer(fresh_schema.urls, settings=PATIENT) as server:
        server.wait_health("pass", 60)
        server.terminate()
    fresh_schema.execute(0, "REPLACE INTO _probe (id, at) VALUES (1, UTC_TIMESTAMP(6))")
    ran = doctor(fresh_schema.urls)
    assert wrong(ran) == []
    assert f"{names(fresh_schema)[0]}: is served by a ticket server of an older release" in notes(ran)
