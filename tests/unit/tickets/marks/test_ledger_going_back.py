"""The ledger: everything skipped where a database may have gone back."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from app.common.errors import TicketDatabaseBusy
from app.databases.protocol import USE_INTERVALS, Mark
from app.tickets.marks.token import epoch_of
from tests.fakes.ticket_database import FakeServer, FakeState
from tests.fakes.ticket_server import PROBE_INTERVAL, Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.ledgers import mark_about, of, probed, take

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
            assert server.admin.health()["status"] == "pass"

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
        assert epoch_of(tokens.pop()) != epoch_of(old)


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


@virtual_time
async def test_marks_that_were_read_hold_though_their_database_fails_a_moment_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is asked for more than its marks when another one is taken in, and may answer only the first question."""
    async with Site(2) as site:
        busy, late = await site.ticket_server(), await site.ticket_server()
        copy = site.servers[1].snapshot()
        before = await take(busy, 20)
        witness = late.databases[0]

        read = witness.marks

        async def down_then(changed_within: float | None = None) -> list[Mark]:
            marks = await read(changed_within)
            site.servers[0].down = True
            return marks

        monkeypatch.setattr(witness, "marks", down_then)
        site.servers[1].restore(copy)
        late.ring.members[1].wake.set()  # before it reads the marks of the other one with a probe
        await asyncio.sleep(0.3)
        assert [member.up for member in late.ring.members] == [False, True]
        assert min(of(2, await take(late, 4))) > max(of(2, before))


@virtual_time
async def test_what_was_issued_under_another_token_is_told_as_well() -> None:
    """A lane that opened while nobody could be asked has a token of its own, and may never be asked again."""
    async with Site(2) as site:
        first = await site.ticket_server()
        await take(first, 6)
        site.servers[0].down = True
        await probed()
        second = await site.ticket_server()
        alone = await take(second, 5)
        assert second.lane("photos", 2).marks.token != mark_about(site, 2, on=1).token
        site.servers[0].heal()
        await probed()
        await probed()
        assert mark_about(site, 2, on=1).issued >= max(alone)


class Meddling(FakeServer):
    """Has another server set a mark just before the row is superseded."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.meddle: list[Mark] = []
        self.refused = 0

    def supersede(self, old: Mark, new: Mark, ring: int | None = None) -> Mark:
        while self.meddle:
            self.keep([self.meddle.pop()])
        row = super().supersede(old, new, ring)
        self.refused += row.token != new.token
        return row


@virtual_time
async def test_who_reserves_while_it_is_moved_up_makes_the_move_begin_again() -> None:
    """The late server set its mark in time and hands its tickets out, so the advance has to end above them."""
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

        def one_at_a_time(old: Mark, new: Mark, ring: int | None = None) -> Mark:
            meddling.keep([meddling.meddle.pop()] if meddling.meddle else [])
            return FakeServer.supersede(meddling, old, new, ring)

        meddling.supersede = one_at_a_time  # type: ignore[method-assign]
        lane.must_advance = True
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
        lane.marks.lapse()  # as when a database has been taken in
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
async def test_what_the_only_witness_knows_counts_when_it_is_back_though_larger_marks_were_kept_without_it() -> None:
    """The second one's first life was witnessed by the first alone, its second life by the third alone."""
    async with Site(3) as site:
        first, second, third = site.servers
        copy = second.snapshot()
        third.down = True
        server = await site.ticket_server()
        first_life = of(2, await take(server, 40), 3)
        first.down = True  # before it is told how many of them were issued
        await site.stop(server)
        third.down = False
        second.restore(copy)
        server = await site.ticket_server()
        lists = [await server.desk.take("photos", 10) for _ in range(2)]
        second_life = of(2, [ticket for tickets in lists for ticket in tickets], 3)
        assert max(second_life) < max(first_life)  # nobody who answered knew
        assert mark_about(site, 2, on=3).mark > mark_about(site, 2, on=1).mark
        first.down = False
        await asyncio.sleep((USE_INTERVALS + 2) * PROBE_INTERVAL)  # the server before is announced there
        assert min(of(2, await take(server, 6), 3)) > max(first_life)


@virtual_time
async def test_the_larger_mark_wins() -> None:
    async with Site(3) as site:
        row = Mark("photos", 1, 3, 5_000, 4_000, "an-old-life:1")
        site.servers[1].keep([row])
        site.servers[2].keep([replace(row, mark=9_000, token="an-older-life:2")])
        server = await site.ticket_server()
        assert min(of(1, await take(server, 6), 3)) > 9_000
