"""Growth of a ring, with `ticketd grow` and without: every order of its steps, every moment that stops it."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Sequence

import pytest

from app.commands.grow import GrowthRefused
from app.common.sequences import Width
from app.databases.protocol import Mark, RingState
from app.tickets.ring.ring import Status
from tests.fakes.ticket_database import FakeTicketDatabase
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.agreement.rings import DRIFT, SOON, Rings, errors, statuses

# --- without grow ----------------------------------------------------------------------------------------------------


Act = Callable[[], Coroutine[None, None, None]]
ACTS = ("set 1", "set 2", "restart a", "restart b")


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "marks alone"])
@pytest.mark.parametrize("increment", [None, 3], ids=["unset", "3"])
@pytest.mark.parametrize("order", list(itertools.permutations(ACTS)), ids="-".join)
@virtual_time
async def test_growth_without_grow_in_every_order(
    order: Sequence[str], increment: int | None, *, recorded: bool
) -> None:
    async with Rings(2, 2, 3) as rings:
        servers = {name: await rings.start(1, 2) for name in "ab"}
        rings.drift(2)
        for server in servers.values():
            await rings.take(server, 6)
        if not recorded:
            for each in rings.servers:
                each.state.ring = None
        for act in order:
            what, which = act.split()
            if what == "set":
                rings.configure(3, int(which))
            else:
                await rings.stop(servers[which])
                servers[which] = await rings.start(1, 2, 3, increment=increment)
            for server in servers.values():
                await rings.take(server, 4)
            await asyncio.sleep(SOON)
            for server in servers.values():
                await rings.take(server, 4)
        for server in servers.values():
            assert statuses(server) == [Status.QUARANTINED] * 3
            assert await rings.take(server, 4) == []
            assert all("increment" in error for error in errors(server))
        for server in servers.values():
            await rings.stop(server)
        assert (await rings.grow(1, 2, 3, increment=3)).increment == 3
        server = await rings.start(1, 2, 3, increment=increment)
        assert {each % 3 for each in await rings.take(server, 9)} == {0, 1, 2}


@pytest.mark.parametrize("globals_too", [False, True])
@virtual_time
async def test_the_order_of_the_list_changed(*, globals_too: bool) -> None:
    async with Rings(2, 2) as rings:
        server = await rings.start(1, 2)
        await rings.take(server, 10)
        await rings.stop(server)
        if globals_too:
            rings.servers[0].offset, rings.servers[1].offset = 2, 1
        server = await rings.start(2, 1)
        assert statuses(server) == [Status.QUARANTINED] * 2
        assert all("offset" in error for error in errors(server))


# --- with grow -------------------------------------------------------------------------------------------------------


async def half_way(rings: Rings, *, drifted: int, statements: int) -> "asyncio.Task[object]":
    """Growth from two databases to three, one of them far ahead, that has made so many statements."""
    server = await rings.start(1, 2)
    rings.drift(drifted)
    await rings.take(server, 10)
    await rings.stop(server)
    rings.configure(3, 1, 2)
    return await rings.begin_to_grow(statements)


@virtual_time
async def test_growth_stopped_at_any_moment_leaves_nobody_drawing_until_it_is_done() -> None:
    """Cancelled after each number of statements; servers with old and new lists then look at what is left."""
    for statements in itertools.count(1):
        async with Rings(2, 2, 3) as rings:
            task = await half_way(rings, drifted=1, statements=statements)
            done = task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(SOON)  # the statement that was under way is executed all the same
            for list_ in ((1, 2, 3), (1, 2)):
                late = await rings.start(*list_)
                given = await rings.take(late, 4)
                assert not given or all(rings.state(offset) == (3, RingState.DRAWN) for offset in list_)
                await rings.stop(late)
            if not done:
                await rings.grow(1, 2, 3, increment=3)
            server = await rings.start(1, 2, 3)
            assert {each % 3 for each in await rings.take(server, 9)} == {0, 1, 2}
        if done:
            assert statements > 20
            return


@virtual_time
async def test_growth_with_a_database_that_fails_at_any_moment_says_so_and_may_be_run_again() -> None:
    for statements in itertools.count(1):
        async with Rings(2, 2, 3) as rings:
            task = await half_way(rings, drifted=2, statements=statements)
            rings.servers[statements % 3].down = True
            await asyncio.wait([task])
            failure = task.exception()
            assert failure is None or (isinstance(failure, GrowthRefused) and failure.left)
            rings.servers[statements % 3].down = False
            server = await rings.start(1, 2, 3)
            await rings.take(server, 4)
            await rings.stop(server)
            await rings.grow(1, 2, 3, increment=3)
            server = await rings.start(1, 2, 3)
            assert {each % 3 for each in await rings.take(server, 9)} == {0, 1, 2}
        if failure is None:
            return


@virtual_time
async def test_one_that_is_late_hands_out_nothing_of_the_ring_before() -> None:
    """Growth under a running server, as if `grow` had not seen it: every ticket that it hands out is from before, or of
    the new ring, which it takes up though it is set to the increment of before."""
    async with Rings(2, 2, 3) as rings:
        late = await rings.start(1, 2, increment=2)
        await rings.take(late, 10)
        for each in rings.servers:
            each.increment = 3
        growing = asyncio.create_task(rings.grow(1, 2, 3, increment=3))
        while not growing.done():
            await rings.take(late)
            await asyncio.sleep(0.001)
        await growing
        new = await rings.start(1, 2, 3)
        for _ in range(200):
            await rings.take(late)
            await rings.take(new)
        await asyncio.sleep(SOON)
        assert {ticket % 3 for ticket in await rings.take(late, 4)} == {1, 2}
        assert late.ring.number == new.ring.number


@virtual_time
async def test_one_that_is_late_and_unprotected_hands_out_nothing_of_the_ring_before() -> None:
    async with Rings(2, 2, 3) as rings:
        late = await rings.start(1, 2, increment=2)
        late_view = late.databases[1]
        assert isinstance(late_view, FakeTicketDatabase)
        late_view.cut = True
        await asyncio.sleep(SOON)
        await rings.take(late, 10)
        for each in rings.servers:
            each.increment = 3
        growing = asyncio.create_task(rings.grow(1, 2, 3, increment=3))
        while not growing.done():
            await rings.take(late)
            await asyncio.sleep(0.001)
        new = await rings.start(1, 2, 3)
        for _ in range(200):
            await rings.take(late)
            await rings.take(new)
        assert {ticket % 3 for ticket in await rings.take(late, 4)} == {1}


@virtual_time
async def test_inner_sequences_are_raised_and_made_like_any_other_and_leases_are_kept() -> None:
    async with Rings(2, 2, 3) as rings:
        odd, even, third = rings.servers
        server = await rings.start(1, 2)
        await asyncio.sleep(SOON)
        await rings.take(server, 4)
        await rings.stop(server)
        for each in (odd, even):
            each.make("_1", Width.BIGINT, 1)
        odd.make("_77", Width.BIGINT, 1)
        odd.table("_1").advance(DRIFT)
        even.table("_1").advance(10)
        odd.table("_77").advance(DRIFT * 5)
        token = "life.t1:a"
        even.keep([Mark("_1", 1, 2, DRIFT * 2, DRIFT, token), Mark("_worker_9", 1, 2, 10**13, 10**13, token)])
        rings.configure(3, 1, 2)
        await rings.grow(1, 2, 3, increment=3)
        for each in rings.servers:
            assert each.table("_1").counter > DRIFT * 2
            assert each.table("_77").counter > DRIFT * 5
            kept = {mark.sequence: mark for mark in each.marks(None) if mark.increment == 3}
            assert kept["_1"].mark >= DRIFT * 2
            assert kept["_77"].mark >= DRIFT * 5
            assert kept["_worker_9"].mark == 10**13
        assert "_worker_9" not in third.state.tables


@virtual_time
async def test_growth_is_refused_while_a_server_is_alive_and_where_the_order_changed() -> None:
    async with Rings(2, 2, 3) as rings:
        await rings.stop(await rings.start(1, 2))
        server = await rings.start(1, 2)
        await rings.take(server, 10)
        await rings.stop(server)
        rings.configure(3, 1, 2)
        before = [each.state.ring for each in rings.servers]
        rings.servers[1].alive = ["a connection of ticketd from 10.0.0.1"]
        with pytest.raises(GrowthRefused, match="fake2:3306 is in use by a connection of ticketd"):
            await rings.grow(1, 2, 3, increment=3)
        rings.servers[1].alive = []
        rings.servers[0].offset, rings.servers[1].offset = 2, 1
        with pytest.raises(GrowthRefused, match="was drawn at offset 2, and TICKETS_DATABASES lists it at 1"):
            await rings.grow(2, 1, 3, increment=3)
        with pytest.raises(GrowthRefused, match="two of the URLs lead to one server"):
            await rings.grow(1, 1, increment=3)
        assert [each.state.ring for each in rings.servers] == before


# --- records that are missing, old, or somebody else's ---------------------------------------------------------------


@pytest.mark.parametrize("which", [1, 2, 3])
@virtual_time
async def test_one_restored_from_before_the_growth_is_raised_above_everything(which: int) -> None:
    async with Rings(2, 2, 3) as rings:
        server = await rings.start(1, 2)
        await rings.take(server, 10)
        await rings.stop(server)
        copy = rings.servers[which - 1].snapshot()
        rings.configure(3, 1, 2)
        await rings.grow(1, 2, 3, increment=3)
        server = await rings.start(1, 2, 3)
        await rings.take(server, 30)
        rings.servers[which - 1].restore(copy)
        await asyncio.sleep(SOON)
        highest = max(rings.issued)
        tickets = await rings.take(server, 30)
        assert {each % 3 for each in tickets} == {0, 1, 2}
        assert all(each > highest for each in tickets if each % 3 == which % 3)


@pytest.mark.parametrize("increment", [None, 3], ids=["unset", "3"])
@virtual_time
async def test_a_new_database_that_answers_alone_forms_no_ring_beside_the_one_there_is(increment: int | None) -> None:
    """The old ones are away for a moment, as in a growth by hand they are; old servers then go on with them."""
    async with Rings(2, 2, 3) as rings:
        old = await rings.start(1, 2)
        await rings.take(old, 20)
        for each in rings.servers[:2]:
            each.down = True
        new = await rings.start(1, 2, 3, increment=increment)
        await rings.take(new, 6)
        for each in rings.servers[:2]:
            each.down = False
        await asyncio.sleep(SOON)
        for _ in range(10):
            await rings.take(old)
            await rings.take(new)


@pytest.mark.parametrize("alone", [1, 2, 3])
@virtual_time
async def test_after_growth_each_database_stands_above_everything_by_itself(alone: int) -> None:
    """With the others away nobody can read the marks: what was raised has to be in the table."""
    async with Rings(2, 2, 3) as rings:
        server = await rings.start(1, 2)
        rings.drift(2)
        await rings.take(server, 10)
        await rings.stop(server)
        rings.configure(3, 1, 2)
        await rings.grow(1, 2, 3, increment=3)
        for each in rings.servers:
            each.down = each.offset != alone
        highest = max(rings.issued)
        server = await rings.start(1, 2, 3)
        assert min(await rings.take(server, 4)) > highest
