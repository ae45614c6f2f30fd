"""The issuer: takes a sequence's turn, and asks one lane after the other until one has tickets."""

import asyncio
from typing import NamedTuple

from app.common.errors import NoTicketDatabase, OutOfTime, SequenceExhausted
from app.tickets.catalog import Catalog, Entry
from app.tickets.lane import Lane, LaneState
from app.tickets.ring import Ring
from app.tickets.waiters import FutureWaiter, Tickets, Waiter

LARGEST_BLOCK = 10_000
"""The most tickets in a block, however many a database can draw at once."""
EXPIRY_SECONDS = 0.02
"""How often requests whose time on a database is over are looked for while any wait: one timer for all of them."""
FIRST_PAUSE = 0.005
LAST_PAUSE = 0.08
"""Seconds before every database is asked once more, doubled each time, and how long it gets at the most."""


class FirstTry(NamedTuple):
    """What a request has behind it when it comes to `issue`: the lane that could not serve it, if that is known.

    `began`: in the event loop's time; `arrived`: the same moment by the performance counter.
    """

    lane: Lane | None
    began: float
    arrived: float


class TicketIssuer:
    """Issues tickets. `attempt`: seconds for one attempt on one database; `timeout`: for the whole request."""

    def __init__(self, ring: Ring, catalog: Catalog, *, attempt: float, timeout: float) -> None:
        self._ring = ring
        self._catalog = catalog
        self._attempt = attempt
        self._timeout = timeout
        self.first_attempt = min(attempt, timeout)
        self._asked: set[Lane] = set()
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def increment(self) -> int:
        """The step between the ids of one block."""
        return self._ring.members[0].database.increment

    @property
    def largest_block(self) -> int:
        """The most tickets that one block can have on any of the databases."""
        return min(LARGEST_BLOCK, *(member.database.largest_block for member in self._ring.members))

    async def issue(self, name: str, count: int, *, whole: bool = False, first: FirstTry | None = None) -> Tickets:
        """`count` tickets of the sequence, increasing, all from one database; as a range if `whole` or `count` is 1.

        Raises InvalidRequest or UnknownSequence for the name, SequenceExhausted, NoTicketDatabase, OutOfTime.
        """
        now = asyncio.get_running_loop().time
        time = now()
        deadline = (time if first is None else first.began) + self._timeout
        tried = None if first is None else first.lane
        pause = FIRST_PAUSE
        while True:
            if time >= deadline:
                raise OutOfTime
            # again each time: a change of the ring gives every sequence another entry
            entry = self._catalog.entries.get(name) or await self._catalog.find(name, deadline - time)
            for lane in self._ring.take_turn(entry.rotation):
                if lane is tried or not (lane.can_be_asked and lane.member.up):
                    continue
                waiter = FutureWaiter(count, whole, min(time + self._attempt, deadline))
                self._ask(lane, waiter)
                tickets = await waiter.future
                if tickets is not None:
                    return tickets
                time = now()
                if time >= deadline:
                    raise OutOfTime
            tried = None
            self._raise_if_exhausted(entry, count, whole)
            if not self._ring.take_turn(entry.rotation):
                expected = any(lane.about_to_be_tried for lane in entry.rotation.lanes)
                if not await self._ring.wait_for_change(deadline - time, expected=expected):
                    raise NoTicketDatabase(f"no ticket database can draw for {name} now")
            elif pause > LAST_PAUSE:
                raise NoTicketDatabase(f"no ticket database could draw for {name} now")
            else:
                await asyncio.sleep(pause)
                pause *= 2
            time = now()

    def knows(self, name: str) -> bool:
        """Whether the sequence is known by now."""
        return name in self._catalog.entries

    def ask_first(self, name: str, waiter: Waiter) -> Lane | None:
        """Have the lane whose turn it is answer one ticket; None if none can be asked, or the sequence is not known.

        The waiter has `first_attempt` seconds; where it is answered None, `issue` goes on.
        """
        entry = self._catalog.entries.get(name)
        if entry is not None:
            for lane in self._ring.take_turn(entry.rotation):
                if lane.can_be_asked and lane.member.up:
                    self._ask(lane, waiter)
                    return lane
        return None

    def _ask(self, lane: Lane, waiter: Waiter) -> None:
        lane.ask(waiter)
        self._asked.add(lane)
        if self._expiry is None:
            self._expiry = asyncio.get_running_loop().call_later(EXPIRY_SECONDS, self._expire)

    def _raise_if_exhausted(self, entry: Entry, count: int, whole: bool) -> None:
        lanes = entry.rotation.lanes
        if not all(lane.member.up for lane in lanes):
            return  # one that is away might still have some
        if all(lane.state is LaneState.EXHAUSTED for lane in lanes):
            raise SequenceExhausted(f"{entry.name} is exhausted: every id up to {entry.ceiling} has been used")
        if not any(lane.may_hold(count, whole) for lane in lanes):
            raise SequenceExhausted(
                f"{entry.name} is near its end: {count} tickets at once may not be left on one database"
            )

    def _expire(self) -> None:
        """Let go the requests whose time on a database is over; again a moment later, while any wait."""
        loop = asyncio.get_running_loop()
        time = loop.time()
        self._asked = {lane for lane in self._asked if lane.waiting}
        self._expiry = loop.call_later(EXPIRY_SECONDS, self._expire) if self._asked else None
        for lane in tuple(self._asked):
            lane.expire(time)
