"""Several clients of one database at the same time: nobody gets what another one got, and one of them wins."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import ParamSpec, TypeVar

from app.common.errors import RingChanged, TicketDatabaseBusy
from app.common.sequences import Width
from app.databases.protocol import Draw, Drawn, Mark, RingRecord, Table, TicketDatabase
from tests.contract.engines.storages import INCREMENT, Storage, made, on_each_engine, residue_of, take

P = ParamSpec("P")
T = TypeVar("T")

RING = RingRecord(1, INCREMENT, 1, (1, 2), own=1)
OLD = Mark("photos", 2, INCREMENT, 10, 7, "life.t1:old")
CLIENTS = 4


async def patiently(attempt: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a ticket server does with a database that is well and did not serve an attempt: it makes another one."""
    while True:
        try:
            return await attempt(*args, **kwargs)
        except TicketDatabaseBusy:
            await asyncio.sleep(0.01)


async def clients_of(storage: Storage, offset: int = 1) -> list[TicketDatabase]:
    return [await storage.client(offset) for _ in range(CLIENTS)]


def ids_of(draws: Sequence[Draw]) -> list[int]:
    return [draw.first + number * draw.step for draw in draws for number in range(draw.size)]


async def draw_again_and_again(client: TicketDatabase, table: Table, counts: Sequence[int]) -> list[Draw]:
    """One draw after another; each is above the one before."""
    drawn: list[Draw] = []
    for count in counts:
        highest = drawn[-1].last if drawn else 0
        draw = await patiently(take, client, table, count, highest)
        assert (draw.size, draw.step) == (count, INCREMENT)
        assert draw.first > highest
        drawn.append(draw)
    return drawn


@on_each_engine
async def test_draws_of_several_clients_give_nothing_twice(storage: Storage) -> None:
    for offset in (1, 2):
        clients = await clients_of(storage, offset)
        table = await made(clients[0])
        counts = [1, 2, 300, 1, 64, 65, 1, 1000, 3, 1] * 2
        drawing = [draw_again_and_again(client, table, counts[n:] + counts[:n]) for n, client in enumerate(clients * 2)]
        drawn = [draw for draws in await asyncio.gather(*drawing) for draw in draws]
        ids = ids_of(drawn)
        assert len(ids) == len(set(ids)) == 2 * CLIENTS * sum(counts)
        assert {id_ % INCREMENT for id_ in ids} == {offset % INCREMENT}
        assert (await clients[0].position(table.sequence)).next_id > max(ids)


@on_each_engine
async def test_started_draws_and_others_of_several_clients_give_nothing_twice(storage: Storage) -> None:
    clients = await clients_of(storage)
    table = await made(clients[0])
    drawn = [await patiently(take, client, table, 1, 0) for client in clients]

    async def started(client: TicketDatabase) -> Drawn:
        came: asyncio.Future[Drawn] = asyncio.get_running_loop().create_future()
        client.start_draw(residue_of(client), table, 2, 0, came.set_result)
        return await came

    for _ in range(10):
        both = [started(client) for client in clients] + [patiently(take, client, table, 1, 0) for client in clients]
        for came in await asyncio.gather(*both):
            if isinstance(came, Draw):
                drawn.append(came)
            else:
                assert isinstance(came, TicketDatabaseBusy)
    ids = ids_of(drawn)
    assert len(ids) == len(set(ids)) > 10 * CLIENTS


@on_each_engine
async def test_several_sequences_are_drawn_from_side_by_side(storage: Storage) -> None:
    clients = await clients_of(storage)
    tables = [await made(clients[0], name) for name in ("songs", "albums", "bands")]
    drawing = [draw_again_and_again(client, table, [1, 2, 100, 1]) for client in clients for table in tables]
    drawn = await asyncio.gather(*drawing)
    for number in range(len(tables)):
        ids = ids_of([draw for draws in drawn[number :: len(tables)] for draw in draws])
        assert len(ids) == len(set(ids)) == CLIENTS * 104


@on_each_engine
async def test_no_ticket_at_or_below_comes_after_a_raise_has_returned(storage: Storage) -> None:
    clients = await clients_of(storage)
    table, other = await made(clients[0], "songs"), await made(clients[0], "albums")
    raised = {"songs": 0, "albums": 0}
    drawn: list[Draw] = []
    enough = asyncio.Event()

    async def draw(client: TicketDatabase, table: Table, counts: Sequence[int]) -> None:
        number = 0
        while not enough.is_set():
            floor, highest = raised[table.sequence], drawn[-1].last if drawn and table.sequence == "songs" else 0
            came = await patiently(take, client, table, counts[number % len(counts)], highest if number % 2 else 0)
            assert came.first > floor
            if table.sequence == "songs":
                drawn.append(came)
            number += 1

    async def advance(client: TicketDatabase, step: int) -> None:
        for _ in range(10):
            above = max((draw.last for draw in drawn), default=0) + step
            await patiently(client.advance, {table.sequence: above})
            raised["songs"] = max(raised["songs"], above)
            await patiently(client.advance, {"songs": above - 7, "albums": above})
            raised["albums"] = max(raised["albums"], above)

    drawing = [
        asyncio.ensure_future(draw(clients[0], table, [1])),
        asyncio.ensure_future(draw(clients[1], table, [1, 3, 64])),
        asyncio.ensure_future(draw(clients[2], other, [1, 2])),
    ]
    await asyncio.gather(advance(clients[2], 1000), advance(clients[3], 500))
    enough.set()
    await asyncio.gather(*drawing)
    ids = ids_of(drawn)
    assert len(ids) == len(set(ids))


