"""The ledger: nothing skipped where nothing went back, everything skipped where something may have."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from app.databases.protocol import Mark
from app.errors import MarkRefused, NoTicketDatabase, SequenceExhausted, TicketDatabaseBusy
from app.lane import Lane, LaneState
from app.ledger import LARGEST_STEP, SMALLEST_STEP, life_of
from app.sequences import Width
from tests.fakes.ticket_database import FakeServer, FakeState
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time


async def take(server: FakeTicketServer, times: int = 1, sequence: str = "photos") -> list[int]:
    return [(await server.issuer.issue(sequence, 1))[0] for _ in range(times)]


async def take_all(server: FakeTicketServer, sequence: str, given: list[int]) -> None:
    while True:
        given += await take(server, 1, sequence)


def of(offset: int, tickets: list[int], increment: int = 2) -> list[int]:
    """Those of the tickets that the database of this offset gave."""
    return [ticket for ticket in tickets if ticket % increment == offset % increment]


def mark_about(site: Site, offset: int, *, on: int, sequence: str = "photos") -> Mark:
    found = site.servers[on - 1].mark(sequence, offset)
    assert found is not None
    return found


async def probed() -> None:
    await asyncio.sleep(2.2)


# --- reserving -------------------------------------------------------------------------------------------------------


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
        block = await server.issuer.issue("photos", 30_000, whole=True)
        assert mark_about(site, 1, on=2).mark >= block[-1]


@virtual_time
async def test_marks_cost_next_to_nothing_per_ticket() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 2)
        before = sum(database.statements for database in site.servers)
        for _ in range(20):
            await server.issuer.issue("photos", 20)
        assert sum(database.statements for database in site.servers) - before <= 22


@virtual_time
async def test_steps_grow_while_they_go_by_quickly_and_shrink_when_they_last() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        lane = await an_open_lane(server)
        steps = []
        for _ in range(20):
            await server.issuer.issue("photos", 30_000, whole=True)
            steps.append(lane.step)
        assert steps[-1] > 50 * SMALLEST_STEP
        assert max(steps) <= LARGEST_STEP
        grown = lane.step
        await asyncio.sleep(100)
        for _ in range(2):
            await server.ledger.reserve(lane, lane.fence.highest)
        assert lane.step <= grown


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
        table.raise_above(table.ceiling - 320)
        ticket = of(1, await take(server, 2))[0]
        assert ticket <= table.ceiling
        assert mark_about(site, 1, on=2).mark <= ticket + 320 // 16 + 2


@virtual_time
async def test_a_late_reservation_is_refused_and_what_was_drawn_is_dropped() -> None:
    """One server drew before the sequence was moved up by another, and reserves after it."""
    async with Site(2) as site:
        late, other = await site.ticket_server(), await site.ticket_server()
        await take(late, 2)
        await take(other, 2)
        lane = late.lane("photos", 1)
        row = mark_about(site, 1, on=2)
        site.servers[1].renew(row, replace(row, token="another-life:1", mark=row.mark + 5000))
        with pytest.raises(MarkRefused):
            await late.ledger.reserve(lane, lane.mark + 2)
        kept = mark_about(site, 1, on=2)
        assert kept.token == "another-life:1"
        assert kept.mark == row.mark + 5000


@virtual_time
async def test_no_ticket_of_an_old_token_is_handed_out_above_the_mark() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 2)
        row = mark_about(site, 1, on=2)
        site.servers[1].renew(row, replace(row, token=f"{life_of(row.token)}:another"))
        opened = server.lane("photos", 1).token
        tickets = await server.issuer.issue("photos", 30_000, whole=True)
        assert tickets[0] % 2 == 0  # the odd one's were dropped: its reservation was refused
        assert server.metrics.violations["fake1:3306", "mark"] == 1
        await take(server, 2)
        assert server.lane("photos", 1).token != opened


@virtual_time
async def test_a_token_that_another_server_renewed_is_seen_by_the_next_probe() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 2)
        row = mark_about(site, 1, on=2)
        renewed = f"{life_of(row.token)}:another"
        site.servers[1].renew(row, replace(row, token=renewed))
        await probed()
        await take(server, 4)
        assert server.lane("photos", 1).token == renewed
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
        assert one.lane("photos", 1).token == other.lane("photos", 1).token


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


# --- something may have gone back ------------------------------------------------------------------------------------


def restored(site: Site, copy: FakeState) -> None:
    site.servers[0].restore(copy)


def replaced(site: Site, _: FakeState) -> None:
    site.servers[0].replace_by_empty()


def truncated(site: Site, _: FakeState) -> None:
    site.servers[0].truncate("photos")


def remade(site: Site, _: FakeState) -> None:
    site.servers[0].remake("photos")


def dropped(site: Site, _: FakeState) -> None:
    site.servers[0].drop("photos")


LOSSES = [restored, replaced, truncated, remade, dropped]


@pytest.mark.parametrize("goes_back", LOSSES)
def test_moved_above_its_mark_under_a_running_server(goes_back: Callable[[Site, FakeState], None]) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            server = await site.ticket_server()
            copy = site.servers[0].snapshot()
            before = await take(server, 40)
            await probed()
            high = mark_about(site, 1, on=2)
            goes_back(site, copy)
            after = await take(server, 10)
            await asyncio.sleep(8)
            after += await take(server, 10)
            assert not set(before) & set(after)
            assert min(of(1, after)) > high.issued
            assert len(of(1, after)) >= 5
            assert server.overseer.health()["status"] == "pass"

    scenario()


@pytest.mark.parametrize("goes_back", LOSSES)
def test_moved_above_its_mark_while_every_server_was_down(goes_back: Callable[[Site, FakeState], None]) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            server = await site.ticket_server()
            await take(server, 2)
            copy = site.servers[0].snapshot()
            before = await take(server, 40)
            site.servers[0].down = True  # so that stopping writes nothing more
            goes_back(site, copy)
            site.servers[0].down = False
            server = await site.restart(server)
            await asyncio.sleep(8)
            after = await take(server, 20)
            assert not set(before) & set(after)
            assert len(of(1, after)) >= 5

    scenario()


@virtual_time
async def test_a_sequence_that_nobody_asks_for_is_moved_up_too_before_its_marks_are_lost() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        copy = site.servers[0].snapshot()
        before = await take(server, 40)
        await probed()
        site.servers[0].restore(copy)
        await asyncio.sleep(8)
        site.servers[1].replace_by_empty()
        server = await site.restart(server)
        await asyncio.sleep(8)
        after = await take(server, 6)
        assert not set(before) & set(after)


@virtual_time
async def test_a_server_that_was_idle_on_the_sequence_notices_too() -> None:
    async with Site(2) as site:
        busy, idle = await site.ticket_server(), await site.ticket_server()
        await take(idle, 2)
        before = await take(busy, 60)
        await probed()
        site.servers[0].truncate("photos")
        assert not set(before) & set(await take(idle, 4))
        await probed()
        after = await take(idle, 6)
        assert not set(before) & set(after)
        assert of(1, after)


@virtual_time
async def test_a_counter_below_what_is_known_issued_is_moved_up_before_the_first_draw() -> None:
    """Truncated under the same life, and others have drawn from it since: its rows are no sign any more."""
    async with Site(2) as site:
        server = await site.ticket_server()
        before = await take(server, 60)
        await probed()
        site.servers[0].truncate("photos")
        site.servers[0].draw("photos", 3)
        server = await site.restart(server)
        after = of(1, await take(server, 4))
        assert min(after) > max(before)
        assert server.metrics.violations["fake1:3306", "order"] == 0


@virtual_time
async def test_after_it_was_moved_up_the_token_is_new_everywhere() -> None:
    async with Site(3) as site:
        server = await site.ticket_server()
        copy = site.servers[0].snapshot()
        await take(server, 30)
        old = mark_about(site, 1, on=2).token
        site.servers[0].restore(copy)
        await take(server, 6)
        await probed()
        await take(server, 6)
        tokens = {mark_about(site, 1, on=2).token, mark_about(site, 1, on=3).token}
        assert len(tokens) == 1
        assert life_of(tokens.pop()) != life_of(old)


@virtual_time
async def test_a_restart_of_the_database_under_load_is_moved_above_the_mark() -> None:
    """It cannot be told from a restored one: the mark lies above where it stands."""
    async with Site(2) as site:
        server = await site.ticket_server()
        before = await take(server, 10)
        high = mark_about(site, 1, on=2).mark
        site.servers[0].restart()
        await take(server, 2)
        await probed()
        assert min(of(1, await take(server, 4))) > high > max(before)


class Meddling(FakeServer):
    """Lets somebody reserve at the very moment before a row is renewed."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.meddle: list[Mark] = []
        self.refused = 0

    def renew(self, old: Mark, new: Mark) -> Mark:
        while self.meddle:
            self.reserve([self.meddle.pop()])
        row = super().renew(old, new)
        self.refused += row.token != new.token
        return row


