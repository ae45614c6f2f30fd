"""The marks that a database keeps for the others: who may write them, and what they are then."""

from dataclasses import replace

import pytest

from app.common.errors import RingChanged, TicketDatabaseUnavailable
from app.common.sequences import TICKET_LIMIT
from app.databases.protocol import Mark
from tests.contract.engines.ledger import RING, kept, witness
from tests.contract.engines.storages import INCREMENT, Storage, on_each_engine

A, B, C = "life-1.t1:a", "life-2.t1:b", "life-3.t1:c"


def mark(high: int, token: str = A, *, issued: int = 0, sequence: str = "photos", offset: int = 2) -> Mark:
    return Mark(sequence, offset, INCREMENT, high, issued, token)


# --- reserving -------------------------------------------------------------------------------------------------------


@on_each_engine
async def test_what_is_reserved_first_is_kept_as_it_is(storage: Storage) -> None:
    database = await witness(storage)
    assert await kept(database) == set()
    rows = [
        mark(10, issued=7),
        mark(0, B, sequence="songs", offset=65_535),
        mark(TICKET_LIMIT, issued=TICKET_LIMIT, offset=1),
    ]
    found = await database.keep(iter(rows), 7)
    assert found == {(row.sequence, row.offset): row for row in rows}
    assert await kept(database) == set(rows)


@on_each_engine
async def test_under_the_same_token_each_number_only_rises(storage: Storage) -> None:
    database = await witness(storage)
    await database.keep([mark(10, issued=7)], 7)
    for expected, then in (
        (mark(30, issued=5), mark(30, issued=7)),
        (mark(20, issued=9), mark(30, issued=9)),
        (mark(1, issued=1), mark(30, issued=9)),
        (mark(31, issued=10), mark(31, issued=10)),
    ):
        assert await database.keep([expected], 7) == {("photos", 2): then}
        assert await kept(database) == {then}


@on_each_engine
async def test_under_another_token_the_row_stays_as_it_is(storage: Storage) -> None:
    database = await witness(storage)
    row, other = mark(10, issued=7), mark(5, sequence="songs")
    await database.keep([row, other], 7)
    for token in (B, A[:-1], A + "a", A.upper()):
        found = await database.keep([mark(99, token, issued=99), mark(6, sequence="songs")], 7)
        assert found == {("photos", 2): row, ("songs", 2): replace(other, mark=6)}
    assert await kept(database) == {row, replace(other, mark=6)}


@on_each_engine
async def test_names_offsets_and_increments_have_rows_of_their_own(storage: Storage) -> None:
    database = await witness(storage)
    rows = [mark(1), mark(2, sequence="Photos"), mark(3, offset=1), replace(mark(4), increment=3)]
    for row in rows:
        assert await database.keep([row], 7) == {(row.sequence, row.offset): row}
    assert set(await database.marks_of_all_rings()) == set(rows)
    assert set(await database.marks()) == set(rows[:3])


@on_each_engine
async def test_more_marks_than_a_statement_or_a_page_holds_are_all_kept(storage: Storage) -> None:
    """In whatever order they are written, and where names differ by case alone."""
    database = await witness(storage)
    names = [f"{letter}{number}" for number in range(300) for letter in "sS"]
    rows = [mark(number, sequence=name, offset=offset) for number, name in enumerate(names) for offset in (2, 1)]
    found = await database.keep(rows, 7)
    assert found == {(row.sequence, row.offset): row for row in rows}
    assert await kept(database) == set(rows)
    new = [replace(row, token=B, mark=row.mark + 1) for row in rows]
    await database.supersede_all(zip(rows, new, strict=True), 7)
    assert await kept(database) == set(new)


# --- superseding ------------------------------------------------------------------------------------------------------


@on_each_engine
async def test_a_replacement_replaces_token_and_mark_and_issued_only_rises(storage: Storage) -> None:
    database = await witness(storage)
    await database.keep([mark(10, issued=7)], 7)
    for old, new, then in (
        (mark(10), mark(20, B, issued=15), mark(20, B, issued=15)),
        (mark(20, B), mark(12, C, issued=3), mark(12, C, issued=15)),
        (mark(99, C), mark(12, A, issued=15), mark(12, A, issued=15)),
    ):
        assert await database.supersede(old, new, 7) == then
        assert await kept(database) == {then}


@on_each_engine
async def test_a_replacement_needs_the_old_token_and_no_mark_above_the_old_one(storage: Storage) -> None:
    database = await witness(storage)
    row, other = mark(10, issued=7), mark(5, sequence="songs")
    await database.keep([row, other], 7)
    for old in (mark(10, B), mark(9), mark(9, B), mark(0), mark(10, A + "a")):
        assert await database.supersede(old, mark(20, C, issued=20), 7) == row
        await database.supersede_all([(old, mark(20, C, issued=20))], 7)
        assert await kept(database) == {row, other}


