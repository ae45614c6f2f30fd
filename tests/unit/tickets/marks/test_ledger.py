"""The ledger: marks set ahead, nothing skipped where nothing went back, and what is not protected."""

import asyncio
from dataclasses import replace

import pytest

from app.common.errors import MarkRefused, NoTicketDatabase
from app.tickets.lanes.lane import Lane
from app.tickets.lanes.marks import LARGEST_STEP, SMALLEST_STEP
from app.tickets.lanes.state import LaneState
from app.tickets.marks.token import epoch_of
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.ledgers import mark_about, of, probed, take

# --- setting marks ---------------------------------------------------------------------------------------------------


@virtual_time
async def test_the_mark_above_a_ticket_is_on_every_other_database_before_the_ticket_is_out() -> None:
    async with Site(3) as site:
        server = await site.ticket_server()
        for _ in range(5):
            for ticket in await take(server, 3):
                offset = (ticket - 1) % 3 + 1
                for other in {1, 2, 3} - {offset}:
                    assert mark_about(site, offset, on=other).mark >= ticket
                assert site.servers[offset - 1].mark("photos", offset) is None


@virtual_time
async def test_a_block_larger_than_a_step_is_reserved_whole() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        block = await server.desk.take("photos", 30_000, whole=True)
        assert mark_about(site, 1, on=2).mark >= block[-1]


@virtual_time
async def test_marks_cost_next_to_nothing_per_ticket() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 2)
        before = sum(database.statements for database in site.servers)
        for _ in range(20):
            await server.desk.take("photos", 20)
        assert sum(database.statements for database in site.servers) - before <= 22


@virtual_time
async def test_steps_grow_while_they_go_by_quickly_and_shrink_when_they_last() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        lane = await an_open_lane(server)
        steps = []
        for _ in range(20):
            await server.desk.take("photos", 30_000, whole=True)
            steps.append(lane.marks.step)
        assert steps[-1] > 50 * SMALLEST_STEP
        assert max(steps) <= LARGEST_STEP
        grown = lane.marks.step
        await asyncio.sleep(100)
        for _ in range(2):
            await server.ledger.set_mark(lane, lane.guard.highest, protected=True)
        assert lane.marks.step <= grown


@virtual_time
async def test_an_advance_skips_the_smallest_step_whatever_the_rate_was() -> None:
    """Each restart and each change of body skips the ids up to the mark."""
    async with Site(2) as site:
        server = await site.ticket_server()
        lane = await an_open_lane(server)
        for _ in range(20):
            await server.desk.take("photos", 30_000, whole=True)
        assert lane.marks.step > 50 * SMALLEST_STEP
        for _ in range(5):
            lane.close()
            lane.must_advance = True
            await lane.open()
            skipped = mark_about(site, 1, on=2).mark - lane.guard.highest
            assert 0 < skipped <= SMALLEST_STEP * lane.member.database.increment


@virtual_time
async def test_a_step_that_no_other_database_has_kept_is_not_doubled() -> None:
    """Each draw asks for one while the other database is away."""
    async with Site(2) as site:
        server = await site.ticket_server()
        lane = await an_open_lane(server)
        site.servers[1].down = True
        for _ in range(40):
            await take(server, 1)
        site.servers[1].heal()
        await probed()
        await take(server, 2)
        assert mark_about(site, 1, on=2).mark - lane.guard.highest <= 2 * SMALLEST_STEP * lane.member.database.increment


async def an_open_lane(server: FakeTicketServer, offset: int = 1) -> Lane:
    await take(server, len(server.databases))
    lane = server.lane("photos", offset)
    assert lane.state is LaneState.OPEN
    return lane


@virtual_time
async def test_a_step_ends_at_the_ceiling_and_is_small_close_to_it() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        table = site.servers[0].table("photos")
        table.advance(table.ceiling - 320)
        ticket = of(1, await take(server, 2))[0]
        assert ticket <= table.ceiling
        assert mark_about(site, 1, on=2).mark <= ticket + 320 // 16 + 2


@virtual_time
async def test_a_late_mark_is_refused_and_what_was_drawn_is_dropped() -> None:
    """One server draws before another server advances the sequence, and sets its mark afterwards."""
    async with Site(2) as site:
        late, other = await site.ticket_server(), await site.ticket_server()
        await take(late, 2)
        await take(other, 2)
        lane = late.lane("photos", 1)
        row = mark_about(site, 1, on=2)
        site.servers[1].supersede(row, replace(row, token="another-life:1", mark=row.mark + 5000))
        with pytest.raises(MarkRefused):
            await late.ledger.set_mark(lane, lane.marks.mark + 2, protected=True)
        kept = mark_about(site, 1, on=2)
        assert kept.token == "another-life:1"
        assert kept.mark == row.mark + 5000


