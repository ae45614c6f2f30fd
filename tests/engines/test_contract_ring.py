"""What every engine's session promises about the ring row, looks and the facts of a server."""

import asyncio
import random

import pytest

from app.databases.session import Book, Mark, Marked, Note, RingRow, Write
from app.errors import DatabaseFailed
from tests.engines.bench import ODD, Bench, record
from tests.fakes.session import FakeSession
from tests.servers import engines


async def test_sessions_that_make_the_own_tables_at_the_same_moment_agree_on_the_body(bench: Bench) -> None:
    for _ in range(3):
        sessions = await asyncio.gather(*(bench.open(ODD) for _ in range(4)))
        (ring,) = {await session.read_ring() for session in sessions}
        assert ring == RingRow(ring.body, 0, "", "")
        assert len(ring.body) >= 8
        assert len({session.facts.births for session in sessions}) == 1
        for session in sessions:
            session.abort()
        bench.do("forget")


async def test_the_ring_row_is_replaced_only_where_it_is_exactly_what_was_read(bench: Bench) -> None:
    session, other = await bench.open(None), await bench.open(None)
    old = await session.read_ring()
    new = RingRow(old.body, 65_535, "3.word", '{"bodies": "' + "ö" * 20_000 + '"}')
    assert await session.write_ring(old, new)
    newer = RingRow(old.body, 1, "4.word", "{}")
    stamps = [new._replace(stamp=stamp) for stamp in ("3.Word", "3.word ", "")]
    for read in [old, *stamps, new._replace(offset=1), new._replace(text="{}"), new._replace(body="another")]:
        assert not await other.write_ring(read, newer)
    assert await other.read_ring() == new
    assert await other.write_ring(new, new)  # the same value again
    assert await other.write_ring(new, newer)
    assert await session.read_ring() == newer


async def test_of_two_changes_of_the_ring_row_at_the_same_moment_one_is_made(bench: Bench) -> None:
    sessions = [await bench.open(None), await bench.open(None)]
    ring = await sessions[0].read_ring()
    for number in range(1, 31):
        wanted = [ring._replace(offset=side, stamp=f"{number}.{side}", text=f"{side}") for side in (1, 2)]
        made = await asyncio.gather(*(each.write_ring(ring, new) for each, new in zip(sessions, wanted, strict=True)))
        assert sorted(made) == [False, True]
        ring = wanted[made.index(True)]
        assert await sessions[0].read_ring() == ring


@pytest.mark.parametrize("by", ["mark", "write"])
async def test_a_mark_or_write_and_a_change_of_the_record_never_pass_each_other(bench: Bench, by: str) -> None:
    """What was done under the old stamp is seen by a read that begins after the record has changed."""
    marker, changer = await bench.open(None), await bench.open(None)
    ring = await record(changer, "0.word")
    names = [f"a/{number}" for number in range(20)]
    notes = dict.fromkeys(names, Note(0, 0, "t"))
    assert all(await changer.write([Write(Book.MARKS, name, None, notes[name]) for name in names], None))

    async def raise_all(limit: int, delay: float, stamp: str) -> dict[str, bool]:
        """Raise all rows, or replace them and insert another one; return what was done, by the names of the rows."""
        await asyncio.sleep(delay)
        if by == "mark":
            marked = await marker.mark([Mark(name, "t", limit, 0, False) for name in names], stamp)
            assert set(marked) <= {Marked.DONE, Marked.RING}
            return {name: each is Marked.DONE for name, each in zip(names, marked, strict=True)}
        rows = [*names, f"new/{limit}"]
        new = [Write(Book.MARKS, name, notes.get(name), Note(limit, 0, "t")) for name in rows]
        return dict(zip(rows, await marker.write(new, stamp), strict=True))

    async def change(new: RingRow, delay: float) -> dict[str, Note]:
        await asyncio.sleep(delay)
        assert await changer.write_ring(ring, new)
        return await changer.read(Book.MARKS, [*names, f"new/{number}"])

    counts = {True: 0, False: 0}
    lead = 0.0  # seconds by which the change is ahead; it follows the result, so that both orders stay as frequent
    for number in range(1, 121):
        new = ring._replace(stamp=f"{number}.word")
        delays = max(0.0, lead), max(0.0, -lead) + random.random() * 0.001
        raised, seen = await asyncio.gather(raise_all(number, delays[0], ring.stamp), change(new, delays[1]))
        assert all(seen[name].high == number for name, done in raised.items() if done)
        lead += 0.0003 if all(raised.values()) else -0.0003
        ring, notes = new, await changer.read(Book.MARKS, list(raised))
        for name, done in raised.items():
            assert (name in notes and notes[name].high == number) == done
            counts[done] += 1
    assert min(counts.values()) > 20, "one order never came about"


