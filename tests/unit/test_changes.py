"""Changes of the ring by whole servers, on databases in memory and in virtual time."""

import asyncio
from dataclasses import replace

import pytest

from app.databases.record import Record, State
from app.databases.session import Book, Mark, Marked, Note, RingRow
from app.tickets.sight import Status
from tests.unit.probe_bench import TicketServer, databases, record_of, serving

pytestmark = pytest.mark.looptime


# --- forming ----------------------------------------------------------------------------------------------------------


async def test_a_ring_is_formed_once_all_answer_and_drawn_at_once() -> None:
    dbs = databases(3)
    dbs[2].down = True
    server = TicketServer("a:8000", *dbs)
    async with serving(server):
        await asyncio.sleep(5)
        assert server.sight.record is None
        assert "d3:3306 cannot be used" in server[1].reason
        dbs[2].down = False
        assert await server.sees(1, 2, 3) < 1.5
    records = [record_of(db) for db in dbs]
    assert records == [server.sight.record] * 3
    assert records[0].drawn
    assert [db.data.ring.offset for db in dbs] == [1, 2, 3]
    assert records[0].increment == 3


async def test_servers_that_form_a_ring_at_once_agree_on_one() -> None:
    dbs = databases()
    servers = [TicketServer(f"{name}:8000", *dbs) for name in "abc"]
    async with serving(*servers):
        for server in servers:
            await server.sees(1, 2)
        assert len({server.sight.stamp for server in servers}) == 1


async def test_of_two_lists_in_another_order_one_forms_the_ring() -> None:
    x, y = databases()
    one, other = TicketServer("a:8000", x, y), TicketServer("b:8000", y, x)
    async with serving(one, other):
        await one.until(lambda: len(one.sight.in_sight) + len(other.sight.in_sight) == 2)
        await asyncio.sleep(10)
        assert sorted([len(one.sight.in_sight), len(other.sight.in_sight)]) == [0, 2]


async def test_a_forming_that_stood_still_for_5_s_is_written_over() -> None:
    dbs = databases()
    other = Record("other", 4, "other", 2, State.FORMING, ())
    dbs[0].data.ring = dbs[0].data.ring._replace(stamp=other.stamp, text=other.dump())
    server = TicketServer("a:8000", *dbs)
    async with serving(server):
        assert 5 <= await server.sees(1, 2) < 8
        assert record_of(dbs[0]).number > 4


# --- databases that are replaced, copied, or come back older ----------------------------------------------------------


async def test_a_replacement_waits_for_the_server_that_uses_the_old_data() -> None:
    old, common, new = databases(3)
    first, second = TicketServer("a:8000", old, common), TicketServer("b:8000", new, common)
    async with serving(first):
        await first.sees(1, 2)
        async with serving(second):
            await asyncio.sleep(30)
            assert second[1].status is Status.QUARANTINED
            assert second[1].reason.endswith("a:8000 draws from d1:3306")
            number = record_of(common).number
            await first.end()
            assert await second.sees(1, 2) <= 2
            assert record_of(new).number == record_of(common).number == number + 1
            assert record_of(new).offset_of(new.data.ring.body) == 1
            back = TicketServer("c:8000", old, common)
            async with serving(back):
                await asyncio.sleep(30)
                assert back[1].reason.endswith("b:8000 draws from d1:3306")
                assert [member.offset for member in second.sight.in_sight] == [1, 2]
                await second.kill()
                assert await back.sees(1, 2) <= 7


async def test_a_replacement_is_taken_in_after_10_s_and_is_level_by_then() -> None:
    dbs = databases()
    mark = Note(1000, 5, "tenure", True)
    async with serving(server := TicketServer("a:8000", *dbs)):
        await server.sees(1, 2)
    dbs[1].data.notes[Book.MARKS]["photos/1"] = mark
    dbs[0].wipe()
    again = TicketServer("a:8000", *dbs)
    async with serving(again):
        await again.sees(2, seconds=1)
        assert 9.9 <= await again.sees(1, 2) <= 12
        assert dbs[0].data.notes[Book.MARKS]["photos/1"] == Note(1000, 5)
        assert record_of(dbs[0]) == record_of(dbs[1]) == again.sight.record


async def test_a_copy_waits_while_another_server_draws_from_the_original() -> None:
    original, common = databases()
    first = TicketServer("b:8000", original, common)
    async with serving(first):
        await first.sees(1, 2)
        await asyncio.sleep(1)
        second = TicketServer("a:8000", original.copy(), common)
        async with serving(second):
            await asyncio.sleep(30)
            assert second[1].reason.endswith("b:8000 draws from d1:3306")
            assert [member.offset for member in first.sight.in_sight] == [1, 2]
            original.down = True
            assert await second.sees(1, 2) <= 2


async def test_a_database_that_came_back_older_gets_the_highest_record_that_the_server_remembers() -> None:
    dbs = databases()
    server = TicketServer("a:8000", *dbs)
    async with serving(server):
        await server.sees(1, 2)
        before = [db.snapshot() for db in dbs]
        seen = server.sight.record
        assert seen is not None
        higher = replace(seen, number=9)
        for db in dbs:
            db.data.ring = db.data.ring._replace(stamp=higher.stamp, text=higher.dump())
        await server.until(lambda: server.sight.record == higher and len(server.sight.in_sight) == 2)
        for db, data in zip(dbs, before, strict=True):
            db.restore(data)
        await server.until(lambda: [record_of(db) for db in dbs] == [higher] * 2, 3)


async def test_a_change_that_grow_left_is_taken_back_and_a_change_under_way_is_not() -> None:
    dbs = databases()
    server, grow = TicketServer("a:8000", *dbs), TicketServer("host:grow", *dbs, grow=True)
    async with serving(server):
        await server.sees(1, 2)
        async with serving(grow):
            await grow.sees(1, 2)
            seen = server.sight.record
            assert seen is not None
            change = seen.next(seen.number + 1, state=State.CHANGING)
            dbs[0].data.ring = dbs[0].data.ring._replace(stamp=change.stamp, text=change.dump())
            await server.until(lambda: server.sight.record == change)
            await asyncio.sleep(20)
            assert server.sight.stamp is None
            assert record_of(dbs[0]) == change
            assert server.probe.servers() == []
        assert 4 <= await server.until(lambda: server.sight.stamp is not None) <= 7
        await server.sees(1, 2)
        assert record_of(dbs[1]).number == change.number + 1


async def test_a_mark_under_the_number_of_before_is_refused_while_a_body_is_taken_in() -> None:
    dbs = databases()
    server = TicketServer("a:8000", *dbs)
    async with serving(server):
        await server.sees(1, 2)
        await asyncio.sleep(15)
        stamp = server.sight.stamp
        assert stamp is not None
        dbs[0].wipe()
        await server.until(lambda: server.sight.stamp not in {None, stamp}, 10)
        life = server[2].life
        assert life is not None
        assert await server[2].database.mark(Mark("photos/1", "t", 9, 0, False), stamp, life) is Marked.RING


async def test_a_write_of_the_record_whose_answer_is_lost_is_found_by_the_next_look() -> None:
    dbs = databases()
    lost: list[RingRow] = []

    def loses(_client: str, what: str) -> bool:
        if what == "write_ring" and len(lost) < 3:
            lost.append(dbs[0].data.ring)
            return True
        return False

    dbs[0].loses = loses
    server = TicketServer("a:8000", *dbs)
    async with serving(server):
        await server.sees(1, 2, seconds=20)
        assert lost
