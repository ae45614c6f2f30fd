"""The marks of one lane: up to which ticket the lane may hand out, and the token and reading behind that limit."""

SMALLEST_STEP = 1_000
LARGEST_STEP = 10_000_000
"""How far ahead a lane sets a mark, in tickets. An advance of the sequence skips up to one step."""
QUICK_SECONDS, SLOW_SECONDS = 2.0, 60.0
"""The next step is twice as long after a step that lasted less than the first, half as long after one that lasted
more than the second."""


class LaneMarks:
    """The marks of one lane. The ledger alone changes them; the lane asks.

    Attributes:
        token: the token under which the lane draws, empty before it has opened.
        mark: the lane may not hand out a ticket above it.
        next_mark_at: once the lane has drawn a ticket above this id, the ledger sets the next mark in the background.
        read_at: when the ledger read the marks that this one rests on, by the ledger's clock.
        unverified: the names of the databases whose marks the ledger could not read when the lane opened.
        always_ahead: how many ids ahead the ledger sets each mark; 0: this depends on the rate of the tickets.
    """

    __slots__ = (
        "_next_at",
        "_next_step",
        "_step",
        "_stepped_at",
        "always_ahead",
        "mark",
        "next_mark_at",
        "read_at",
        "token",
        "unverified",
    )

    def __init__(self) -> None:
        self.token = ""
        self.mark = 0
        self.next_mark_at = 0
        self.read_at = 0.0
        self.unverified = ""
        self.always_ahead = 0
        self._step = 0
        self._stepped_at = 0.0
        self._next_step = 0
        self._next_at = 0.0

    @property
    def step(self) -> int:
        """How many tickets ahead of the draw the last mark was set; 0 before the first mark."""
        return self._step

    def adopt(self, token: str) -> None:
        """Draw under this token. The next draw sets a mark, which proves the token on every other database."""
        self.token = token
        self.lapse()

    def lapse(self) -> None:
        """Have the next draw set a mark."""
        self.mark = self.next_mark_at = 0

    def was_set(self, mark: int, last: int) -> None:
        """Every other database has committed `mark`; the lane has drawn tickets up to `last`."""
        self._step, self._stepped_at = self._next_step, self._next_at
        self.mark, self.next_mark_at = mark, mark - (mark - last) // 2

    def begin_again(self) -> None:
        """Have the next step be the smallest one: each advance of a sequence skips a step, however it was drawn from
        before."""
        self._step, self._stepped_at = 0, 0.0

    def ids_ahead(self, now: float, increment: int, left: int) -> int:
        """How far ahead the next mark has to lie, in ids: further if the last steps were short, less near the ceiling.

        `left`: ids up to the ceiling. A step counts once another database has committed its mark.
        """
        if self.always_ahead:
            return max(increment, min(self.always_ahead, left // 16))
        span = now - self._stepped_at
        tickets = self._step or SMALLEST_STEP
        if self._stepped_at and span < QUICK_SECONDS:
            tickets = min(tickets * 2, LARGEST_STEP)
        elif span > SLOW_SECONDS:
            tickets = max(tickets // 2, SMALLEST_STEP)
        self._next_step, self._next_at = tickets, now
        return max(increment, min(tickets * increment, left // 16))