@virtual_time
async def test_who_reserves_while_it_is_moved_up_makes_the_move_begin_again() -> None:
    """The late server reserved in time and hands its tickets out: the move has to end above them."""
    async with Site(2) as site:
        meddling = site.servers[1] = Meddling(2)
        server = await site.ticket_server()
        copy = site.servers[0].snapshot()
        await take(server, 30)
        row = mark_about(site, 1, on=2)
        late = replace(row, mark=row.mark + 7_000, issued=row.issued)
        site.servers[0].restore(copy)
        meddling.meddle.append(late)
        await take(server, 2)
        await probed()
        after = of(1, await take(server, 6))
        assert meddling.refused >= 1
        assert min(after) > late.mark


@virtual_time
async def test_who_reserves_again_and_again_ends_the_attempt_not_the_protection() -> None:
    async with Site(2) as site:
        meddling = site.servers[1] = Meddling(2)
        server = await site.ticket_server()
        await take(server, 30)
        lane = server.lane("photos", 1)
        row = mark_about(site, 1, on=2)
        meddling.meddle = [replace(row, mark=row.mark + step) for step in range(40_000, 0, -1000)]

        def one_at_a_time(old: Mark, new: Mark) -> Mark:
            meddling.reserve([meddling.meddle.pop()] if meddling.meddle else [])
            return FakeServer.renew(meddling, old, new)

        meddling.renew = one_at_a_time  # type: ignore[method-assign]
        lane.must_rise = True
        with pytest.raises(TicketDatabaseBusy, match="again and again"):
            await server.ledger.open(lane)
        assert mark_about(site, 1, on=2).token == row.token


