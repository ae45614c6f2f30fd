"""The probe: looks and heartbeats of whole servers, on databases in memory and in virtual time."""

import asyncio

import pytest

from app.databases.session import Book, Note
from app.errors import DatabaseFailed
from app.tickets.floors import NUMBER
from app.tickets.heartbeats import Said
from app.tickets.sight import Status
from app.tickets.trial import Trial
from tests.unit.probe_bench import TicketServer, beats, clock, databases, serving

pytestmark = pytest.mark.looptime


# --- what is in sight -------------------------------------------------------------------------------------------------


async def test_a_look_that_began_before_a_failure_does_not_bring_the_database_back() -> None:
    dbs = databases()
    server = TicketServer("a:8000", *dbs)
    async with serving(server):
        await server.sees(1, 2)
        dbs[0].hold_answers()
        server.sight.look_at(server[1])
        await asyncio.sleep(0.1)
        server.sight.failed(server[1], DatabaseFailed("lost"))
        dbs[0].hold_answers(held=False)
        dbs[0].freeze()
        await asyncio.sleep(0.1)
        assert server[1].life is None
        assert server[1].doubtful
        dbs[0].thaw()
        await server.sees(1, 2)
        assert not server[1].doubtful


async def test_a_refusal_ends_after_a_look_at_every_database_that_began_later() -> None:
    dbs = databases()
    server = TicketServer("a:8000", *dbs)
    async with serving(server):
        await server.sees(1, 2)
        dbs[1].freeze()
        server.sight.refuse(server[1])
        await asyncio.sleep(0.3)
        assert server.sight.refused
        assert server.sight.stamp is None
        dbs[1].thaw()
        await server.until(lambda: server.sight.stamp is not None, 2)


async def test_with_none_in_sight_a_failure_looks_at_all_and_holds_none_back() -> None:
    dbs = databases()
    server = TicketServer("a:8000", *dbs)
    async with serving(server):
        await server.sees(1, 2)
        for _ in range(3):  # each failure would hold its database back for longer
            for member in server.sight.members:
                server.sight.failed(member, DatabaseFailed("lost"))
            assert await server.until(lambda: len(server.sight.in_sight) == 2) < 0.5


async def test_a_failed_look_counts_as_a_look() -> None:
    dbs = databases()
    server = TicketServer("a:8000", *dbs)
    async with serving(server):
        await server.sees(1, 2)
        dbs[1].down = True
        await server.sees(1)
        await asyncio.sleep(20)
        assert server.sight.is_fresh()
        assert (server[2].status, server[2].reason) == (Status.DOWN, "cannot be reached")


async def test_a_database_that_comes_back_in_another_life_comes_into_sight_in_it() -> None:
    dbs = databases()
    server = TicketServer("a:8000", *dbs)
    async with serving(server):
        await server.sees(1, 2)
        life, generation = server[1].life, server.sight.generation
        dbs[0].restart()
        await server.until(lambda: server[1].life not in {None, life}, 3)
        assert server.sight.generation > generation


async def test_a_server_that_stood_still_loses_sight_of_everything_until_it_has_looked() -> None:
    dbs = databases()
    server = TicketServer("a:8000", *dbs)
    async with serving(server):
        await server.sees(1, 2)
        await asyncio.sleep(0.5)
        dbs[0].freeze()
        server.jumped += 3600.0
        assert not server.sight.is_fresh()
        assert await server.until(lambda: server[2].reason != "", 1) <= 0.3
        await asyncio.sleep(0.1)
        assert server.sight.in_sight == []
        dbs[0].thaw()
        await server.sees(1, 2, seconds=2)


async def test_a_database_that_lost_a_mark_comes_back_after_a_trial_write_and_then_later_each_time() -> None:
    dbs = databases()
    server = TicketServer("a:8000", *dbs)
    async with serving(server):
        await server.sees(1, 2)
        for expected in (0, 1, 2, 4):
            server.sight.failed(server[2], DatabaseFailed("did not answer in time"))
            assert expected <= await server.sees(1, 2) < expected + 1.2
        assert dbs[1].data.notes[Book.MARKS] == {}
        dbs[1].read_only = True
        server.sight.failed(server[2], DatabaseFailed("did not answer in time"))
        await asyncio.sleep(30)
        assert server[2].life is None


