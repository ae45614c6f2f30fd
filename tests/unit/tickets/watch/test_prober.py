"""The probe loops: who is taken in when, after whom, and what is looked after meanwhile."""

import asyncio

import pytest

from app.databases.protocol import Mark, ProbeResult, RingRecord
from app.tickets.ring.ring import Member, Status
from tests.fakes.ticket_server import PROBE_INTERVAL, FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time


async def take(server: FakeTicketServer, times: int = 1, sequence: str = "photos") -> list[int]:
    return [(await server.desk.take(sequence, 1))[0] for _ in range(times)]


def statuses(server: FakeTicketServer) -> list[Status]:
    return [member.status for member in server.ring.members]


def now() -> float:
    return asyncio.get_running_loop().time()


@virtual_time
async def test_all_that_work_are_up_when_it_has_started() -> None:
    async with Site(3) as site:
        site.servers[2].down = True
        server = await site.ticket_server()
        assert statuses(server) == [Status.UP, Status.UP, Status.DOWN]


@virtual_time
async def test_one_that_hangs_delays_the_start_by_about_its_timeout() -> None:
    async with Site(2) as site:
        site.servers[0].hang()
        began = now()
        server = await site.ticket_server()
        assert now() - began < 2.0
        assert statuses(server) == [Status.DOWN, Status.UP]


@virtual_time
async def test_one_that_goes_down_is_looked_at_at_once_and_then_every_interval() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 2)
        site.servers[0].down = True
        await take(server, 2)
        assert statuses(server) == [Status.DOWN, Status.UP]
        site.servers[0].down = False
        await asyncio.sleep(PROBE_INTERVAL + 0.1)
        assert statuses(server) == [Status.UP, Status.UP]


@virtual_time
async def test_an_idle_database_that_dies_is_noticed_by_its_probe() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        site.servers[1].read_only = True
        await asyncio.sleep(PROBE_INTERVAL + 0.1)
        assert statuses(server) == [Status.UP, Status.DOWN]
        assert server.ring.members[1].last_error == "is read-only"


@virtual_time
async def test_wrong_settings_are_quarantined_and_taken_back_when_they_are_right() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        site.servers[0].misconfigured = "has increment 1, expected 2"
        await asyncio.sleep(PROBE_INTERVAL + 0.1)
        assert statuses(server)[0] is Status.QUARANTINED
        assert "increment 1" in (server.ring.members[0].last_error or "")
        assert {ticket % 2 for ticket in await take(server, 4)} == {0}
        site.servers[0].misconfigured = None
        await asyncio.sleep(PROBE_INTERVAL + 0.1)
        assert statuses(server)[0] is Status.UP


@virtual_time
async def test_a_wrong_residue_is_quarantined_until_a_draw_is_right_again() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        before = await take(server, 4)
        site.servers[0].draws_as = (1, 1)
        before += await take(server, 4)
        assert statuses(server)[0] is Status.QUARANTINED
        await asyncio.sleep(5)  # looks succeed all the while
        assert statuses(server)[0] is Status.QUARANTINED
        site.servers[0].draws_as = None
        await asyncio.sleep(PROBE_INTERVAL + 0.2)
        assert statuses(server)[0] is Status.UP
        tickets = before + await take(server, 6)
        assert len(tickets) == len(set(tickets))
        assert {ticket % 2 for ticket in tickets[-6:]} == {0, 1}


@virtual_time
async def test_a_sequence_that_cannot_be_drawn_from_any_more_keeps_nobody_in_quarantine() -> None:
    async with Site(2, ["photos", "accounts"]) as site:
        server = await site.ticket_server()
        await take(server, 2)
        site.servers[0].draws_as = (1, 1)
        await take(server, 4)
        assert statuses(server)[0] is Status.QUARANTINED
        site.servers[0].draws_as = None
        site.servers[0].table("photos").counter = 2**64 + 1  # nothing is left
        await asyncio.sleep(PROBE_INTERVAL + 0.2)
        assert str(server.ring.members[0].status) == "up"
        assert {ticket % 2 for ticket in await take(server, 4, "accounts")} == {0, 1}


