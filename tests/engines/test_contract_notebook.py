"""What every engine's session promises about the notebook: reads, conditional writes and marks."""

import asyncio

from app.databases.session import LARGEST_ID, Book, Mark, Marked, Note, Session, Write
from tests.engines.bench import Bench, record

MARKS = Book.MARKS
NOTE = Note(7, 5, "life birth word", True, '{"kind": "ticket"}')
DIFFERENT = [
    *(NOTE._replace(high=8), NOTE._replace(issued=0), NOTE._replace(sure=False)),
    *(NOTE._replace(tenure=tenure) for tenure in (None, "", "life birth Word", "life birth word ")),
    *(NOTE._replace(text=text) for text in ("", NOTE.text + " ", NOTE.text.upper())),
]


async def put(session: Session, rows: dict[str, Note], book: Book = MARKS) -> None:
    """Insert rows."""
    assert all(await session.write([Write(book, name, None, note) for name, note in rows.items()], None))


async def test_a_row_is_inserted_where_there_is_none_and_kept_exactly(bench: Bench) -> None:
    session, other = await bench.open(None), await bench.open(None)
    awkward = "\"ä\\ %s %(x)s {0} $1 :x ? '` 🎫".ljust(4000, "x")
    rows = {
        "n" * 80: Note(),
        "photos/1": Note(LARGEST_ID, LARGEST_ID, "", True, awkward),
        "host.example:8000": Note(tenure="t" * 200),
        "[fe80::1%eth0]:8000": NOTE,
    }
    for number, book in enumerate(Book):
        await put(session, {name: note._replace(issued=number) for name, note in rows.items()}, book)
    for number, book in enumerate(Book):
        found = await other.read(book, [*rows, "absent"])
        assert found == {name: note._replace(issued=number) for name, note in rows.items()}
    assert await session.write([Write(MARKS, name, None, NOTE) for name in rows], None) == [False] * len(rows)
    assert (await other.read(MARKS, list(rows)))["n" * 80] == Note()
    assert (await session.read(MARKS, []), await session.write([], None)) == ({}, [])


async def test_a_row_is_replaced_or_deleted_only_where_it_is_exactly_what_was_read(bench: Bench) -> None:
    session = await bench.open(None)
    for number, different in enumerate(DIFFERENT):
        name = f"{number}"
        await put(session, {name: NOTE})
        for wrong in (Write(MARKS, name, different, Note(9)), Write(MARKS, name, different, None)):
            assert await session.write([wrong, Write(MARKS, "absent", NOTE, wrong.new)], None) == [False] * 2
        assert await session.read(MARKS, [name, "absent"]) == {name: NOTE}
        for old, new in ((NOTE, different), (different, different)):
            assert await session.write([Write(MARKS, name, old, new)], None) == [True]
            assert await session.read(MARKS, [name]) == {name: different}
        assert await session.write([Write(MARKS, name, different, None)], None) == [True]
        assert await session.read(MARKS, [name]) == {}


async def test_a_write_names_the_number_of_the_ring_or_none_and_one_that_is_refused_concerns_no_other(
    bench: Bench,
) -> None:
    session = await bench.open(None)
    insert = [Write(MARKS, "a", None, NOTE)]
    assert await session.write(insert, "1.word") == [False]
    assert await session.write(insert, "") == [True]  # there is no record yet
    ring = await record(session, "1.word")
    for stamp in ("", "1.wore", "1.Word", "1.word ", "11.word"):
        assert await session.write([Write(MARKS, "a", NOTE, None), Write(MARKS, "b", None, NOTE)], stamp) == [False] * 2
    assert await session.read(MARKS, ["a", "b"]) == {"a": NOTE}
    await put(session, {"c": NOTE})
    await put(session, {"a": Note(3)}, Book.FLOORS)
    writes = [Write(MARKS, name, NOTE, Note(1)) for name in "ab"] + [Write(Book.FLOORS, "a", Note(3), None)]
    writes += [Write(MARKS, name, None, Note(1)) for name in "cd"]
    assert await session.write(writes, "1.word") == [True, False, True, False, True]
    assert await session.read(MARKS, list("abcd")) == {"a": Note(1), "c": NOTE, "d": Note(1)}
    assert await session.read(Book.FLOORS, ["a"]) == {}
    assert await session.write([Write(MARKS, "a", Note(1), Note(2))], None) == [True]
    assert await session.read_ring() == ring


