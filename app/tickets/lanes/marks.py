"""What the ledger holds for one lane: how far its tickets may be handed out, and what that rests on."""

SMALLEST_STEP = 1_000
LARGEST_STEP = 10_000_000
"""How far ahead a mark is reserved, in tickets. A step is skipped when a database is restarted."""
QUICK_SECONDS, SLOW_SECONDS = 2.0, 60.0
"""A step that lasts less long is doubled, one that lasts longer is halved."""


class LaneMarks:
    """The marks of one lane. The ledger alone changes them; the lane asks.

    `token`: what the lane draws under, empty before it has opened. `mark`: no ticket above it may be handed out;
    `reserve_at`: above this one the next mark is reserved in the background. `read_at`: when the marks that it rests on
    were read, by the ledger's clock.
    `unverified`: the names of the databases that could not be asked for its marks when it opened. `always_ahead`: how
    many ids ahead a mark is reserved, whatever the rate; 0: as the rate has it.
    """

    __slots__ = (
        "_next_at",
        "_next_step",
        "_step",
        "_stepped_at",
        "always_ahead",
        "mark",
        "read_at",
        "reserve_at",
        "token",
        "unverified",
    )

    def __init__(self) -> None:
        self.token = ""
        self.mark = 0
        self.reserve_at = 0
        self.read_at = 0.0
        self.unverified = ""
        self.always_ahead = 0
        self._step = 0
        self._stepped_at = 0.0
        self._next_step = 0
        self._next_at = 0.0

    @property
    def step(self) -> int:
        """How many tickets ahead the last mark was reserved; 0 before the first."""
        return self._step

    def adopt(self, token: str) -> None:
        """Draw under this token. The next draw reserves, which proves the token on every database."""
        self.token = token
        self.lapse()

    def lapse(self) -> None:
        """Reserve anew with the next draw."""
        self.mark = self.reserve_at = 0

    def reserved(self, mark: int, last: int) -> None:
        """A mark has been committed on every other database; `last` has been drawn."""
        self._step, self._stepped_at = self._next_step, self._next_at
        self.mark, self.reserve_at = mark, mark - (mark - last) // 2

    def begin_again(self) -> None:
        """Have the next step be the smallest one: each advance of a sequence skips a step, however it was drawn from
        before."""
        self._step, self._stepped_at = 0, 0.0

    def ids_ahead(self, now: float, increment: int, left: int) -> int:
        """How far ahead the next mark is to be, in ids: more while steps go by quickly, less near the ceiling.

        `left`: ids up to the ceiling. A step counts once its mark has been committed: one that fails, or that no other
        database keeps, has not gone by.
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
