"""The table of effects that a ticket database's errors have on the ring. Decisions only, no I/O.

The effect depends on the error and on the request that the server sent. `Ring.failed` carries the effect out. The lane,
the lease or the admission that catches the error decides about its own state.
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
    """The kinds of request that a server sends to a database."""

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
    """The effects that an error can have on the ring."""

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


NOTHING, DOWN, UNREACHABLE, QUARANTINED, NO_MARKS, ALL_DOWN = Effect

ERRORS = (
    RingChanged,
    TicketDatabaseUnavailable,
    TicketDatabaseBusy,
    TicketDatabaseMisconfigured,
    TicketDatabaseError,
)
"""The columns of the table. The first class that fits counts; the last one stands for the errors that concern one table
or one row."""

EFFECTS = {
    Asked.PROBE: (ALL_DOWN, UNREACHABLE, UNREACHABLE, QUARANTINED, UNREACHABLE),
    # An error that concerns one table concerns one lane, or says nothing about draws.
    Asked.DRAW: (ALL_DOWN, DOWN, NOTHING, QUARANTINED, NOTHING),
    # The admission cannot go on before the database has taken the marks, even if it is only busy. A database that
    # cannot keep marks may be up: the rest of the ring protects the others.
    Asked.ADMISSION: (ALL_DOWN, UNREACHABLE, UNREACHABLE, NO_MARKS, NO_MARKS),
    # A right that is missing on the table of marks says nothing about draws, so it is no reason for a quarantine.
    Asked.MARKS: (ALL_DOWN, DOWN, NOTHING, NO_MARKS, NO_MARKS),
    # The database has just passed a probe, and reading all of its marks may take too long. The next probe tells whether
    # it is down.
    Asked.UPKEEP: (ALL_DOWN, NOTHING, NOTHING, NO_MARKS, NO_MARKS),
}


def effect_of(error: TicketDatabaseError, asked: Asked) -> Effect:
    """The effect on the ring when a database that was asked for `asked` fails with this error."""
    return next(effect for kind, effect in zip(ERRORS, EFFECTS[asked], strict=True) if isinstance(error, kind))
