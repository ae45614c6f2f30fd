"""Every exception of the ticket server, in one tree.

A docstring's first line is the default message. Driver errors never travel: each engine translates them, and they stay
reachable at `__cause__`. A message never holds a secret.
"""

from typing import ClassVar


class TicketError(Exception):
    """The ticket server could not do what was asked.

    code: what clients and metrics know the error by, and those derived from it. It never changes its meaning.
    """

    code: ClassVar[str] = "internal"

    def __init_subclass__(cls, code: str | None = None) -> None:
        cls.code = code or cls.code

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").splitlines()[0])


class SettingsError(TicketError):
    """A setting cannot be used."""


# --- what a client may be told ----------------------------------------------------------------------------------------


class InvalidRequest(TicketError, code="invalid"):
    """The request is malformed."""


class Unauthenticated(TicketError, code="unauthenticated"):
    """A token is wanted, and none, or one that is not known, was given."""


class Forbidden(TicketError, code="forbidden"):
    """This token may not do that."""


class CrossSite(TicketError, code="cross-site"):
    """A browser asks on behalf of another site."""


class UnknownSequence(TicketError, code="no-such-sequence"):
    """There is no such sequence."""


class SequenceConflict(TicketError, code="conflict"):
    """The sequence exists and differs from what was asked for."""


class NotForThisKind(SequenceConflict):
    """The sequence is of a kind that does not have this."""


class AboveCeiling(TicketError, code="above-ceiling"):
    """The number is at or above the end of the sequence."""


class ForceRequired(TicketError, code="force-required"):
    """The bump would use up more than 90 % of the sequence and was not forced."""


class Exhausted(TicketError, code="exhausted"):
    """The sequence is exhausted on every ticket database."""


class Unavailable(TicketError, code="no-database"):
    """The request cannot be served now; the same request may succeed later."""


class NoTicketDatabase(Unavailable):
    """No ticket database can draw for this sequence now."""


class Unverified(NoTicketDatabase, code="unverified"):
    """No ticket database may draw while another one cannot be asked for its marks: TICKETS_UNVERIFIED is refuse."""


class Growing(NoTicketDatabase, code="growing"):
    """The ring is being changed by `ticketd grow`."""


class NotConfirmed(NoTicketDatabase, code="not-confirmed"):
    """A bump is under way and does not hold everywhere yet; the same bump may be asked for again."""


class OutOfTime(Unavailable, code="out-of-time"):
    """The request ran out of time."""


class ClockAhead(Unavailable, code="clock-ahead"):
    """This server's clock does not let it stamp ids now."""


class Draining(Unavailable, code="draining"):
    """This server is shutting down."""


class TooManyConnections(Unavailable, code="too-many-connections"):
    """This server has as many client connections as it may have."""


class Defect(TicketError):
    """The server has met an error that it does not know; its log says more."""


# --- what a ticket database says --------------------------------------------------------------------------------------


class DatabaseError(TicketError, code="no-database"):
    """A ticket database could not do what was asked."""


class DatabaseFailed(DatabaseError):
    """The ticket database does not work, or its answer is not known; it is down until a look succeeds."""


class NoAnswer(DatabaseFailed):
    """The ticket database did not answer in time, or a lock held the statement up."""


class OtherLife(DatabaseFailed):
    """The ticket database is in another life than the one that was asked for."""


class DatabaseRefused(DatabaseError):
    """The ticket database is not what it should be; it is quarantined until an operator has put that right."""


class SequenceError(DatabaseError):
    """One sequence cannot be drawn from one ticket database; the database itself is well."""


class SequenceMissing(SequenceError):
    """The ticket database has no table for the sequence."""


class SequenceBusy(SequenceError):
    """A lock held the sequence's table up."""


class SequenceExhausted(SequenceError):
    """The sequence's counter cannot give that many further ids."""


class SequenceUnusable(SequenceError):
    """The sequence's table cannot be drawn from."""
