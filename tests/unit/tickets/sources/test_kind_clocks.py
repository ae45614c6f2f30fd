"""Kinds whose ids hold a time, on clocks that are wrong, and the most ids that they give at once."""

import asyncio
from typing import Any

import pytest

from app.common.errors import (
    ClockAhead,
    ClockWentBack,
    TicketError,
    TooManyAtOnce,
    Unavailable,
)
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.sources.stamping import COUNTED, DAY, HOUR, YEAR, Wall, made, read, take, true_ms


@pytest.mark.parametrize("kind", ["instagram", "snowflake", "flake", "objectid", "uuid7", "ulid", "simpleflake"])
@pytest.mark.parametrize("off", [HOUR, YEAR])
def test_a_server_that_is_ahead_stamps_nothing_and_harms_nobody(kind: str, off: float) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            right, wall = await site.ticket_server(), Wall()
            wrong = await site.ticket_server(wall=wall)
            await made(right, kind)
            await take(right)
            await take(wrong)
            wall.off = off  # between two probes
            for _ in range(3):
                with pytest.raises(ClockAhead):
                    await take(wrong)
                (id_,) = await take(right)
                assert abs(read(right, id_)["time_ms"] - true_ms()) < 1000
                await asyncio.sleep(1.5)
            assert any("ahead" in warning["reason"] for warning in wrong.admin.health()["warnings"])
            wall.off = 0
            await take(wrong)

    scenario()


@pytest.mark.parametrize("off", [-0.3, -5.0, -HOUR, -DAY])
@virtual_time
async def test_instagram_goes_on_where_a_clock_was_set_back(off: float) -> None:
    async with Site(2) as site:
        wall = Wall()
        wrong, right = await site.ticket_server(wall=wall), await site.ticket_server()
        await made(wrong, "instagram")
        seen = await take(wrong, 10)
        wall.off = off
        for _ in range(5):
            seen += await take(wrong, 10)
            seen += await take(right, 10)
            await asyncio.sleep(0.5)
        assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("kind", ["snowflake", "flake", "objectid"])
def test_what_is_counted_in_memory_waits_for_a_clock_that_went_back_a_little(kind: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            wall = Wall()
            server = await site.ticket_server(wall=wall)
            await made(server, kind)
            seen = await take(server, 10)
            wall.off = -1.2
            seen += await take(server, 10)
            wall.off = -DAY
            began = true_ms()
            with pytest.raises(ClockWentBack):
                await take(server)
            assert true_ms() - began < 100
            wall.off = 0
            await asyncio.sleep(2)
            seen += await take(server, 10)
            assert seen == sorted(set(seen))

    scenario()


@virtual_time
async def test_more_than_a_moment_holds_are_stamped_a_little_ahead_and_then_wait() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server, "instagram32")
        answers = await asyncio.gather(*(take(server, 4) for _ in range(60)), return_exceptions=True)
        given = [id_ for ids in answers if isinstance(ids, list) for id_ in ids]
        refused = [error for error in answers if isinstance(error, TicketError)]
        assert len(given) == len(set(given)) >= 64
        assert refused
        assert max(read(server, id_)["time_ms"] for id_ in given) <= true_ms() + 2_000
        await asyncio.sleep(2)
        await take(server)
        with pytest.raises(TooManyAtOnce, match="likes gives 16 ids at once at the most: count is 17"):
            await take(server, 17)


async def given(server: FakeTicketServer, count: int) -> list[Any] | int:
    """That many ids, asked for as a client does that takes a 503 for what it says; or how many there are at most."""
    for _ in range(400):
        try:
            return await take(server, count)
        except TooManyAtOnce as error:
            return int(str(error).split()[2])
        except Unavailable:
            await asyncio.sleep(0.1)
    raise AssertionError(f"{count} ids at once were neither given nor refused for being too many")


@pytest.mark.parametrize("increment", [2, 3, 5, 16, 31, 33, 40, 90])
@pytest.mark.parametrize("kind", COUNTED)
def test_as_many_ids_as_are_named_at_the_most_are_given(kind: str, increment: int) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(3 if increment == 3 else 2, increment=increment) as site:
            server = await site.ticket_server(largest_block=65_535 // increment)
            await made(server, kind)
            most = await given(server, 1_000_000)
            assert isinstance(most, int)
            assert most == max(1, min(65_535 // increment, 33 // increment if kind == "instagram32" else 65_535))
            seen: list[Any] = []
            for count in (*range(1, min(most, 40) + 1), most, most):
                ids = await given(server, count)
                assert isinstance(ids, list), count
                assert len(ids) == count
                seen += ids
            assert len(set(seen)) == len(seen)
            for count in {most + 1, 32, 33, 1_000}:
                answer = await given(server, count)
                assert answer == most if isinstance(answer, int) else len(answer) == count <= most

    scenario()


@pytest.mark.parametrize("reserve_seconds", [0.0, 5.0])
def test_more_tickets_than_a_database_ever_draws_at_once_are_refused(reserve_seconds: float) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2, ["likes"], increment=100) as site:
            server = await site.ticket_server(largest_block=655, reserve_seconds=reserve_seconds)
            assert len(await take(server, 655)) == 655
            for count in (656, 1_000):
                with pytest.raises(
                    TooManyAtOnce, match=f"likes gives 655 tickets at once at the most: count is {count}"
                ):
                    await take(server, count)
            assert len(await take(server, 655)) == 655

    scenario()