async def test_a_mark_only_raises(bench: Bench) -> None:
    session, other = await bench.open(None), await bench.open(None)
    await record(session, "1.word")
    await put(session, {"a/1": Note(10, 5, "mine", False, "text")})
    for mark, high, issued, sure in (
        (Mark("a/1", "mine", 20, 3, False), 20, 5, False),
        (Mark("a/1", "mine", 15, 15, True), 20, 15, True),
        (Mark("a/1", "mine", 20, 15, False), 20, 15, True),
        (Mark("a/1", "mine", LARGEST_ID, LARGEST_ID, False), LARGEST_ID, LARGEST_ID, True),
    ):
        assert await session.mark([mark], "1.word") == [Marked.DONE]
        assert await other.read(MARKS, ["a/1"]) == {"a/1": Note(high, issued, "mine", sure, "text")}


async def test_a_mark_is_refused_under_another_tenure_or_number_and_where_there_is_no_row(bench: Bench) -> None:
    session, done, refused = await bench.open(None), Marked.DONE, Marked.TENURE
    rows = {name: Note(1, 0, tenure) for name, tenure in (("a", "mine"), ("b", "Mine"), ("c", None), ("d", "mine"))}
    await put(session, rows)
    marks = [Mark(name, "mine", 5, 5, True) for name in ("a", "b", "c", "absent", "d")]
    assert await session.mark(marks, "1.word") == [Marked.RING] * 5
    await record(session, "1.word")
    assert await session.mark(marks, "2.word") == [Marked.RING] * 5
    assert await session.read(MARKS, list(rows)) == rows
    assert await session.mark(marks, "1.word") == [done, refused, refused, refused, done]
    raised = Note(5, 5, "mine", True)
    assert await session.read(MARKS, [*rows, "absent"]) == rows | {"a": raised, "d": raised}
    assert await session.mark([Mark("a", "mine ", 9, 9, True), Mark("c", "", 9, 9, True)], "1.word") == [refused] * 2
    assert await session.mark([], "1.word") == []


async def test_many_rows_fit_in_one_call_and_a_row_may_be_marked_twice(bench: Bench) -> None:
    session = await bench.open(None)
    await record(session, "1.word")
    names = [f"{'s' * 64}/{number}" for number in range(1000)]
    await put(session, {name: Note(1, 1, "t", False, "x" * 50) for name in names})
    marks = [Mark(name, "t", number, 0, False) for number, name in enumerate(names)]
    assert await session.mark([*marks, Mark(names[1], "t", 5, 5, True)], "1.word") == [Marked.DONE] * 1001
    found = await session.read(MARKS, names)
    assert [found[name].high for name in names] == [1, 5, *range(2, 1000)]
    assert found[names[1]].sure


async def test_pages_follow_the_order_of_bytes(bench: Bench) -> None:
    session = await bench.open(None)
    names = sorted(["B", "Z/1", "_x", "a", "a-1", "a/1", "a/10", "a/2", "a_b/1", "aa/1", "b", "host:1", "~"])
    await put(session, {name: NOTE._replace(high=number) for number, name in reversed(list(enumerate(names)))})
    await put(session, {"other": NOTE}, Book.FLOORS)
    for count in (1, 4, 13, 1000):
        after, found = "", []
        while page := await session.page(MARKS, after, count):
            assert len(page) <= count
            found += page
            after = page[-1][0]
        assert found == [(name, NOTE._replace(high=number)) for number, name in enumerate(names)]
    assert await session.page(Book.COUNTS, "", 10) == []


async def test_of_two_writes_of_a_row_at_the_same_moment_the_first_decides(bench: Bench) -> None:
    one_side, other_side = await bench.open(None), await bench.open(None)
    rows: dict[str, Note | None] = dict.fromkeys("abc")
    for number in range(1, 41):
        ours = [Write(MARKS, name, old, Note(number, tenure="ours")) for name, old in rows.items()]
        theirs = [Write(MARKS, name, old, Note(number, tenure="theirs")) for name, old in reversed(rows.items())]
        first, second = await asyncio.gather(one_side.write(ours, None), other_side.write(theirs, None))
        assert [a != b for a, b in zip(first, reversed(second), strict=True)] == [True] * 3
        found = await one_side.read(MARKS, list(rows))
        assert [found[name].tenure == "ours" for name in rows] == first
        rows = {name: found[name] for name in rows}
        if number % 5 == 0:
            assert all(await one_side.write([Write(MARKS, name, old, None) for name, old in rows.items()], None))
            rows = dict.fromkeys(rows)
