"""The state of a lane: the table of all states, and everything that moves a lane from one state to another.

closed      opens before its next draw; takes requests
open        may draw; takes requests
suspended   its table or its database has failed; takes no requests until it recovers
recovering  is being opened, and one draw is being checked; takes no requests
exhausted   its database holds no further id; takes no requests until it is closed
retired     its ring or its sequence has ended; never takes requests again
"""

import asyncio
import logging
from enum import StrEnum
from typing import Protocol

from app.common.errors import (
    ColumnExhausted,
    MarkRefused,
    RingChanged,
    SequenceMissing,
    SequenceUnavailable,
    SequenceWentBack,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseMisconfigured,
)
from app.common.log import event
from app.databases.protocol import Residue, Table
from app.tickets.lanes.id_guard import IdGuard, WrongResidue
from app.tickets.lanes.marks import LaneMarks
from app.tickets.requests.observer import Observer
from app.tickets.ring.failures import Asked
from app.tickets.ring.ring import Member, Ring

log = logging.getLogger(__name__)


class LaneState(StrEnum):
    """The states of a lane."""

    CLOSED = "closed"
    OPEN = "open"
    SUSPENDED = "suspended"
    RECOVERING = "recovering"
    EXHAUSTED = "exhausted"
    RETIRED = "retired"


class LaneEvent(StrEnum):
    """The events that move a lane."""

    OPENED = "opened"
    """The ledger has made sure that the next draw gives only tickets that were never issued."""
    OUTDATED = "outdated"
    """The lane's knowledge of its marks, or of its table, may be out of date."""
    FAILED = "failed"
    """The sequence cannot be drawn on this database now."""
    TRIED = "tried"
    """The lane begins to recover."""
    RECOVERED = "recovered"
    """The lane was opened, and one draw was right."""
    ENDED = "ended"
    """The database holds no further id."""
    LEFT_THE_RING = "left the ring"
    """The ring has changed, or the sequence was dropped on every database."""


CLOSED, OPEN, SUSPENDED, RECOVERING, EXHAUSTED, RETIRED = LaneState
"""The same states as names of this module, because looking up an enum's member takes too long on the way of a draw."""

_MOSTLY = {
    LaneEvent.OUTDATED: CLOSED,
    LaneEvent.FAILED: SUSPENDED,
    LaneEvent.ENDED: EXHAUSTED,
    LaneEvent.LEFT_THE_RING: RETIRED,
}
TRANSITIONS: dict[LaneState, dict[LaneEvent, LaneState]] = {
    CLOSED: _MOSTLY | {LaneEvent.OPENED: OPEN},
    OPEN: _MOSTLY,
    SUSPENDED: _MOSTLY | {LaneEvent.OPENED: OPEN, LaneEvent.OUTDATED: SUSPENDED, LaneEvent.TRIED: RECOVERING},
    RECOVERING: _MOSTLY | {LaneEvent.OUTDATED: SUSPENDED, LaneEvent.RECOVERED: OPEN},
    EXHAUSTED: _MOSTLY | {LaneEvent.OPENED: OPEN},
    RETIRED: dict.fromkeys(_MOSTLY, RETIRED),
}
"""The state that follows from each event in each state. An event that is missing cannot happen in that state."""
TAKES_REQUESTS = {CLOSED, OPEN}
WAITS_FOR_RECOVERY = {SUSPENDED, RECOVERING}


def after(state: LaneState, event: LaneEvent) -> LaneState:
    """The state that follows. Raises AssertionError if `event` cannot happen in `state`."""
    following = TRANSITIONS[state].get(event)
    assert following is not None, f"a lane that is {state} cannot have {event}"
    return following


class Shelf(Protocol):
    """The lane's tickets in reserve."""

    def passed(self, ticket: int) -> None:
        """Drop smaller tickets: the lane hands out this ticket by itself, or a list that ends with it."""

    def went_back(self) -> None:
        """Drop all tickets: the database may have gone back in this sequence."""