@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [
        ("UPDATE _ticket_ring SET stamp = '2.word'", "SELECT 1"),
        ("UPDATE _ticket_ring SET ring_offset = 2", "UPDATE _ticket_notes SET tenure = NULL WHERE name = 'a'"),
        ("DELETE FROM _ticket_notes", "SELECT 1"),
    ],
)
@pytest.mark.parametrize("bench", engines("mariadb", "mysql", "postgresql"), indirect=True)
async def test_what_waited_for_a_lock_is_judged_by_the_newest_rows(bench: Bench, before: str, meanwhile: str) -> None:
    session, other, old = await bench.open(None, 20), await bench.open(None, 20), Note(1, tenure="t")
    await record(session, "1.word")
    assert await session.write([Write(Book.MARKS, "a", None, old)], None) == [True]
    with bench.transaction(before) as change:
        mark = asyncio.create_task(session.mark([Mark("a", "t", 9, 0, False)], "1.word"))
        write = asyncio.create_task(other.write([Write(Book.MARKS, "a", old, Note(9, tenure="t"))], "1.word"))
        assert not (await asyncio.wait([mark, write], timeout=0.3))[0]
        bench.run(meanwhile)
        change.execute("COMMIT")
        assert (await mark)[0] in (Marked.RING, Marked.TENURE)
        assert await write == [False]
    assert all(note.high == 1 for note in (await session.read(Book.MARKS, ["a"])).values())


async def test_a_look_writes_the_heartbeat_and_reads_everything(bench: Bench) -> None:
    session, other = await bench.open(None), await bench.open(ODD)
    beats = {"one:8000": Note(1, text='{"lives": []}'), "two:8000": Note(2, 3, "t", True, "{}")}
    look = await session.look("one:8000", Note(5))
    assert (look.life, look.floors_number, look.ring) == (None, 0, await session.read_ring())
    assert dict(look.heartbeats) == {"one:8000": Note(5)}
    ring, life = await record(other, "1.word"), Note(tenure="word")
    writes = [Write(Book.LIVES, other.facts.machine, None, life), Write(Book.LIVES, "another", None, Note(1))]
    assert all(await other.write([*writes, Write(Book.COUNTS, "floors", None, Note(12))], None))
    await session.look("one:8000", beats["one:8000"])
    look = await other.look("two:8000", beats["two:8000"])
    assert dict(look.heartbeats) == beats
    assert (look.ring, look.life, look.floors_number) == (ring, life, 12)
    assert look.facts.version
    for facts in (session.facts, other.facts, look.facts):
        assert (facts.machine, facts.births) == (look.facts.machine, look.facts.births)
        assert abs(facts.started - look.facts.started) <= 2
        assert facts.started <= facts.now + 2


async def test_own_tables_made_anew_have_another_birth(bench: Bench) -> None:
    session = await bench.open(ODD)
    body, births = (await session.read_ring()).body, {session.facts.births}
    if bench.has_locks:
        await asyncio.sleep(bench.tick)
        bench.do("read_back")
        births |= {(await session.look("one:8000", Note())).facts.births, (await bench.open(ODD)).facts.births}
        assert len(births) == 2
        assert (await session.read_ring()).body == body
    bench.do("forget")
    if not isinstance(session, FakeSession):
        with pytest.raises(DatabaseFailed):
            await session.look("one:8000", Note())
    session = await bench.open(ODD)
    assert session.facts.births not in births
    assert (await session.read_ring()).body != body