@virtual_time
async def test_two_urls_that_are_one_server() -> None:
    async with Site(2) as site:
        site.servers[1].identity = site.servers[0].identity
        server = await site.ticket_server()
        assert statuses(server) == [Status.UP, Status.QUARANTINED]
        assert server.ring.members[1].last_error == "is the same server as fake1:3306"


@virtual_time
async def test_taken_in_only_after_every_other_has_answered_or_failed_one_attempt() -> None:
    """The other one is well again but has not been probed since: it is asked before the first one may draw."""
    async with Site(2) as site:
        server = await site.ticket_server()
        copy = site.servers[0].snapshot()
        before = await take(server, 40)
        for database in site.servers:
            database.down = True
        await asyncio.sleep(2.5)
        site.servers[0].restore(copy)
        for database in site.servers:
            database.down = False
        await asyncio.sleep(0.9)
        after = await take(server, 6)
        assert not set(before) & set(after)
        await asyncio.sleep(2)
        assert not set(before) & set(await take(server, 6))


@virtual_time
async def test_nothing_is_taken_in_by_a_look_from_before_its_turn() -> None:
    """It was looked at, then waited while another one was taken in, and was restored meanwhile."""
    async with Site(2) as site:
        server = await site.ticket_server()
        first, second = server.databases
        copy = site.servers[0].snapshot()
        before = await take(server, 40)
        for database in site.servers:
            database.down = True
        await asyncio.sleep(2.5)
        marks, asked, answered = second.marks, asyncio.Event(), asyncio.Event()

        async def late_marks(changed_within: float | None = None, *, anybody: bool = True) -> list[Mark]:
            asked.set()
            await answered.wait()
            return await marks(changed_within, anybody=anybody)

        second.marks = late_marks  # type: ignore[method-assign]
        site.servers[1].down = False
        await asked.wait()
        site.servers[0].down = False
        looks = site.servers[0].looks
        await asyncio.sleep(1.5 * PROBE_INTERVAL)
        assert site.servers[0].looks > looks
        site.servers[0].restore(copy)
        taken_in: asyncio.Queue[str] = asyncio.Queue()
        mark_up = server.ring.mark_up

        def noted(member: Member, result: ProbeResult) -> None:
            if member.database is first:
                taken_in.put_nowait(result.incarnation)
            mark_up(member, result)

        server.ring.mark_up = noted  # type: ignore[method-assign]
        answered.set()
        assert await taken_in.get() == site.servers[0].incarnation
        assert not set(before) & set(await take(server, 8))


@virtual_time
async def test_a_look_from_before_another_one_came_up_takes_nobody_out_of_the_ring() -> None:
    """The ring record has got the other one's offset meanwhile, and so another number."""
    async with Site(2, recorded=False) as site:
        site.servers[0].state.ring = RingRecord(1, 2, 1, (1,), own=1)
        site.servers[1].down = True
        server = await site.ticket_server()
        first, second = server.ring.members
        assert (first.up, second.up) == (True, False)
        look = first.database.probe
        changes: list[tuple[str, Status]] = []

        async def looked_at_before() -> ProbeResult:
            found = await look()
            first.database.probe = look  # type: ignore[method-assign]
            site.servers[1].down = False
            while not second.up:
                second.wake.set()
                await asyncio.sleep(0.1)
            return found

        first.database.probe = looked_at_before  # type: ignore[method-assign]
        server.ring.follow(lambda member: changes.append((member.name, member.status)))
        await asyncio.sleep(3 * PROBE_INTERVAL)
        assert second.up
        assert changes == [(second.name, Status.UP)]