@virtual_time
async def test_no_ticket_of_an_old_token_is_handed_out_above_the_mark() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 2)
        row = mark_about(site, 1, on=2)
        site.servers[1].supersede(row, replace(row, token=f"{epoch_of(row.token)}:another"))
        opened = server.lane("photos", 1).marks.token
        tickets = await server.desk.take("photos", 30_000, whole=True)
        assert tickets[0] % 2 == 0  # the server dropped the odd ones, because the witness refused the mark
        assert server.metrics.violations["fake1:3306", "mark"] == 1
        await take(server, 2)
        assert server.lane("photos", 1).marks.token != opened


@virtual_time
async def test_a_token_that_another_server_superseded_is_seen_by_the_next_probe() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 2)
        row = mark_about(site, 1, on=2)
        superseded = f"{epoch_of(row.token)}:another"
        site.servers[1].supersede(row, replace(row, token=superseded))
        await probed()
        await take(server, 4)
        assert server.lane("photos", 1).marks.token == superseded
        assert server.metrics.violations["fake1:3306", "mark"] == 0


# --- nothing has gone back -------------------------------------------------------------------------------------------


@virtual_time
async def test_a_restart_of_the_ticket_server_skips_nothing() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        before = await take(server, 10)
        tokens = [mark_about(site, 1, on=2).token, mark_about(site, 2, on=1).token]
        server = await site.restart(server)
        assert await take(server, 4) == [11, 12, 13, 14]
        assert before == list(range(1, 11))
        assert [mark_about(site, 1, on=2).token, mark_about(site, 2, on=1).token] == tokens


@virtual_time
async def test_another_ticket_server_skips_nothing_and_takes_the_token_that_there_is() -> None:
    async with Site(2) as site:
        one, other = await site.ticket_server(), await site.ticket_server()
        tickets = await take(one, 4) + await take(other, 4) + await take(one, 4)
        assert sorted(tickets) == list(range(1, 13))
        assert one.lane("photos", 1).marks.token == other.lane("photos", 1).marks.token


@virtual_time
async def test_a_network_cut_skips_nothing() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 4)
        site.servers[0].down = True
        await take(server, 2)
        site.servers[0].down = False
        await probed()
        assert of(1, await take(server, 4))[0] == 5


# --- unverified ------------------------------------------------------------------------------------------------------


@virtual_time
async def test_alone_it_serves_and_warns_or_refuses_as_it_is_told() -> None:
    async with Site(2) as site:
        site.servers[1].down = True
        serving = await site.ticket_server()
        refusing = await site.ticket_server(refuse_unverified=True)
        assert await take(serving, 3) == [1, 3, 5]
        reasons = [warning["reason"] for warning in serving.admin.health()["warnings"]]
        assert any("unprotected" in reason for reason in reasons)
        with pytest.raises(NoTicketDatabase):
            await take(refusing)
        site.servers[1].down = False
        await probed()
        assert len(await take(refusing, 4)) == 4
        assert serving.admin.health()["status"] == "pass"


@virtual_time
async def test_a_database_that_keeps_no_marks_draws_on_and_is_warned_of() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 4)
        site.servers[1].ledger_fails = True
        await probed()
        tickets = await take(server, 6)
        assert {ticket % 2 for ticket in tickets} == {0, 1}
        assert server.admin.health()["status"] == "warn"
        site.servers[1].ledger_fails = False
        await probed()
        await take(server, 2)
        assert server.admin.health()["status"] == "pass"
        assert mark_about(site, 1, on=2).mark >= max(of(1, tickets))


@virtual_time
async def test_a_server_that_lost_touch_opens_its_lanes_again_first() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 2)
        lane = server.lane("photos", 1)
        server.ledger.check(lane)
        assert str(lane.state) == "open"
        lane.marks.read_at -= 60
        server.ledger.check(lane)
        assert lane.state is LaneState.CLOSED


@virtual_time
async def test_a_database_that_is_replaced_in_the_middle_of_opening_a_lane_is_not_drawn_from() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        copy = site.servers[0].snapshot()
        before = await take(server, 30)
        server.lane("photos", 1).close()
        asked = [asyncio.create_task(server.desk.take("photos", 1)) for _ in range(6)]
        await asyncio.sleep(0.003)
        site.servers[0].restore(copy)
        after = [(await task)[0] for task in asked]
        await probed()
        after += await take(server, 6)
        assert not set(before) & set(after)


@virtual_time
async def test_a_table_that_was_made_just_now_loses_no_id_over_a_mark_of_nothing() -> None:
    """Its marks have been asked for, and nobody has drawn from it: there is nothing to move it above."""
    async with Site(2) as site:
        server = await site.ticket_server()
        await server.catalog.find("photos")
        lane = server.lane("photos", 2)
        await lane.open()
        lane.close()
        lane.must_advance = True
        assert sorted(await take(server, 4)) == [1, 2, 3, 4]
