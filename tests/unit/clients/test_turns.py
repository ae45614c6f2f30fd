"""All connections together work for a bounded time in one turn of the event loop, and each has its turn."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from app.clients.turns import TURN_SECONDS, ClientGone, Turns
from tests.fakes.virtual_time import virtual_time


class Work:
    """Connections that have pieces of work to do, each of so many `seconds`, on a clock that shows nothing else.

    `done`: the turn of the event loop and the connection of each piece.
    """

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self.turn = 0
        self.done: list[tuple[int, int]] = []
        self.turns = Turns(lambda: self.now)
        self._seconds = seconds

    def begin(self, connection: int, pieces: int) -> None:
        """A connection has read what takes it so many pieces of work."""
        self.turns.take(Connection(self, connection, pieces))

    async def answer(self, request: int, parts: int) -> None:
        """What a coroutine does for one request."""
        await self.turns.wait()
        for _ in range(parts):
            self.do(request)
            await self.turns.wait_for_another()

    def do(self, worker: int) -> None:
        self.now += self._seconds
        self.done.append((self.turn, worker))

    async def go_by(self, enough: Callable[[], bool]) -> None:
        for _ in range(10_000):
            if enough():
                return
            self.turn += 1
            await asyncio.sleep(0)
        raise AssertionError("it never ends")

    def pieces_by_turn(self) -> list[int]:
        turns = [turn for turn, _ in self.done]
        return [turns.count(turn) for turn in sorted(set(turns))]


class Connection:
    """See turns.Worker."""

    def __init__(self, work: Work, number: int, pieces: int) -> None:
        self._work = work
        self._number = number
        self._pieces = pieces

    def work(self, until: float) -> bool:
        while self._pieces:
            self._work.do(self._number)
            self._pieces -= 1
            if self._work.now >= until:
                break
        return self._pieces > 0


@virtual_time
async def test_forty_connections_take_no_more_of_a_turn_than_one() -> None:
    for connections in (1, 40):
        work = Work(TURN_SECONDS / 10)
        for connection in range(connections):
            work.begin(connection, 100)
        await work.go_by(lambda of=work, end=connections: len(of.done) == 100 * end)  # type: ignore[misc]
        assert max(work.pieces_by_turn()) <= 11


@virtual_time
async def test_a_new_connection_does_not_wait_for_those_with_more_to_do() -> None:
    work = Work(TURN_SECONDS / 10)
    for connection in range(40):
        work.begin(connection, 1_000)
    await work.go_by(lambda: work.turn == 50)
    before = len(work.done)
    work.begin(99, 1)
    await work.go_by(lambda: 99 in (connection for _, connection in work.done))
    between = [turn for turn, _ in work.done[before:]]
    assert between[0] >= between[-1] - 1


@virtual_time
async def test_of_coroutines_that_wait_one_works_in_a_turn() -> None:
    work = Work(TURN_SECONDS / 10)
    tasks = [asyncio.create_task(work.answer(request, 5)) for request in range(40)]
    await work.go_by(lambda: len(work.done) == 200)
    first, *others = work.pieces_by_turn()
    assert first <= 11
    assert max(others) <= 2
    await asyncio.gather(*tasks)


@virtual_time
async def test_neither_coroutines_nor_connections_are_starved() -> None:
    work = Work(TURN_SECONDS / 10)
    for connection in range(40):
        work.begin(connection, 10_000)
    tasks = [asyncio.create_task(work.answer(1_000 + request, 3)) for request in range(10)]
    await work.go_by(lambda: sum(worker >= 1_000 for _, worker in work.done) == 30)
    assert work.turn < 200
    assert max(work.pieces_by_turn()) <= 12
    for task in tasks:
        task.cancel()


@virtual_time
async def test_a_coroutine_that_was_cancelled_is_passed_over() -> None:
    work = Work(TURN_SECONDS)
    work.begin(1, 2)
    given_up, next_ = (asyncio.create_task(work.answer(request, 1)) for request in (2, 3))
    await asyncio.sleep(0)
    given_up.cancel()
    await next_
    assert [worker for _, worker in work.done] == [1, 1, 3]
    assert given_up.cancelled()


@virtual_time
async def test_who_has_little_to_do_never_waits() -> None:
    work = Work(TURN_SECONDS / 1_000)
    for number in range(1, 11):
        for connection in range(64):
            work.begin(connection, 1)
        assert len(work.done) == 64 * number
        await asyncio.sleep(0)


@virtual_time
async def test_where_nobody_waits_few_turns_of_the_loop_are_added() -> None:
    """Each of them costs a quick request some of its time."""
    loop = asyncio.get_running_loop()
    work = Work(TURN_SECONDS / 100)
    added: list[object] = []
    call_soon = loop.call_soon

    def counted(callback: Callable[..., object], *arguments: Any, **more: Any) -> asyncio.Handle:
        added.append(getattr(callback, "__self__", None))
        return call_soon(callback, *arguments, **more)

    loop.call_soon = counted  # type: ignore[method-assign, assignment]
    for connection in range(100):
        work.begin(connection, 1)
        await asyncio.sleep(0)
    assert len(work.done) == 100
    assert 1 <= added.count(work.turns) <= 3


@virtual_time
async def test_what_nobody_waits_for_is_not_made() -> None:
    work = Work(TURN_SECONDS)
    work.begin(1, 2)
    waiting, begun = (asyncio.create_task(work.answer(request, 50)) for request in (2, 3))
    await asyncio.sleep(0)
    work.turns.give_up(waiting)
    await work.go_by(lambda: work.done[-1][1] == 3)
    work.turns.give_up(begun)
    for task in (waiting, begun):
        with pytest.raises(ClientGone):
            await task
    assert [worker for _, worker in work.done] == [1, 1, 3]