@virtual_time
async def test_a_new_incarnation_between_two_looks_takes_it_out_of_the_ring() -> None:
    """Marks could not be kept there for a while, so it is looked at a second time before they are tried again; and what
    another ticket server has drawn since the last probe is known to the ledger alone."""
    async with Site(2) as site:
        server, other = await site.ticket_server(), await site.ticket_server()
        await take(server, 4)
        copy = site.servers[0].snapshot()
        site.servers[0].ledger_fails = True
        await asyncio.sleep(PROBE_INTERVAL + 0.2)
        assert server.ring.members[0].marks_error is not None
        before = {ticket for _ in range(2) for ticket in await other.desk.take("photos", 1000)}
        client = server.databases[0]
        looks = 0
        look, looked_twice = client.probe, asyncio.Event()

        async def restored_before_the_second_look() -> object:
            nonlocal looks
            looks += 1
            if looks == 2:
                site.servers[0].restore(copy)
            found = await look()
            if looks == 2:
                looked_twice.set()
            return found

        client.probe = restored_before_the_second_look  # type: ignore[method-assign,assignment]
        server.ring.members[0].wake.set()
        await looked_twice.wait()
        takers = await asyncio.gather(*(take(server, 20) for _ in range(4)))
        after = {ticket for tickets in takers for ticket in tickets}
        assert looks > 2
        assert not before & after
        assert max(after) > max(before)


@virtual_time
async def test_a_ledger_that_fails_for_long_is_tried_once_with_each_probe() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 2)
        site.servers[0].ledger_fails = True
        await asyncio.sleep(PROBE_INTERVAL + 0.1)
        before = site.servers[0].statements
        await asyncio.sleep(10 * PROBE_INTERVAL)
        assert site.servers[0].statements - before < 100
        assert statuses(server) == [Status.UP, Status.UP]


@virtual_time
async def test_suspended_lanes_are_tried_again_with_every_probe() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 2)
        site.servers[0].lock("photos")
        await take(server, 4)
        lane = server.lane("photos", 1)
        assert not lane.can_be_asked
        warnings = server.admin.health()["warnings"]
        assert [(each["sequence"], each["database"]) for each in warnings] == [("photos", "fake1:3306")]
        await asyncio.sleep(3)
        assert str(lane.state) == "suspended"
        site.servers[0].unlock()
        await asyncio.sleep(2 * PROBE_INTERVAL)
        assert lane.can_be_asked


@virtual_time
async def test_an_unknown_error_in_a_probe_does_not_end_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        look, server.databases[0].probe = server.databases[0].probe, None  # type: ignore[method-assign,assignment]
        await asyncio.sleep(PROBE_INTERVAL + 0.1)
        assert "does not know" in caplog.text
        server.databases[0].probe = look  # type: ignore[method-assign]
        site.servers[0].down = True
        await asyncio.sleep(PROBE_INTERVAL + 0.1)
        assert statuses(server)[0] is Status.DOWN


@virtual_time
async def test_stopping_tells_the_ledgers_what_was_issued_last() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        tickets = await take(server, 20)
        await site.restart(server)
        for offset, witness in ((1, 1), (2, 0)):
            mark = site.servers[witness].mark("photos", offset)
            assert mark is not None
            assert mark.issued == max(ticket for ticket in tickets if ticket % 2 == offset % 2)


@virtual_time
async def test_every_fault_of_a_database_leaves_the_loops_running() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        for _ in range(3):
            for fault in ("down", "read_only", "ledger_fails"):
                setattr(site.servers[0], fault, True)
                await asyncio.sleep(1.3)
                site.servers[0].heal()
                await asyncio.sleep(1.3)
            site.servers[0].hang()
            await asyncio.sleep(1.3)
            site.servers[0].heal()
            site.servers[0].restart()
            await asyncio.sleep(1.3)
        assert server.admin.health()["status"] == "pass"
        assert len(set(await take(server, 4))) == 4
