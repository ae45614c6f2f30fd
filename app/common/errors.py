"""Every exception of the ticket server, in one tree.

A docstring's first line is the default message. Driver errors never travel: they are translated in `app.databases` and
stay reachable at `__cause__`. What reaches a client is chosen in `app.http.problems`.
"""


class TicketError(Exception):
    """The ticket server could not do what was asked."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").splitlines()[0])


class SettingsError(TicketError):
    """A setting cannot be used."""


class PortInUse(TicketError):
    """Another program listens on a port that this server is set to."""


# --- what a client may be told -------------------------------------------------------------------------------------


class InvalidRequest(TicketError):
    """The request is malformed."""


class TooManyAtOnce(InvalidRequest):
    """The sequence never has so many ids for one moment."""


class UnknownSequence(TicketError):
    """There is no such sequence."""


class SequenceConflict(TicketError):
    """The sequence exists and differs from what was asked for."""


class AboveCeiling(TicketError):
    """The number is at or above the end of the sequence."""


class ForceRequired(TicketError):
    """The bump would use up more than 90 % of the sequence and was not forced."""


class SequenceExhausted(TicketError):
    """The sequence is exhausted on every ticket database."""


class NotForThisKind(SequenceConflict):
    """The sequence is of a kind that does not have this."""


class Unavailable(TicketError):
    """The request cannot be served now; the same request may succeed later."""


class NoTicketDatabase(Unavailable):
    """No ticket database can draw for this sequence now."""


class Unverified(NoTicketDatabase):
    """No ticket database may draw while no other one can be asked for its marks: TICKETS_UNVERIFIED is refuse."""


class NotConfirmed(NoTicketDatabase):
    """A bump is under way, and does not hold everywhere yet; the same bump may be asked for again."""


class OlderServer(NoTicketDatabase):
    """A ticket server of an older release serves these databases, which does not know what was asked for."""


class OutOfTime(Unavailable):
    """The request ran out of time."""


class WrongClock(Unavailable):
    """This server's clock does not let it stamp ids now."""


class ClockAhead(WrongClock):
    """This server's clock is ahead of the ticket databases'."""


class ClockUnknown(WrongClock):
    """This server's clock has not been compared with a ticket database's yet."""


class ClockWentBack(WrongClock):
    """This server's clock is behind the ids that it has given."""


class UnknownError(TicketError):
    """The server met an error that it does not know; its log says more."""


class TooManyConnections(Unavailable):
    """This server has as many client connections as it may have."""


class Draining(Unavailable):
    """This server is shutting down."""


# --- what a ticket database says -----------------------------------------------------------------------------------


class TicketDatabaseError(TicketError):
    """A ticket database could not do what was asked."""


class TicketDatabaseUnavailable(TicketDatabaseError):
    """The ticket database does not work; it is down until a probe succeeds."""


class TicketDatabaseHung(TicketDatabaseUnavailable):
    """The ticket database did not answer a statement in time, nor any other since it was sent."""


class TicketDatabaseMisconfigured(TicketDatabaseError):
    """The ticket database is not what it should be; it is quarantined until that is put right."""


class TicketDatabaseSetWrong(TicketDatabaseMisconfigured):
    """The ticket database, or what stands before it, is set wrong. `wrong`: what is; `fix`: what to do about it."""

    def __init__(self, wrong: str = "is set wrong", fix: str = "run ticketd doctor") -> None:
        super().__init__(f"{wrong}. To fix it: {fix}")
        self.wrong, self.fix = wrong, fix


class TicketDatabaseBusy(TicketDatabaseError):
    """The ticket database is well but did not serve this attempt (deadlocks, a lost place in the queue)."""


class NoFurtherConnection(TicketDatabaseBusy):
    """The ticket database accepts no further connection for now; those that are open go on working."""


class SequenceUnavailable(TicketDatabaseError):
    """One sequence cannot be drawn on one ticket database; the database itself is well."""


class SequenceMissing(SequenceUnavailable):
    """The ticket database has no table for the sequence."""


class ColumnExhausted(TicketDatabaseError):
    """The id column cannot hold as many further ids as were asked for. `given`: an id up to which the engine has seen
    all of them used, 0 where it has not looked."""

    def __init__(self, message: str | None = None, given: int = 0) -> None:
        super().__init__(message)
        self.given = given


class SequenceWentBack(SequenceUnavailable):
    """The ticket database gave an id at or below one it has given before."""


class MarkRefused(TicketDatabaseError):
    """The ledger holds another incarnation of the sequence; what was drawn under the old one is dropped."""


class RingChanged(TicketDatabaseError):
    """The ticket database records another ring than the one that this was drawn in; what was drawn is dropped."""