@on_each_engine
async def test_a_second_replacement_of_the_same_token_finds_what_the_first_left(storage: Storage) -> None:
    one, other = await witness(storage), await storage.client()
    await one.keep([mark(10)], 7)
    assert await one.supersede(mark(10), mark(20, B), 7) == mark(20, B)
    assert await other.supersede(mark(10), mark(30, C), 7) == mark(20, B)
    assert await other.keep([mark(99)], 7) == {("photos", 2): mark(20, B)}
    assert await one.keep([mark(25, B)], 7) == {("photos", 2): mark(25, B)}


@on_each_engine
async def test_many_replacements_are_each_their_own(storage: Storage) -> None:
    database = await witness(storage)
    rows = [mark(10, sequence=name) for name in ("songs", "albums", "photos")]
    await database.keep(rows, 7)
    songs, albums, photos = rows
    await database.supersede_all(
        [
            (songs, replace(songs, token=B, mark=20, issued=20)),
            (replace(albums, token=C), replace(albums, token=B, mark=20)),
            (replace(photos, mark=9), replace(photos, token=B, mark=20)),
        ],
        7,
    )
    assert await kept(database) == {replace(songs, token=B, mark=20, issued=20), albums, photos}


@on_each_engine
async def test_a_row_that_is_gone_is_not_made_by_a_renewal(storage: Storage) -> None:
    database = await witness(storage)
    there = mark(10, sequence="songs")
    await database.keep([there], 7)
    with pytest.raises(TicketDatabaseUnavailable):
        await database.supersede(mark(1), mark(2, B), 7)
    await database.supersede_all([(mark(1), mark(2, B)), (there, replace(there, token=B))], 7)
    assert await kept(database) == {replace(there, token=B)}


# --- what all writes have in common ----------------------------------------------------------------------------------


@on_each_engine
async def test_under_another_number_of_the_ring_nothing_is_kept(storage: Storage) -> None:
    database = await witness(storage)
    row = mark(10)
    await database.keep([row], 7)
    for number in (6, 8, 0):
        with pytest.raises(RingChanged):
            await database.keep([mark(99), mark(99, offset=1)], number)
        with pytest.raises(RingChanged):
            await database.supersede(row, mark(99, B), number)
        with pytest.raises(RingChanged):
            await database.supersede_all([(row, mark(99, B))], number)
        assert await kept(database) == {row}
    await database.record_ring(RING, replace(RING, number=8))
    with pytest.raises(RingChanged):
        await database.keep([mark(99)], 7)
    assert await database.keep([mark(11)], 8) == {("photos", 2): mark(11)}


@on_each_engine
async def test_where_no_ring_is_recorded_nothing_is_kept(storage: Storage) -> None:
    database = await storage.client()
    for number in (0, 1):
        with pytest.raises(RingChanged):
            await database.keep([mark(10)], number)
        with pytest.raises(RingChanged):
            await database.supersede(mark(10), mark(20, B), number)
        with pytest.raises(RingChanged):
            await database.supersede_all([(mark(10), mark(20, B))], number)
    assert await kept(database) == set()


@on_each_engine
async def test_of_a_database_outside_the_ring_the_marks_can_be_read(storage: Storage) -> None:
    """Its server may draw with another increment; the marks are those of the increment that is asked about."""
    database, other = await witness(storage), await storage.client(increment=3)
    row, of_other = mark(10), replace(mark(20), increment=3, offset=3)
    await database.keep([row, of_other], 7)
    assert await other.marks() == await other.marks(3600) == [of_other]
    assert await database.marks() == await database.marks(3600) == [row]
    for client in (database, other):
        assert set(await client.marks_of_all_rings()) == {row, of_other}


@on_each_engine
async def test_marks_that_changed_lately_are_among_those_asked_for(storage: Storage) -> None:
    database = await witness(storage)
    first, second = mark(10), mark(10, sequence="songs")
    await database.keep([first, second], 7)
    assert set(await database.marks(60)) == {first, second}
    await database.supersede(first, mark(20, B), 7)
    assert mark(20, B) in await database.marks(60)
    await database.supersede_all([(second, replace(second, token=C))], 7)
    assert replace(second, token=C) in await database.marks(60)


@on_each_engine
async def test_what_was_written_is_committed(storage: Storage) -> None:
    database = await witness(storage)
    rows = [mark(10), mark(10, sequence="songs"), mark(10, sequence="albums")]
    await database.keep(rows, 7)
    await database.supersede(rows[1], replace(rows[1], token=B), 7)
    await database.supersede_all([(rows[2], replace(rows[2], token=C))], 7)
    then = {rows[0], replace(rows[1], token=B), replace(rows[2], token=C)}
    assert await kept(await storage.client()) == then
    await storage.close(database)
    assert await kept(await storage.client()) == then


@on_each_engine
async def test_a_database_keeps_its_marks_for_itself(storage: Storage) -> None:
    database, beside = await witness(storage), await storage.client(2)
    await database.keep([mark(10)], 7)
    assert await kept(beside) == set()
