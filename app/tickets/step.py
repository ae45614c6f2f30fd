"""How far ahead a lane works: where its limit is set (rule 8), and how many ids it draws before they are asked for."""

from dataclasses import dataclass
from typing import Protocol

from app.kinds.table import KINDS
from app.tickets.definitions import TICKET
from app.tickets.request import Request

SECONDS_AHEAD = 10.0
"""A limit is set ahead by what the lane's present rate uses up in this time."""
SMALLEST, LARGEST = 1_000, 1_000_000
"""Bounds of a step, in ids."""
SHARE = 16
"""A step is at most this part of what is left of the sequence."""
WINDOW = 0.1
"""Seconds after which the rate is computed again."""


class Pace(Protocol):
    """What a kind of sequence decides about its requests and its lanes."""

    def accept(self, request: Request) -> None:
        """Let a request be served. Raises TicketError where this kind has nothing like it, or cannot give it now."""
        ...

    def step(self, rate: float, left: int, increment: int) -> int:
        """Return how far ahead of the highest number drawn the limit is set; at rate 0, after an advance, the least.

        rate: ids a second. left: ids that the lane can still draw.
        """
        ...

    def above(self) -> int:
        """Return the number that the next draw has to be above, whatever was drawn before. Raises Unavailable."""
        ...

    def room(self, highest: int, increment: int) -> int:
        """Return how many ids may be drawn now, where `highest` is the largest that was drawn."""
        ...


class TicketPace:
    """The pace of plain tickets: ten seconds ahead, in the bounds of rule 8."""

    def accept(self, request: Request) -> None:
        """See Pace.accept: a ticket has no shard."""
        if request.key is not None or request.shard is not None:
            KINDS[TICKET].shard_of({}, request.key, request.shard)

    def step(self, rate: float, left: int, increment: int) -> int:
        """See Pace.step. At least one id, so that the last ones are given too."""
        ahead = min(max(int(rate * SECONDS_AHEAD), SMALLEST), LARGEST)
        return max(1, min(ahead, left // SHARE)) * increment

    def above(self) -> int:
        """See Pace.above: a ticket holds no time."""
        return 0

    def room(self, highest: int, increment: int) -> int:
        """See Pace.room: there is always room for more tickets."""
        return LARGEST


class Rate:
    """How many ids a second are used at present. It rises at once, and falls by halves."""

    def __init__(self) -> None:
        self.per_second = 0.0
        self.count = 0
        """How many ids were used since the rate was computed; the lane adds to it."""
        self._since = float("-inf")

    def measure(self, now: float) -> None:
        """Compute the rate anew, if that is due. now: seconds, by any clock that is always the same."""
        elapsed = now - self._since
        if elapsed < WINDOW:
            return
        measured = 0.0 if elapsed == float("inf") else self.count / elapsed
        falls_slowly = measured < self.per_second and elapsed < 10 * WINDOW
        self.per_second = (self.per_second + measured) / 2 if falls_slowly else measured
        self.count, self._since = 0, now


@dataclass(frozen=True, slots=True)
class Reserve:
    """How many ids a lane draws ahead (TICKETS_RESERVE_SECONDS).

    seconds: what is drawn ahead is used up in this time at the present rate. lanes: how many lanes of a sequence share
    the reserve.
    """

    seconds: float = 0.0
    lanes: int = 1

    @property
    def longest_age(self) -> float:
        """Seconds after which ids in stock are dropped. What a statement draws beyond the requests is kept a second."""
        return max(3 * self.seconds, 1.0)

    def size(self, rate: float, left: int) -> int:
        """Return how many ids to hold in stock: none near the end of the sequence.

        rate: ids a second. left: ids that the lane can still draw.
        """
        wanted = int(min(rate * self.seconds, LARGEST / self.lanes))
        return wanted if left > 100 * wanted else 0