class StatefulLane:
    """A lane without its requests: its state, and everything that changes it. `Lane` adds the draws.

    Attributes:
        residue: the ids that it draws, in the ring that it was opened under.
        marks: what the ledger holds for the lane.
        guard: the check on its ids.
        listed: the table as the catalog saw it last.
        table: the table as it was when the lane opened.
        shelf: the lane's tickets in reserve; None if the sequence has no reserve.
        can_be_asked: whether its state lets it take requests.
        must_advance: the database may have gone back in this sequence, whatever its incarnation says.
        tried: whether the lane has failed to recover since it was suspended. Requests wait for the first attempt.
        largest_whole, largest_list: near the end, the largest block and list that may still be there, in tickets.
    """

    def __init__(self, sequence: str, member: Member, ring: Ring, observer: Observer) -> None:
        self.sequence = sequence
        self.member = member
        self.marks = LaneMarks()
        self.residue = Residue(member.database.offset, member.database.increment)
        self.guard = IdGuard(self.residue.offset, self.residue.increment)
        self.listed: Table | None = None
        self.table: Table | None = None
        self.shelf: Shelf | None = None
        self.can_be_asked = True
        self.must_advance = False
        self.tried = False
        self.largest_whole = self.largest_list = member.database.largest_block
        self._state: LaneState = CLOSED
        self._trouble: TicketDatabaseError | None = None
        self._ring = ring
        self._observer = observer
        self._opening = asyncio.Lock()
        self._busy = False
        """Whether a statement of the lane is under way, or about to be sent."""

    # --- what `Lane` does --------------------------------------------------------------------------------------------

    def send_on(self) -> None:
        """Let every request go, because the lane cannot serve it now. The statement under way becomes a gap."""
        raise NotImplementedError

    async def _open_with_ledger(self) -> None:
        """Have the ledger make sure that the next draw gives only tickets that were never issued. Raises
        TicketDatabaseError."""
        raise NotImplementedError

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> LaneState:
        return self._state

    @property
    def is_open(self) -> bool:
        return self._state is OPEN

    @property
    def is_suspended(self) -> bool:
        """Whether it waits until it has recovered."""
        return self._state in WAITS_FOR_RECOVERY

    @property
    def about_to_be_tried(self) -> bool:
        """Whether its first attempt to recover has not ended, and its database is up."""
        return self.is_suspended and not self.tried and self.member.up

    @property
    def reason(self) -> str | None:
        """Why it is suspended or retired, in words; None if it is neither."""
        return None if self._trouble is None else str(self._trouble)

    @property
    def missing(self) -> bool:
        """Whether it is suspended because the database has no table for it."""
        return isinstance(self._trouble, SequenceMissing)

    def may_hold(self, count: int, whole: bool) -> bool:
        """Whether `count` tickets may be left here; false if it is certain that they are not."""
        if self._state is EXHAUSTED:
            return False
        return count == 1 or count <= (self.largest_whole if whole else self.largest_list)

    # --- what changes it ---------------------------------------------------------------------------------------------

    def _move(self, what: LaneEvent) -> None:
        before, self._state = self._state, after(self._state, what)
        self.can_be_asked = self._state in TAKES_REQUESTS
        both = {before, self._state}
        if len(both) > 1 and both not in (TAKES_REQUESTS, WAITS_FOR_RECOVERY):
            self._ring.lanes_changed()

    async def open(self) -> None:
        """Open the lane with the ledger, unless it is open. Raises TicketDatabaseError.

        A lane that is closed while it opens is opened all the same: the ledger checks last of all whether what it has
        read still counts.
        """
        async with self._opening:  # two at a time would take the marks from each other, and advance it twice
            if self._state is OPEN:
                return
            await self._open_with_ledger()
            if self._state is RETIRED:
                raise RingChanged
            self.largest_whole = self.largest_list = self.member.database.largest_block  # a column may be wider now
            self._move(LaneEvent.OPENED)

    def close(self) -> None:
        """Have the lane open again, with the ledger, before its next draw. An exhausted lane looks for ids again."""
        self._move(LaneEvent.OUTDATED)

    def report(self, error: TicketDatabaseError) -> None:
        """Take the state that follows from an error on this lane, and tell the ring."""
        member = self.member
        if isinstance(error, ColumnExhausted):
            self._exhaust()
        elif isinstance(error, MarkRefused):
            self._observer.violation(member, "mark")
            self.close()
        elif isinstance(error, RingChanged):
            self._observer.violation(member, "ring")
            self.close()
        elif isinstance(error, SequenceUnavailable):
            if isinstance(error, SequenceWentBack):
                self._observer.violation(member, "order")
            self.suspend(error)
        elif isinstance(error, TicketDatabaseBusy):
            self._observer.retry(member, str(error))
        elif isinstance(error, WrongResidue):
            self._observer.violation(member, "residue")
        elif isinstance(error, TicketDatabaseHung):  # the fault may be this table's alone, which a probe cannot tell
            self.suspend(error)
        drawn_in = self.sequence if isinstance(error, WrongResidue) else None
        self._ring.failed(member, error, Asked.DRAW, self.residue.ring, drawn_in=drawn_in)
        if not isinstance(error, MarkRefused | RingChanged | ColumnExhausted):
            member.failovers += 1

    def _exhaust(self) -> None:
        if self._state is not EXHAUSTED:
            event(log, logging.WARNING, "exhausted", sequence=self.sequence, database=self.member.name)
        self._move(LaneEvent.ENDED)
        self.send_on()

    def suspend(self, error: TicketDatabaseError) -> None:
        """Take no requests until `recover` succeeds. After SequenceMissing and SequenceWentBack the sequence has to be
        advanced, and its tickets in reserve are dropped."""
        self._note(error)
        if self.shelf is not None and isinstance(error, SequenceMissing | SequenceWentBack):
            self.shelf.went_back()
        if not self.is_suspended:
            event(log, logging.WARNING, "suspended", sequence=self.sequence, database=self.member.name, reason=error)
            self.tried = False
        self._move(LaneEvent.FAILED)
        self.send_on()
        self.member.wake.set()

    def _note(self, error: TicketDatabaseError) -> None:
        self._trouble = error
        self.must_advance |= isinstance(error, SequenceMissing | SequenceWentBack)

    def retire(self, reason: str = "is of another ring") -> None:
        """Never take requests again, because the ring or the sequence has ended. Drops whatever is drawn under it."""
        self._trouble = SequenceUnavailable(reason)
        self.marks.adopt("")
        self._move(LaneEvent.LEFT_THE_RING)
        self.send_on()

    async def recover(self) -> None:
        """Open a suspended lane, and check one draw, which is dropped. Then it takes requests again.

        Raises TicketDatabaseError; then it stays suspended.
        """
        if self._busy:
            return
        async with self._opening:
            if self._state is not SUSPENDED:
                return
            self._move(LaneEvent.TRIED)
            try:
                await self._open_with_ledger()
                await self._check_one_draw()
            except BaseException:
                if self._state is RECOVERING:
                    self._move(LaneEvent.FAILED)
                raise
            if self._state is SUSPENDED:
                raise TicketDatabaseBusy("the lane was closed while it recovered; retry")
            if self._state is not RECOVERING:  # its ring may have changed meanwhile
                return
            self._trouble = None
            self._move(LaneEvent.RECOVERED)
        event(log, logging.INFO, "takes requests again", sequence=self.sequence, database=self.member.name)

    async def _check_one_draw(self) -> None:
        assert self.table is not None
        highest = self.guard.highest
        drawn = await self.member.database.draw(self.residue, self.table, 1, highest)
        self.guard.check(drawn, highest)
        self.guard.advance(drawn.last)
        self._observer.gap(self.member, "checked", 1)

    def recovery_failed(self, error: TicketDatabaseError) -> None:
        """Stay suspended, or take the state that follows from the error. Requests that wait for the lane go on."""
        if not self.tried:
            self.tried = True
            self._ring.lanes_changed()
        if isinstance(error, ColumnExhausted | TicketDatabaseMisconfigured):
            self.report(error)
        else:
            self._note(error)
