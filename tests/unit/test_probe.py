"""The probe: looks, heartbeats and changes of the ring, by whole servers on databases in memory and in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Self

import pytest

from app.databases.record import Record, read_record
from app.databases.session import Book, Look, Note, Residue
from app.errors import DatabaseFailed
from app.service import Service
from app.settings import Settings
from app.tickets.floors import NUMBER
from app.tickets.heartbeats import Said
from app.tickets.sight import Member, Status
from tests.contract.http_bench import databases_on
from tests.fakes.server import FakeServer
from tests.fakes.session import FakeSession

pytestmark = pytest.mark.looptime
LOST = DatabaseFailed("did not answer in time")


def clock() -> float:
    return asyncio.get_running_loop().time()


class TicketServer:
    """A ticket server on these databases. `jumped` is by how much its clock has jumped."""

    def __init__(self, name: str, *servers: FakeServer, increment: int | None = None) -> None:
        self.jumped = 0.0
        settings = Settings.model_construct(databases=servers, increment=increment)
        databases = databases_on(list(servers), 0.5)
        self.service = Service(databases, settings, name, clock=lambda: clock() + self.jumped)
        self.sight, self.probe, self.floors = self.service.sight, self.service.probe, self.service.floors
        self.end = self.service.stop

    def __getitem__(self, offset: int) -> Member:
        return self.sight.members[offset - 1]

    async def __aenter__(self) -> Self:
        self.service.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def kill(self) -> None:
        for task in self.service._running:
            task.cancel()
        await asyncio.gather(*self.service._running, return_exceptions=True)

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> float:
        """Wait for a condition; return how long that took, in seconds."""
        began = clock()
        async with asyncio.timeout(seconds):
            while not condition():
                assert not any(task.done() for task in self.service._running)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await self.sight.moved()
        return clock() - began

    async def sees(self, *offsets: int, seconds: float = 60.0) -> float:
        """Wait until these are in sight and no others."""
        wanted = list(offsets)
        return await self.until(lambda: [member.offset for member in self.sight.in_sight] == wanted, seconds)


@asynccontextmanager
async def looking() -> AsyncIterator[tuple[TicketServer, list[FakeServer]]]:
    """One server that has formed a ring of two databases."""
    async with TicketServer("a:8000", *(dbs := databases())) as server:
        await server.sees(1, 2)
        yield server, dbs


def databases(count: int = 2) -> list[FakeServer]:
    return [FakeServer(f"d{offset}", clock=lambda: 1e9 + clock()) for offset in range(1, count + 1)]


def record_of(database: FakeServer) -> Record:
    record = read_record(database.data.ring)
    assert record is not None
    return record


def beats(database: FakeServer) -> dict[str, Note]:
    return database.data.notes[Book.HEARTBEATS]


# --- what is in sight -------------------------------------------------------------------------------------------------


async def test_looks_name_what_is_drawn_so_that_a_server_with_another_offset_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look, named = FakeSession.look, set[Residue | None]()

    async def noted(session: FakeSession, server: str, beat: Note) -> Look:
        named.add(session.residue)
        return await look(session, server, beat)

    monkeypatch.setattr(FakeSession, "look", noted)
    async with TicketServer("a", FakeServer("db1"), FakeServer("db2")) as server:
        await server.until(lambda: named == {None, Residue(1, 2), Residue(2, 2)})


async def test_a_look_that_began_before_a_failure_does_not_bring_the_database_back() -> None:
    async with looking() as (server, dbs):
        dbs[0].hold_answers()
        server.sight.look_at(server[1])
        await asyncio.sleep(0.1)
        server.sight.failed(server[1], LOST)
        dbs[0].hold_answers(held=False)
        dbs[0].freeze()
        await asyncio.sleep(0.1)
        assert server[1].life is None
        assert server[1].doubtful
        dbs[0].thaw()
        await server.sees(1, 2)
        assert not server[1].doubtful


async def test_with_none_in_sight_a_failure_looks_at_all_and_holds_none_back() -> None:
    async with looking() as (server, _):
        for _ in range(3):  # each failure would hold its database back for longer
            for member in server.sight.members:
                server.sight.failed(member, LOST)
            assert await server.until(lambda: len(server.sight.in_sight) == 2) < 0.5


async def test_a_failed_look_counts_as_a_look() -> None:
    async with looking() as (server, dbs):
        dbs[1].down = True
        await server.sees(1)
        await asyncio.sleep(20)
        assert server.sight.is_fresh()
        assert (server[2].status, server[2].reason) == (Status.DOWN, "cannot be reached")


async def test_a_server_that_stood_still_loses_sight_of_everything_until_it_has_looked() -> None:
    async with looking() as (server, dbs):
        await asyncio.sleep(0.5)
        dbs[0].freeze()
        server.jumped += 3600.0
        assert not server.sight.is_fresh()
        assert await server.until(lambda: server[2].reason != "", 1) <= 0.3
        await asyncio.sleep(0.1)
        assert server.sight.in_sight == []
        dbs[0].thaw()
        await server.sees(1, 2, seconds=2)


async def test_a_database_that_failed_comes_back_after_a_trial_write_and_then_later_each_time() -> None:
    async with looking() as (server, dbs):
        for expected in (0, 1, 2, 4, 8, 16, 30, 30):
            server.sight.failed(server[2], LOST)
            assert expected <= await server.sees(1, 2) < expected + 1.2
        await asyncio.sleep(60)
        server.sight.failed(server[2], LOST)
        assert await server.sees(1, 2) < 1.2
        assert dbs[1].data.notes[Book.MARKS] == {}
        dbs[1].read_only = True
        server.sight.failed(server[2], LOST)
        await asyncio.sleep(30)
        assert server[2].life is None


# --- several servers --------------------------------------------------------------------------------------------------


async def test_a_server_is_live_until_it_ends_or_falls_silent() -> None:
    async with looking() as (one, dbs):
        async with TicketServer("b:8000", *dbs, increment=2) as other:
            await one.until(lambda: any(len(each.said.lives) == 2 for each in one.probe.servers()))
            (server,) = one.probe.servers()
            assert (server.name, server.said.increment) == ("b:8000", 2)
            await other.kill()
            assert 5 <= await one.until(lambda: not one.probe.servers()) <= 7.1
        async with TicketServer("b:8000", *dbs) as again:
            await one.until(lambda: len(one.probe.servers()) == 1)
            await again.end()
            assert await one.until(lambda: not one.probe.servers()) <= 1.1
            assert set(beats(dbs[0])) == {"a:8000"}


async def test_a_heartbeat_that_stands_still_for_an_hour_is_deleted() -> None:
    async with looking() as (server, dbs):
        beats(dbs[0])["z:8000"] = Note(1, tenure="gone", text=Said(6.0).dump())
        await asyncio.sleep(30)
        assert "z:8000" in beats(dbs[0])
        server.jumped += 3600.0
        await server.until(lambda: "z:8000" not in beats(dbs[0]), 3)


async def test_floors_are_read_where_their_number_rises_and_the_others_learn_of_it() -> None:
    async with looking() as (one, dbs), TicketServer("b:8000", *dbs) as other:
        await other.sees(1, 2)
        dbs[0].data.notes[Book.FLOORS]["photos"] = Note(700)
        dbs[0].data.notes[Book.COUNTS][NUMBER] = Note(1)
        assert await one.probe.wait_known(1, clock() + 3)
        assert other.floors.known == {"photos": 700}
        assert one.probe.floors_heard() == 1
        assert not await one.probe.wait_known(2, clock() + 3)


async def test_a_clean_end_during_a_look_leaves_no_heartbeat() -> None:
    async with looking() as (server, dbs):
        dbs[0].freeze()
        server.sight.look_at(server[1])
        await asyncio.sleep(0.1)
        ending = asyncio.create_task(server.end())
        await asyncio.sleep(0.1)
        dbs[0].thaw()
        await ending
    assert [beats(db) for db in dbs] == [{}, {}]


async def test_a_replacement_waits_for_the_server_that_uses_the_old_data() -> None:
    old, common, new = databases(3)
    first, second = TicketServer("a:8000", old, common), TicketServer("b:8000", new, common)
    async with first:
        await first.sees(1, 2)
        async with second:
            await asyncio.sleep(30)
            assert second[1].status is Status.QUARANTINED
            assert second[1].reason.endswith("a:8000 draws from d1:3306")
            number = record_of(common).number
            await first.end()
            assert await second.sees(1, 2) <= 2
            assert record_of(new).number == record_of(common).number == number + 1
            assert record_of(new).offset_of(new.data.ring.body) == 1
            async with TicketServer("c:8000", old, common) as back:
                await asyncio.sleep(30)
                assert back[1].reason.endswith("b:8000 draws from d3:3306")
                assert [member.offset for member in second.sight.in_sight] == [1, 2]
                await second.kill()
                assert await back.sees(1, 2) <= 7