@virtual_time
async def test_marks_lost_with_their_database_are_given_to_the_one_in_its_place() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        before = await take(server, 40)
        await probed()
        site.servers[1].replace_by_empty()
        await asyncio.sleep(8)
        assert mark_about(site, 1, on=2).mark >= max(of(1, before))
        assert not set(before) & set(await take(server, 10))


@virtual_time
async def test_what_was_drawn_while_the_other_was_away_is_known_to_it_when_it_is_back() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        copy = site.servers[0].snapshot()
        await take(server, 2)
        site.servers[1].down = True
        alone = of(1, await take(server, 50))
        site.servers[1].down = False
        await probed()
        assert mark_about(site, 1, on=2).mark >= max(alone)
        site.servers[0].restore(copy)
        await take(server, 2)
        await probed()
        assert min(of(1, await take(server, 4))) > max(alone)


@virtual_time
async def test_what_was_issued_while_another_came_up_is_told_to_it_without_a_further_draw() -> None:
    """Its counter was read for the one that came up, then it drew below the mark it had; then it is idle."""
    async with Site(2) as site:
        server = await site.ticket_server()
        tickets = await take(server, 40)
        lane = server.lane("photos", 1)
        lane.mark = lane.reserve_at = 0  # as when a database has been taken in
        await probed()
        assert mark_about(site, 1, on=2).issued == max(of(1, tickets))


