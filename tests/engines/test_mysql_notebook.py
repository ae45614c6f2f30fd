"""The locks of the notebook on MySQL and MariaDB."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from app.databases.mysql import notebook
from app.databases.mysql.session import MySQLSession
from app.databases.session import Book, Mark, Marked, Note, Write
from app.errors import DatabaseFailed
from tests.engines.mysql_bench import MySQLBench, mysql_bench, record
from tests.servers import engines
from tests.servers_shared import FreshDatabase, SharedServers

NOTE = Note(1, 1, "t")
MARK = Mark("a", "t", 5, 5, True)
WRITES = {
    "update": Write(Book.MARKS, "a", NOTE, Note(7)),
    "delete": Write(Book.MARKS, "a", NOTE, None),
    "insert": Write(Book.MARKS, "b", None, Note(7)),
}
LEVELS = ["READ COMMITTED", "REPEATABLE READ"]


@pytest.fixture(params=engines("mariadb", "mysql"))
async def bench(
    request: pytest.FixtureRequest, fresh_database: FreshDatabase, shared_servers: SharedServers
) -> AsyncIterator[MySQLBench]:
    """An empty database on MySQL and on MariaDB."""
    async with mysql_bench(request.param, fresh_database, shared_servers) as made:
        yield made


async def opened(bench: MySQLBench, level: str, seconds: float = 20) -> MySQLSession:
    """Open a session with this isolation."""
    session = await bench.open(None, seconds)
    await session._line.run([f"SET SESSION TRANSACTION ISOLATION LEVEL {level}"])
    return session


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("what", ["mark", *WRITES])
async def test_a_change_of_the_record_waits_for_a_mark_or_write_under_way(
    bench: MySQLBench, what: str, level: str
) -> None:
    session, writer = await opened(bench, level), await opened(bench, level)
    mariadb = session._line.mariadb
    ring = await record(session, "1.word")
    await session.write([Write(Book.MARKS, "a", None, NOTE)], None)
    if what == "mark":
        statement = notebook.of_mark(MARK, "1.word", mariadb=mariadb)
    else:
        statement = notebook.of_write(WRITES[what], "1.word", mariadb=mariadb)
    results = await writer._line.run(["BEGIN", statement])
    assert results[-1].affected == 1
    change = asyncio.create_task(session.write_ring(ring, ring._replace(stamp="2.word")))
    assert not (await asyncio.wait({change}, timeout=0.3))[0]
    await writer._line.run(["COMMIT"])
    assert await change


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("what", ["mark", *WRITES])
async def test_a_mark_or_write_waits_for_a_change_of_the_record_and_is_refused(
    bench: MySQLBench, what: str, level: str
) -> None:
    session, changer = await opened(bench, level), await opened(bench, level)
    ring = await record(session, "1.word")
    await session.write([Write(Book.MARKS, "a", None, NOTE)], None)
    await session.read(Book.MARKS, ["a"])
    await changer._line.run(["BEGIN", notebook.of_ring(ring, ring._replace(stamp="2.word"))])
    if what == "mark":
        task = asyncio.ensure_future(session.mark([MARK, MARK], "1.word"))
        refused: object = [Marked.RING] * 2
    else:
        task = asyncio.ensure_future(session.write([WRITES[what], WRITES[what]], "1.word"))  # type: ignore[arg-type]
        refused = [False] * 2
    assert not (await asyncio.wait({task}, timeout=0.3))[0]
    await changer._line.run(["COMMIT"])
    assert await task == refused
    assert await session.read(Book.MARKS, ["a", "b"]) == {"a": NOTE}


async def test_a_mark_that_waited_too_long_for_a_lock_is_sent_again_as_a_whole(bench: MySQLBench) -> None:
    session, other = await opened(bench, LEVELS[1], seconds=1), await opened(bench, LEVELS[1])
    await record(session, "1.word")
    await session.write([Write(Book.MARKS, name, None, NOTE) for name in ("a", "b")], None)
    lock = "SELECT * FROM _ticket_notes WHERE book = 'marks' AND name = 'b' FOR UPDATE"
    await other._line.run(["BEGIN", lock])
    task = asyncio.create_task(session.mark([MARK, MARK._replace(name="b")], "1.word"))
    await asyncio.sleep(1.2)
    await other._line.run(["COMMIT"])
    assert await task == [Marked.DONE] * 2
    await other._line.run(["BEGIN", lock])
    with pytest.raises(DatabaseFailed, match="lock"):
        await session.mark([MARK._replace(limit=9), MARK._replace(name="b")], "1.word")
    await other._line.run(["COMMIT"])
    assert (await other.read(Book.MARKS, ["a"]))["a"].high == 5
    with contextlib.suppress(DatabaseFailed):
        await session.read_ring()
        pytest.fail("the session is still open")


async def test_what_a_column_cannot_keep_exactly_is_not_written(bench: MySQLBench) -> None:
    for name, note in (
        ("a ", NOTE),
        ("", NOTE),
        ("n" * 81, NOTE),
        ("ä", NOTE),
        ("a", NOTE._replace(tenure="t" * 201)),
        ("a", NOTE._replace(tenure="ä")),
        ("a", NOTE._replace(text="x" * 4001)),
        ("a", NOTE._replace(text="\ud800")),
    ):
        session = await bench.open(None)
        with pytest.raises(DatabaseFailed, match="cannot keep"):
            await session.write([Write(Book.MARKS, name, None, note)], None)
    assert await session.page(Book.MARKS, "", 10) == []
