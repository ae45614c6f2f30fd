"""A draw that has not been answered yet, and the timer that ends those that wait too long."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from app.common.patience import LATE, SLICES, STALLS
from app.databases.mysql import sequence_sql
from app.databases.mysql.draws.blocks import Block
from app.databases.mysql.table import MySQLTable
from app.databases.protocol import Drawn


@dataclass(slots=True, eq=False)
class PendingDraw:
    """`count` tickets of a table that somebody waits for; `after` is the last id that is known of it. `least`: that
    none of them may be below, 0 where any will do.

    `began`, `deadline`: seconds by `time.monotonic`. `stalls`: how often the deadline may still be moved because this
    process stood still. `answered`: whether `done` has been called. `block`: what it is sent as, None for one plain
    statement; chosen anew each time it may be sent.
    """

    table: MySQLTable
    count: int
    after: int
    began: float
    deadline: float
    done: Callable[[Drawn], None]
    least: int = 0
    stalls: int = STALLS
    answered: bool = False
    block: Block | None = None

    @property
    def statement(self) -> str:
        """The statement of a plain draw."""
        return sequence_sql.draw(self.table.sequence, self.count)

    @property
    def advance(self) -> str:
        """The statement to send before a draw that has a `least`."""
        return sequence_sql.advance(self.table.sequence, self.least - 1)

    def answer(self, drawn: Drawn) -> None:
        """Tell whoever waits for it, the first time that this is called."""
        if not self.answered:
            self.answered = True
            self.done(drawn)


class Deadlines:
    """One timer for all draws that wait, or have waited, for a connection. It ticks while there are any.

    As with `patience`, time in which this process stood still does not count: their answers may lie in its sockets. A
    tick that comes late moves the deadlines by its delay, and the next one comes after what has arrived was read.
    """

    def __init__(self, timeout: float, expired: Callable[[PendingDraw], None]) -> None:
        """`timeout`: seconds that a draw may take. `expired` is called once for a draw whose deadline has passed."""
        self._slice = timeout / SLICES
        self._expired = expired
        self._watched: dict[PendingDraw, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def watch(self, draw: PendingDraw) -> None:
        """Have the draw expire at its deadline unless it has been answered by then."""
        self._watched[draw] = None
        if self._timer is None:
            self._start()

    def stop(self) -> None:
        """Watch none of them any more."""
        self._watched.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        self._due = time.monotonic() + self._slice
        self._timer = asyncio.get_running_loop().call_later(self._slice, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        delay = now - self._due
        stood_still = delay > LATE * self._slice
        overdue, waiting = [], dict[PendingDraw, None]()
        for draw in self._watched:
            if draw.answered:
                continue
            if stood_still and draw.stalls:
                draw.stalls -= 1
                draw.deadline += delay
                waiting[draw] = None
            elif draw.deadline <= now:
                overdue.append(draw)
            else:
                waiting[draw] = None
        self._watched, self._timer = waiting, None
        if waiting:
            self._start()
        for draw in overdue:
            self._expired(draw)