@virtual_time
async def test_a_ledger_that_is_itself_restored_is_lifted_by_the_others() -> None:
    async with Site(3) as site:
        server = await site.ticket_server()
        await take(server, 3)
        old = site.servers[2].snapshot()
        before = await take(server, 60)
        await probed()
        site.servers[2].restore(old)
        await asyncio.sleep(3)
        for offset in (1, 2):
            assert mark_about(site, offset, on=3).mark >= max(of(offset, before, 3))


@virtual_time
async def test_admission_fills_both_directions() -> None:
    """What comes up receives what the others keep, and those receive what they lack about it."""
    async with Site(3, ["photos", "accounts"]) as site:
        site.servers[2].down = True
        server = await site.ticket_server()
        tickets = await take(server, 20)
        site.servers[2].table("accounts").draw(500, 3, 3)  # it has issued some that nobody else knows of
        site.servers[2].down = False
        await probed()
        for offset in (1, 2):
            assert mark_about(site, offset, on=3).mark >= max(of(offset, tickets, 3))
        for other in (1, 2):
            assert mark_about(site, 3, on=other, sequence="accounts").mark >= 1497


@virtual_time
async def test_the_larger_mark_wins() -> None:
    async with Site(3) as site:
        row = Mark("photos", 1, 3, 5_000, 4_000, "an-old-life:1")
        site.servers[1].reserve([row])
        site.servers[2].reserve([replace(row, mark=9_000, token="an-older-life:2")])
        server = await site.ticket_server()
        assert min(of(1, await take(server, 6), 3)) > 9_000


# --- unverified ------------------------------------------------------------------------------------------------------


@virtual_time
async def test_alone_it_serves_and_warns_or_refuses_as_it_is_told() -> None:
    async with Site(2) as site:
        site.servers[1].down = True
        serving = await site.ticket_server()
        refusing = await site.ticket_server(refuse_unverified=True)
        assert await take(serving, 3) == [1, 3, 5]
        reasons = [warning["reason"] for warning in serving.overseer.health()["warnings"]]
        assert any("unprotected" in reason for reason in reasons)
        with pytest.raises(NoTicketDatabase):
            await take(refusing)
        site.servers[1].down = False
        await probed()
        assert len(await take(refusing, 4)) == 4
        assert serving.overseer.health()["status"] == "pass"


@virtual_time
async def test_a_database_that_keeps_no_marks_draws_on_and_is_warned_of() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 4)
        site.servers[1].ledger_fails = True
        await probed()
        tickets = await take(server, 6)
        assert {ticket % 2 for ticket in tickets} == {0, 1}
        assert server.overseer.health()["status"] == "warn"
        site.servers[1].ledger_fails = False
        await probed()
        await take(server, 2)
        assert server.overseer.health()["status"] == "pass"
        assert mark_about(site, 1, on=2).mark >= max(of(1, tickets))


@virtual_time
async def test_a_server_that_lost_touch_opens_its_lanes_again_first() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 2)
        lane = server.lane("photos", 1)
        server.ledger.check(lane)
        assert str(lane.state) == "open"
        lane.read_at -= 60
        server.ledger.check(lane)
        assert lane.state is LaneState.CLOSED


@virtual_time
async def test_a_database_that_is_replaced_in_the_middle_of_opening_a_lane_is_not_drawn_from() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        copy = site.servers[0].snapshot()
        before = await take(server, 30)
        server.lane("photos", 1).close()
        asked = [asyncio.create_task(server.issuer.issue("photos", 1)) for _ in range(6)]
        await asyncio.sleep(0.003)
        site.servers[0].restore(copy)
        after = [(await task)[0] for task in asked]
        await probed()
        after += await take(server, 6)
        assert not set(before) & set(after)


