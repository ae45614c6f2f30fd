"""AsyncTickets: the same with `await`, in any loop; what is cancelled is lost, and never given twice."""

from __future__ import annotations

import asyncio
import time

import pytest

from lying_server import Honest, Says, Serve, problem, until
from ticketd_client import AsyncTickets, NoSuchSequence, TicketError, TicketsUnavailable


def test_tickets(serve: Serve) -> None:
    honest = Honest()

    async def run() -> None:
        async with AsyncTickets([serve(honest).url]) as tickets:
            assert await tickets.take("photos") == 1
            got = await tickets.take_many("photos", 5_000)
            one_by_one = [await tickets.take("photos") for _ in range(5_000)]
            assert len({1, *got, *one_by_one}) == 10_001
            assert await tickets.take("photos", key=5) > 0
        with pytest.raises(TicketError, match="closed"):
            await tickets.take("photos")

    asyncio.run(run())
    assert len(honest.calls) < 40


def test_many_tasks_at_once(serve: Serve) -> None:
    async def run(prefetch: int) -> None:
        async with AsyncTickets([serve(Honest(after=0.002)).url], prefetch=prefetch) as tickets:
            got = await asyncio.gather(*(tickets.take("photos") for _ in range(300)))
            assert len(set(got)) == 300

    asyncio.run(run(100))
    asyncio.run(run(0))


def test_one_client_in_several_loops(serve: Serve) -> None:
    tickets = AsyncTickets([serve(Honest()).url])

    async def take() -> list[int]:
        return [await tickets.take("photos") for _ in range(100)]

    got = [each for _ in range(3) for each in asyncio.run(take())]
    assert len(set(got)) == 300
    asyncio.run(tickets.close())


@pytest.mark.parametrize("prefetch", [10, 0])
def test_cancelled_awaits_lose_tickets_and_never_give_one_twice(serve: Serve, prefetch: int) -> None:
    async def run() -> None:
        got: list[int] = []
        async with AsyncTickets([serve(Honest(after=0.01)).url], prefetch=prefetch) as tickets:

            async def take(n: int) -> None:
                got.extend(await tickets.take_many("photos", n))

            for number in range(60):
                tasks = [asyncio.create_task(take(7)) for _ in range(4)]
                await asyncio.sleep(0.001 * (number % 15))
                for task in tasks[::2]:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                assert all(task.cancelled() or task.exception() is None for task in tasks)
        assert len(got) == len(set(got)) >= 60 * 2 * 7

    asyncio.run(run())


def test_what_is_cancelled_before_a_thread_is_free_for_it_is_not_asked(serve: Serve) -> None:
    server = serve(Honest(after=0.3))

    async def run() -> None:
        async with AsyncTickets([server.url], prefetch=0, timeout=10) as tickets:
            tasks = [asyncio.create_task(tickets.take("photos")) for _ in range(40)]
            await asyncio.to_thread(until, lambda: len(server.requests) == 32)
            for task in tasks[32:]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert await tickets.take("photos") > 0

    asyncio.run(run())
    assert len(server.requests) == 33


def test_the_loop_goes_on_while_a_server_is_silent(serve: Serve) -> None:
    async def run() -> None:
        async with AsyncTickets([serve(lambda _: Says({}, after=60)).url], timeout=0.5) as tickets:
            task = asyncio.create_task(tickets.take("photos"))
            began = time.monotonic()
            longest = 0.0
            while not task.done():
                before = time.monotonic()
                await asyncio.sleep(0.001)
                longest = max(longest, time.monotonic() - before)
            assert 0.4 < time.monotonic() - began < 1.5
            assert longest < 0.4
            with pytest.raises(TicketsUnavailable):
                await task

    asyncio.run(run())


def test_errors_and_kinds_without_blocks(serve: Serve) -> None:
    honest = Honest()

    def answer(path: str) -> Says | bytes | None:
        if "nobody" in path:
            return problem(404, "no such sequence")
        return problem(409, "has no blocks") if path.startswith("/block") else honest(path)

    async def run() -> None:
        async with AsyncTickets([serve(answer).url]) as tickets:
            with pytest.raises(NoSuchSequence):
                await tickets.take("nobody")
            assert await tickets.take("likes") == 1
            assert await tickets.take_many("likes", 2) == [3, 5]

    asyncio.run(run())
