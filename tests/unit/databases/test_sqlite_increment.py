"""The embedded pair while its increment changes: positions, and two processes of which one knows the old increment."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from app.common.errors import ColumnExhausted
from app.databases.protocol import RingRecord, RingState
from app.databases.sqlite.database import SQLiteDatabase
from app.tickets.agreement.changes import change_ring
from app.tickets.agreement.record import begun
from tests.contract.engines.storages import take

RING = RingRecord(1, 2, 1, (1, 2), own=1)
GROWN = RingRecord(2, 3, 2, (1, 2), own=1)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Callable[[int, int], SQLiteDatabase]]:
    opened: list[SQLiteDatabase] = []

    def one(offset: int, increment: int) -> SQLiteDatabase:
        opened.append(SQLiteDatabase(tmp_path / f"{offset}.sqlite3", offset, increment, timeout=5.0))
        return opened[-1]

    yield one
    for each in opened:
        await each.close()


async def drawn(database: SQLiteDatabase, times: int) -> list[int]:
    await database.probe()
    table = (await database.tables(["photos"]))["photos"]
    record = await database.recorded_ring()
    ring = 0 if record is None else record.number
    return [(await take(database, table, 1, 0, ring=ring)).first for _ in range(times)]


async def test_a_position_is_never_below_what_was_drawn_under_another_increment(
    database: Callable[[int, int], SQLiteDatabase],
) -> None:
    odd = database(1, 2)
    assert (await drawn(odd, 6))[-1] == 11
    assert await odd.record_ring(None, RING) == RING
    odd.use_increment(3)
    await odd.record_ring(RING, GROWN)
    table = (await odd.tables(["photos"]))["photos"]
    position = await odd.position(table.sequence)
    assert position.next_id > 11
    assert (await odd.position("photos")).next_id > 11
    assert await drawn(odd, 1) == [13]


async def test_growth_of_a_pair_that_kept_no_marks_issues_nothing_twice(
    database: Callable[[int, int], SQLiteDatabase],
) -> None:
    odd, even = database(1, 2), database(2, 2)
    before = await drawn(odd, 6) + await drawn(even, 2)
    change = begun([RING], 3, (1, 2), RingState.GROWING)
    await change_ring({odd: None, even: None}, change)
    after = await drawn(odd, 5) + await drawn(even, 5)
    assert not set(before) & set(after)
    assert {id_ % 3 for id_ in after} == {1, 2}


async def test_a_late_draw_with_the_old_increment_does_not_move_the_others_off_their_residue(
    database: Callable[[int, int], SQLiteDatabase],
) -> None:
    new, late = database(1, 2), database(1, 2)
    ids = await drawn(new, 1) + await drawn(late, 1)
    await new.record_ring(None, RING)
    new.use_increment(3)
    await new.record_ring(RING, GROWN)
    ids += await drawn(late, 1)
    after = await drawn(new, 3)
    assert {id_ % 3 for id_ in after} == {1}
    assert min(after) > max(ids)


async def test_a_sequence_off_its_residue_ends_with_the_last_id_that_there_is(
    database: Callable[[int, int], SQLiteDatabase],
) -> None:
    odd = database(1, 2)
    await odd.probe()
    table = (await odd.tables(["photos"]))["photos"]
    odd.use_increment(7)
    await odd.advance({"photos": table.ceiling - 20})
    odd.use_increment(2)
    left = (table.ceiling - (await odd.position(table.sequence)).next_id) // 2 + 1
    ids = [(await take(odd, table, 1, 0)).first for _ in range(left)]
    assert ids[-1] == table.ceiling == 2**63 - 1
    with pytest.raises(ColumnExhausted):
        await take(odd, table, 1, 0)
    with pytest.raises(ColumnExhausted):
        await take(odd, table, 3, 0)
