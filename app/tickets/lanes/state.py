"""The states of a lane, and every way from one to another: the one place that says which there are.

closed      it opens before its next draw; takes requests
open        it may draw; takes requests
suspended   its table or database has to be tried first; takes none until it recovers
exhausted   its database holds no further id; takes none until it is closed
retired     its ring, or its sequence, is no more; takes none ever again
"""

from enum import StrEnum


class LaneState(StrEnum):
    """What a lane can be."""

    CLOSED = "closed"
    OPEN = "open"
    SUSPENDED = "suspended"
    EXHAUSTED = "exhausted"
    RETIRED = "retired"


class LaneEvent(StrEnum):
    """What can happen to a lane."""

    OPENED = "opened"
    """The ledger has made sure that what it draws next was never issued."""
    LOST_TOUCH = "lost touch"
    """What is known of its marks, or of its table, may be out of date."""
    FAILED = "failed"
    """Its sequence cannot be drawn on this database now."""
    RECOVERED = "recovered"
    """It was opened, and one draw was checked, while it took no requests."""
    ENDED = "ended"
    """Its database holds no further id."""
    LEFT_THE_RING = "left the ring"
    """The ring has changed, or the sequence was dropped everywhere; other lanes take its place, if any."""


CLOSED, OPEN, SUSPENDED, EXHAUSTED, RETIRED = LaneState
"""The same by themselves: on the way of a draw it takes too long to look a member of an enum up."""

TRANSITIONS: dict[LaneState, dict[LaneEvent, LaneState]] = {
    CLOSED: {
        LaneEvent.OPENED: OPEN,
        LaneEvent.LOST_TOUCH: CLOSED,
        LaneEvent.FAILED: SUSPENDED,
        LaneEvent.ENDED: EXHAUSTED,
        LaneEvent.LEFT_THE_RING: RETIRED,
    },
    OPEN: {
        LaneEvent.LOST_TOUCH: CLOSED,
        LaneEvent.FAILED: SUSPENDED,
        LaneEvent.ENDED: EXHAUSTED,
        LaneEvent.LEFT_THE_RING: RETIRED,
    },
    SUSPENDED: {
        LaneEvent.OPENED: OPEN,
        LaneEvent.LOST_TOUCH: SUSPENDED,
        LaneEvent.FAILED: SUSPENDED,
        LaneEvent.RECOVERED: OPEN,
        LaneEvent.ENDED: EXHAUSTED,
        LaneEvent.LEFT_THE_RING: RETIRED,
    },
    EXHAUSTED: {
        LaneEvent.OPENED: OPEN,
        LaneEvent.LOST_TOUCH: CLOSED,
        LaneEvent.FAILED: SUSPENDED,
        LaneEvent.ENDED: EXHAUSTED,
        LaneEvent.LEFT_THE_RING: RETIRED,
    },
    RETIRED: dict.fromkeys((e for e in LaneEvent if e not in {LaneEvent.OPENED, LaneEvent.RECOVERED}), RETIRED),
}
"""What each event makes of each state. An event that is missing cannot happen in that state."""


def after(state: LaneState, event: LaneEvent) -> LaneState:
    """The state that follows. Raises AssertionError where `event` cannot happen in `state`."""
    following = TRANSITIONS[state].get(event)
    assert following is not None, f"a lane that is {state} cannot have {event}"
    return following