@on_each_engine
async def test_of_several_that_make_a_table_one_does(storage: Storage) -> None:
    clients = await clients_of(storage)
    for number in range(3):
        name = f"s{number}"
        starts = [101, 1001, 10_001, 100_001]
        widths = [Width.INT, Width.BIGINT] * 2
        making = zip(clients, widths, starts, strict=True)
        await asyncio.gather(*(patiently(client.make, name, width, start) for client, width, start in making))
        tables = [(await client.tables([name]))[name] for client in clients]
        assert len(set(tables)) == 1
        assert [await client.names() for client in clients].count(await clients[0].names()) == CLIENTS
        first = (await take(clients[number], tables[0], 1, 0)).first
        assert (first, tables[0].width) in list(zip(starts, widths, strict=True))


@on_each_engine
async def test_of_several_that_supersede_a_mark_one_does(storage: Storage) -> None:
    clients = await clients_of(storage)
    await clients[0].record_ring(None, RING)
    for round_ in range(5):
        old = replace(OLD, sequence=f"s{round_}")
        await clients[0].keep([old], 1)
        new = [replace(old, token=f"life.t1:{number}", mark=20 + number) for number in range(CLIENTS)]
        superseding = zip(clients, new, strict=True)
        came = await asyncio.gather(*(patiently(client.supersede, old, row, 1) for client, row in superseding))
        assert len(set(came)) == 1
        assert came[0] in new
        assert came[0] in await clients[1].marks()


@on_each_engine
async def test_of_several_that_supersede_many_marks_each_mark_has_one_token_of_theirs(storage: Storage) -> None:
    clients = await clients_of(storage)
    await clients[0].record_ring(None, RING)
    old = [replace(OLD, sequence=f"s{number}") for number in range(30)]
    await clients[0].keep(old, 1)
    new = [[replace(row, token=f"life.t1:{number}", mark=20 + number) for row in old] for number in range(CLIENTS)]
    superseding = zip(clients, new, strict=True)
    await asyncio.gather(
        *(patiently(client.supersede_all, list(zip(old, rows, strict=True)), 1) for client, rows in superseding)
    )
    kept = {row.sequence: row for row in await clients[0].marks()}
    for number, row in enumerate(old):
        assert kept[row.sequence] in [rows[number] for rows in new]


@on_each_engine
async def test_a_mark_that_is_set_and_superseded_at_once_is_not_lost(storage: Storage) -> None:
    """Either the mark was set first and the database refuses the new token, or the database refuses the mark."""
    clients = await clients_of(storage)
    await clients[0].record_ring(None, RING)
    for round_ in range(10):
        old = replace(OLD, sequence=f"s{round_}")
        await clients[0].keep([old], 1)
        higher, new = replace(old, mark=50), replace(old, token="life.t2:new", mark=30)
        setting, superseding = (
            patiently(clients[1].keep, [higher], 1),
            patiently(clients[2].supersede, old, new, 1),
        )
        set_rows, superseded = await asyncio.gather(setting, superseding)
        (kept,) = [row for row in await clients[3].marks() if row.sequence == old.sequence]
        assert kept in (higher, new)
        assert set_rows[old.sequence, 2] == superseded == kept


@on_each_engine
async def test_the_largest_of_several_marks_stands(storage: Storage) -> None:
    clients = await clients_of(storage)
    await clients[0].record_ring(None, RING)
    setting = [
        patiently(client.keep, [replace(OLD, mark=100 + number, issued=50 - number)], 1)
        for number, client in enumerate(clients * 5)
    ]
    came = await asyncio.gather(*setting)
    for number, rows in enumerate(came):
        row = rows["photos", 2]
        assert row.mark >= 100 + number
        assert row.issued >= 50 - number
    assert await clients[0].marks() == [replace(OLD, mark=100 + len(came) - 1, issued=50)]


@on_each_engine
async def test_of_several_that_record_a_ring_one_does(storage: Storage) -> None:
    clients = await clients_of(storage)
    old: RingRecord | None = None
    for number in range(1, 6):
        new = [replace(RING, number=number, offsets=(1, 2, 3 + each)) for each in range(CLIENTS)]
        recording = zip(clients, new, strict=True)
        came = await asyncio.gather(*(patiently(client.record_ring, old, each) for client, each in recording))
        assert len(set(came)) == 1
        old = came[0]
        assert old in new
        assert (await clients[number % CLIENTS].probe()).record == old


@on_each_engine
async def test_no_mark_is_set_under_the_old_number_after_a_ring_was_recorded(storage: Storage) -> None:
    clients = await clients_of(storage)
    await clients[0].record_ring(None, RING)
    recorded, under_way = asyncio.Event(), asyncio.Semaphore(0)
    late = 0

    async def set_marks(client: TicketDatabase, mark: int) -> None:
        nonlocal late
        while True:
            after = recorded.is_set()
            try:
                await patiently(client.keep, [replace(OLD, mark=mark)], 1)
            except RingChanged:
                return
            under_way.release()
            late += after
            mark += 1

    setting = [asyncio.ensure_future(set_marks(client, 100)) for client in clients[1:]]
    for _ in range(3 * CLIENTS):
        await under_way.acquire()
    await patiently(clients[0].record_ring, RING, replace(RING, number=2))
    recorded.set()
    kept = await clients[0].marks()
    await asyncio.gather(*setting)
    assert late == 0
    assert await clients[0].marks() == kept