# --- bump ------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_after_a_bump_everything_is_larger_on_every_database_and_every_server() -> None:
    async with Site(2) as site:
        one, other = await site.ticket_server(), await site.ticket_server()
        await take(one, 4)
        await take(other, 4)
        await one.overseer.bump("photos", 100_000, force=False)
        assert min(await take(one, 4) + await take(other, 4)) > 100_000


@virtual_time
async def test_a_smaller_number_changes_nothing() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 10)
        await server.overseer.bump("photos", 3, force=False)
        assert await take(server, 2) == [11, 12]


@virtual_time
async def test_a_bump_is_kept_by_the_others_so_that_an_older_copy_is_moved_above_it() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 4)
        copy = site.servers[0].snapshot()
        await server.overseer.bump("photos", 100_000, force=False)
        site.servers[0].restore(copy)
        await asyncio.sleep(3)
        assert min(await take(server, 6)) > 100_000


@virtual_time
async def test_a_bump_while_tickets_are_drawn_gives_none_twice() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        tickets: list[int] = []
        floor = 0

        async def draw() -> None:
            while floor < 50_000 or len(tickets) < 300:
                asked_above = floor
                tickets.extend(await server.issuer.issue("photos", 1))
                assert tickets[-1] > asked_above

        drawing = [asyncio.create_task(draw()) for _ in range(4)]
        for above in (500, 5_000, 50_000):
            await asyncio.sleep(0.03)
            await server.overseer.bump("photos", above, force=False)
            floor = above
        await asyncio.gather(*drawing)
        assert len(tickets) == len(set(tickets))


@virtual_time
async def test_while_a_database_is_away_there_is_no_bump() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 2)
        site.servers[1].down = True
        await probed()
        with pytest.raises(NoTicketDatabase):
            await server.overseer.bump("photos", 1_000, force=False)


# --- the end of a sequence -------------------------------------------------------------------------------------------


@virtual_time
async def test_an_int_column_gives_each_id_once_to_the_very_end_on_both_sides() -> None:
    async with Site(2, []) as site:
        for database in site.servers:
            database.make("small", Width.INT, 1)
            database.use_up("small", 40)
        server = await site.ticket_server()
        given: list[int] = []
        with pytest.raises(SequenceExhausted):
            await take_all(server, "small", given)
        assert len(given) == len(set(given)) >= 30
        assert max(given) < 2**32 - 1  # MySQL gives that one again and again: never certain to be the first time


@virtual_time
async def test_a_database_restored_from_before_its_end_is_moved_to_the_end_at_once() -> None:
    """The marks that say so may be lost later, with the database that keeps them."""
    async with Site(2, []) as site:
        for database in site.servers:
            database.make("small", Width.INT, 1)
            database.use_up("small", 100)
        server = await site.ticket_server()
        copy = site.servers[1].snapshot()
        given: list[int] = []
        with pytest.raises(SequenceExhausted):
            await take_all(server, "small", given)
        await probed()
        site.servers[1].restore(copy)
        await probed()
        with pytest.raises(SequenceExhausted):
            await take_all(server, "small", given)
        site.servers[0].replace_by_empty()
        server = await site.restart(server)
        await asyncio.sleep(8)
        with pytest.raises(SequenceExhausted):
            await take_all(server, "small", given)
        assert len(given) == len(set(given))


@virtual_time
async def test_the_ceiling_of_an_int_column_is_never_handed_out_twice() -> None:
    async with Site(2, []) as site:
        for database in site.servers:
            database.make("small", Width.INT, 1)
            database.use_up("small", 4)
        one, other = await site.ticket_server(), await site.ticket_server()
        given: list[int] = []
        for server in (one, other, one, other):
            with pytest.raises((SequenceExhausted, NoTicketDatabase)):
                await take_all(server, "small", given)
        assert len(given) == len(set(given))
