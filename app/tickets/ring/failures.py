"""What a ticket database's error means for the ring: the one table that decides it. Decisions only, no I/O.

The effect depends on the error and on what the server asked for. `Ring.failed` carries the effect out. What the error
means beyond the ring is decided where it is caught: by the lane, the lease or the admission.
"""

from enum import StrEnum

from app.common.errors import (
    RingChanged,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseMisconfigured,
    TicketDatabaseUnavailable,
)


class Asked(StrEnum):
    """What the server asked the database for."""

    PROBE = "probe"
    """To pass a probe. For a database that is not up, the questions about the ring are part of the probe."""
    DRAW = "draw"
    """To draw, or to answer a question about the ring while it is up."""
    ADMISSION = "admission"
    """To take the marks that it must keep before a database comes up."""
    MARKS = "marks"
    """To keep a mark. A lease is a mark, too."""
    UPKEEP = "upkeep"
    """To read out its marks and take the marks that it lacks, right after a probe that succeeded."""


class Effect(StrEnum):
    """What the error does to the ring."""

    NOTHING = "nothing"
    """The database stays as it is; the server asks again."""
    DOWN = "down"
    """The database is down, and the server probes it at once. If it was quarantined, it stays quarantined."""
    UNREACHABLE = "unreachable"
    """The database is down after a failed probe. Only a quarantine for a wrong residue stays."""
    QUARANTINED = "quarantined"
    """The database is quarantined."""
    KEEPS_NO_MARKS = "keeps no marks"
    """The database draws, but is no witness."""
    ALL_DOWN = "all down"
    """Every database is down, and the server probes all of them: one records another ring."""


EFFECTS = {
    Asked.PROBE: {
        RingChanged: Effect.ALL_DOWN,
        TicketDatabaseUnavailable: Effect.UNREACHABLE,
        TicketDatabaseBusy: Effect.UNREACHABLE,
        TicketDatabaseMisconfigured: Effect.QUARANTINED,
        TicketDatabaseError: Effect.UNREACHABLE,
    },
    # An error of one table is the lane's affair, or says nothing about draws.
    Asked.DRAW: {
        RingChanged: Effect.ALL_DOWN,
        TicketDatabaseUnavailable: Effect.DOWN,
        TicketDatabaseBusy: Effect.NOTHING,
        TicketDatabaseMisconfigured: Effect.QUARANTINED,
        TicketDatabaseError: Effect.NOTHING,
    },
    # No database may come up before this one has taken the marks, so being busy is no excuse here. A database that
    # cannot keep marks at all may come up: the rest of the ring protects the others.
    Asked.ADMISSION: {
        RingChanged: Effect.ALL_DOWN,
        TicketDatabaseUnavailable: Effect.UNREACHABLE,
        TicketDatabaseBusy: Effect.UNREACHABLE,
        TicketDatabaseMisconfigured: Effect.KEEPS_NO_MARKS,
        TicketDatabaseError: Effect.KEEPS_NO_MARKS,
    },
    # A right that is missing on the table of marks says nothing about draws, so it is no reason for a quarantine.
    Asked.MARKS: {
        RingChanged: Effect.ALL_DOWN,
        TicketDatabaseUnavailable: Effect.DOWN,
        TicketDatabaseBusy: Effect.NOTHING,
        TicketDatabaseMisconfigured: Effect.KEEPS_NO_MARKS,
        TicketDatabaseError: Effect.KEEPS_NO_MARKS,
    },
    # The database has just passed a probe. Reading all marks can take longer than an attempt may; the next probe tells
    # whether the database is down.
    Asked.UPKEEP: {
        RingChanged: Effect.ALL_DOWN,
        TicketDatabaseUnavailable: Effect.NOTHING,
        TicketDatabaseBusy: Effect.NOTHING,
        TicketDatabaseMisconfigured: Effect.KEEPS_NO_MARKS,
        TicketDatabaseError: Effect.KEEPS_NO_MARKS,
    },
}
"""For each question, the effects of the errors. The first class that fits counts; the last one stands for the errors
that concern one table or one row."""


def effect_of(error: TicketDatabaseError, asked: Asked) -> Effect:
    """The effect on the ring when a database that was asked for `asked` fails with this error."""
    return next(effect for kind, effect in EFFECTS[asked].items() if isinstance(error, kind))
