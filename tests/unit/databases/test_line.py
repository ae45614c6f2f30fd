"""A line holds one connection: when it opens another one, and which errors it raises."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from app.common.errors import (
    NoFurtherConnection,
    SequenceMissing,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseUnavailable,
)
from app.databases.line import SMALL_ANSWER, Line

SECONDS = 5.0


class DriverError(Exception):
    """What a driver raises."""


class FakeConnection:
    """A connection that counts what is done to it."""

    def __init__(self, life: str = "one") -> None:
        self.life = life
        self.identity = "server"
        self.opened = time.monotonic()
        self.usable = True
        self.expected: list[int] = []
        self.ended = ""

    def expect(self, most: int) -> None:
        self.expected.append(most)

    def translated(self, error: Exception) -> TicketDatabaseError | None:
        if isinstance(error, DriverError):
            return TicketDatabaseBusy("was busy") if str(error) == "busy" else TicketDatabaseUnavailable(str(error))
        return None

    def drop(self) -> None:
        self.ended += "dropped"

    async def leave(self) -> None:
        self.ended += "left"


def line_of(*opens: FakeConnection | TicketDatabaseError, seconds: float = SECONDS) -> Line[FakeConnection]:
    """A line that opens these connections in turn; an error stands for a connection that cannot be opened."""
    waiting = list(opens)

    async def opener() -> FakeConnection:
        found = waiting.pop(0)
        if isinstance(found, TicketDatabaseError):
            raise found
        return found

    return Line(opener, seconds)


def raises(error: Exception) -> Callable[[FakeConnection], Awaitable[None]]:
    async def work(_: FakeConnection) -> None:
        raise error

    return work


async def itself(connection: FakeConnection) -> FakeConnection:
    return connection


async def test_a_connection_is_opened_once_and_told_how_much_to_expect() -> None:
    only = FakeConnection()
    line = line_of(only)
    assert line.connection is None
    assert await line.run(itself) is only
    assert await line.run(itself, "one", most=7) is only
    assert only.expected == [SMALL_ANSWER, 7]


async def test_one_that_leads_elsewhere_is_opened_again_once() -> None:
    old, new, third = FakeConnection(), FakeConnection("two"), FakeConnection("three")
    line = line_of(old, new, third)
    await line.run(itself)
    assert await line.run(itself, "two") is new
    assert old.ended == "dropped"
    with pytest.raises(TicketDatabaseUnavailable, match="was restarted or replaced"):
        await line.run(itself, "one")
    assert (new.ended, third.ended, line.connection) == ("dropped", "dropped", None)


async def test_a_new_one_that_leads_elsewhere_is_not_opened_again() -> None:
    line = line_of(FakeConnection("two"))
    with pytest.raises(TicketDatabaseUnavailable):
        await line.run(itself, "one")


async def test_where_no_new_one_can_be_had_the_old_one_goes_on() -> None:
    old = FakeConnection()
    line = line_of(old, NoFurtherConnection("has too many connections"), TicketDatabaseUnavailable("is away"))
    await line.run(itself)
    assert await line.run(itself, new=True) is old
    with pytest.raises(TicketDatabaseUnavailable, match="is away"):
        await line.run(itself, new=True)
    assert line.connection is old


@pytest.mark.parametrize(
    ("error", "told", "keeps"),
    [
        (DriverError("busy"), TicketDatabaseBusy, True),
        (DriverError("is away"), TicketDatabaseUnavailable, False),
        (SequenceMissing(), SequenceMissing, True),
        (ZeroDivisionError(), TicketDatabaseUnavailable, False),
    ],
)
async def test_an_error_drops_the_connection_unless_it_is_as_it_was(
    error: Exception, told: type[Exception], keeps: bool
) -> None:
    only = FakeConnection()
    line = line_of(only)
    with pytest.raises(told):
        await line.run(raises(error))
    assert (line.connection is only) == keeps


async def test_an_error_that_leaves_it_in_a_transaction_drops_it() -> None:
    only = FakeConnection()
    line = line_of(only)

    async def work(connection: FakeConnection) -> None:
        connection.usable = False
        raise DriverError("busy")

    with pytest.raises(TicketDatabaseBusy):
        await line.run(work)
    assert line.connection is None


async def test_what_does_not_end_is_given_up_in_time_and_dropped() -> None:
    only = FakeConnection()
    line = line_of(only, seconds=0.2)
    with pytest.raises(TicketDatabaseHung):
        await line.run(lambda _: asyncio.sleep(60))
    assert only.ended == "dropped"


async def test_a_caller_that_is_cancelled_drops_it_and_those_behind_go_on() -> None:
    one, other = FakeConnection(), FakeConnection()
    line = line_of(one, other)
    first = asyncio.ensure_future(line.run(lambda _: asyncio.sleep(60)))
    second = asyncio.ensure_future(line.run(itself))
    await asyncio.sleep(0.01)
    assert line.busy == 2
    first.cancel()
    assert await second is other
    assert (one.ended, line.busy, first.cancelled()) == ("dropped", 0, True)


async def test_statements_take_turns() -> None:
    line = line_of(FakeConnection())
    order: list[int] = []

    def work(number: int) -> Callable[[FakeConnection], Awaitable[None]]:
        async def run(_: FakeConnection) -> None:
            order.append(number)
            await asyncio.sleep(0)
            order.append(number)

        return run

    await asyncio.gather(*(line.run(work(number)) for number in range(4)))
    assert order == [number for number in range(4) for _ in range(2)]


async def test_it_is_left_after_what_is_under_way_and_opened_no_more_when_closed() -> None:
    only = FakeConnection()
    line = line_of(only)
    seen: list[str] = []

    async def work(connection: FakeConnection) -> None:
        await asyncio.sleep(0.01)
        seen.append(connection.ended)

    running = asyncio.ensure_future(line.run(work))
    await asyncio.sleep(0)
    line.closed = True
    await line.leave()
    await running
    assert (seen, only.ended) == ([""], "left")
    with pytest.raises(TicketDatabaseUnavailable, match="is being left"):
        await line.run(itself)