def test_a_database_is_held_back_for_30_s_at_most() -> None:
    trial, now = Trial(), 0.0
    trial.lost(now)
    assert trial.is_due(now)
    trial.came_back(now)
    for delay in (1, 2, 4, 8, 16, 30, 30):
        trial.lost(now)
        assert not trial.is_due(now + delay - 0.1)
        now += delay
        assert trial.is_due(now)
        trial.came_back(now)
    trial.lost(now + 60)
    assert trial.is_due(now + 60)


# --- several servers --------------------------------------------------------------------------------------------------


async def test_a_server_is_live_until_it_ends_or_falls_silent() -> None:
    dbs = databases()
    one, other = TicketServer("a:8000", *dbs), TicketServer("b:8000", *dbs, increment=2)
    async with serving(one, other):
        await other.sees(1, 2)
        await one.until(lambda: len(one.probe.servers()) == 1)
        await one.until(lambda: all(server.said and len(server.said.lives) == 2 for server in one.probe.servers()))
        (server,) = one.probe.servers()
        assert (server.name, server.said and server.said.increment) == ("b:8000", 2)
        await other.kill()
        assert 5 <= await one.until(lambda: not one.probe.servers()) <= 7.1
        again = TicketServer("b:8000", *dbs)
        async with serving(again):
            await one.until(lambda: len(one.probe.servers()) == 1)
            await again.end()
            assert await one.until(lambda: not one.probe.servers()) <= 1.1
            assert set(beats(dbs[0])) == {"a:8000"}


async def test_a_heartbeat_that_stands_still_for_an_hour_is_deleted() -> None:
    dbs = databases(1)
    server = TicketServer("a:8000", *dbs)
    beats(dbs[0])["z:8000"] = Note(1, tenure="gone", text=Said(1.0, 6.0).dump())
    async with serving(server):
        await server.sees(1)
        await asyncio.sleep(30)
        assert "z:8000" in beats(dbs[0])
        server.jumped += 3600.0
        await server.until(lambda: "z:8000" not in beats(dbs[0]), 3)


async def test_a_restart_is_seen_by_all_servers_within_three_probe_intervals() -> None:
    dbs = databases()
    servers = [TicketServer(f"{name}:8000", *dbs) for name in "abc"]
    async with serving(*servers):
        for server in servers:
            await server.sees(1, 2)
        await asyncio.sleep(2)
        life = servers[0][1].life
        dbs[0].restart()
        for server in servers:
            await server.until(lambda server=server: server[1].life not in {None, life}, 3)  # type: ignore[misc]
        assert len({server[1].life for server in servers}) == 1


async def test_floors_are_read_where_their_number_rises_and_the_others_learn_of_it() -> None:
    dbs = databases()
    one, other = TicketServer("a:8000", *dbs), TicketServer("b:8000", *dbs)
    async with serving(one, other):
        await one.sees(1, 2)
        await other.sees(1, 2)
        dbs[0].data.notes[Book.FLOORS]["photos"] = Note(700)
        dbs[0].data.notes[Book.COUNTS][NUMBER] = Note(1)
        assert await one.probe.wait_known(1, clock() + 3)
        assert other.floors.known == {"photos": 700}
        assert one.probe.floors_heard() == 1
        assert not await one.probe.wait_known(2, clock() + 3)


async def test_a_clean_end_during_a_look_leaves_no_heartbeat() -> None:
    dbs = databases()
    server = TicketServer("a:8000", *dbs)
    async with serving(server):
        await server.sees(1, 2)
        dbs[0].freeze()
        server.sight.look_at(server[1])
        await asyncio.sleep(0.1)
        ending = asyncio.create_task(server.end())
        await asyncio.sleep(0.1)
        dbs[0].thaw()
        await ending
    assert [beats(db) for db in dbs] == [{}, {}]
