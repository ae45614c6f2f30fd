"""The locks of the notebook on MySQL and MariaDB."""

import asyncio
from collections.abc import Awaitable

import pytest

from app.databases.mysql.login import Result
from app.databases.mysql.session import of_mark, of_ring, of_write
from app.databases.session import Book, Mark, Marked, Note, Write
from app.errors import DatabaseFailed
from tests.engines.bench import BOTH, Bench, line_of, record

NOTE = Note(1, 1, "t")
MARK = Mark("a", "t", 5, 5, True)
CHANGES: dict[str, Mark | Write] = {
    "mark": MARK,
    "update": Write(Book.MARKS, "a", NOTE, Note(7)),
    "delete": Write(Book.MARKS, "a", NOTE, None),
    "insert": Write(Book.MARKS, "b", None, Note(7)),
}

pytestmark = BOTH


@pytest.mark.parametrize("what", CHANGES)
async def test_a_mark_or_write_and_a_change_of_the_record_never_pass_each_other(bench: Bench, what: str) -> None:
    session, other, change = await bench.open(None, 20), line_of(await bench.open(None, 20)), CHANGES[what]
    ring = await record(session, "1.word")
    await session.write([Write(Book.MARKS, "a", None, NOTE)], None)

    async def after(ending: str, call: Awaitable[object]) -> object:
        """Return what a call finds that waits until the other session ends its transaction."""
        task = asyncio.ensure_future(call)
        assert not (await asyncio.wait({task}, timeout=0.3))[0]
        await other.step(ending)
        return await task

    statement = of_mark(change, "1.word") if isinstance(change, Mark) else of_write(change, "1.word")
    assert (await other.run(["BEGIN", statement]))[-1].affected == 1
    assert await after("ROLLBACK", session.write_ring(ring, ring._replace(stamp="2.word"))) is True
    ring = await session.read_ring()
    await other.run(["BEGIN", of_ring(ring, ring._replace(stamp="3.word"))])
    send, refused = (session.mark, Marked.RING) if isinstance(change, Mark) else (session.write, False)
    assert await after("COMMIT", send([change] * 2, "2.word")) == [refused] * 2  # type: ignore[list-item]
    assert await session.read(Book.MARKS, ["a", "b"]) == {"a": NOTE}


async def test_a_mark_that_waited_too_long_for_a_lock_is_sent_again_as_a_whole(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, holder = await bench.open(None, 1), line_of(await bench.open(None, 20))
    line = line_of(session)
    await record(session, "1.word")
    await session.write([Write(Book.MARKS, name, None, NOTE) for name in ("a", "b")], None)
    send, packets = line.run, list[list[str]]()

    async def watch(packet: list[str]) -> list[Result]:
        packets.append(packet)
        if len(packets) == 2:  # it was rolled back
            await holder.step("COMMIT")
        return await send(packet)

    monkeypatch.setattr(line, "run", watch)
    await holder.run(["BEGIN", "SELECT * FROM _ticket_notes WHERE book = 'marks' AND name = 'b' FOR UPDATE"])
    assert await session.mark([MARK, MARK._replace(name="b")], "1.word") == [Marked.DONE] * 2
    assert len(packets) == 3


async def test_what_a_column_cannot_keep_exactly_is_not_written(bench: Bench) -> None:
    session = await bench.open(None)
    for name, note in (
        *((name, NOTE) for name in ("a ", "", "n" * 81, "ä")),
        *(("a", NOTE._replace(tenure=tenure)) for tenure in ("t" * 201, "ä")),
        *(("a", NOTE._replace(text=text)) for text in ("x" * 4001, "\ud800")),
    ):
        with pytest.raises(DatabaseFailed, match=r"cannot keep|protocol"):
            await session.write([Write(Book.MARKS, name, None, note)], None)
    assert await session.page(Book.MARKS, "", 10) == []
