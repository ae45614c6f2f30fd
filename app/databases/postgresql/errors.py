"""From PostgreSQL's errors to ours. The driver's message stays at `__cause__` and goes nowhere else."""

import asyncpg

from app.common.errors import (
    NoFurtherConnection,
    SequenceUnavailable,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseSetWrong,
    TicketDatabaseUnavailable,
)

SET_UP = "run deploy/postgresql/01-tickets.sql there, as the tables' owner"
MISSING_TABLE, LOCKED, NO_FURTHER_CONNECTION = "42P01", "55P03", "53300"
POOLED = (
    "is reached through a connection pooler, which may use another session for each transaction",
    "name the PostgreSQL server's own host and port in TICKETS_DATABASES, not those of pgbouncer",
)
"""What is wrong and how to fix it. Settings of the session and prepared statements would be lost without a word."""
CLEAR_TEXT = (
    "asks for the password in clear text, and has not proved who it is",
    "let its pg_hba.conf ask for scram-sha-256, or use sslmode=verify-full",
)
_MISCONFIGURED = {
    "26000": POOLED,
    "42P05": POOLED,
    "42501": ("does not give this user the privileges that a ticket server needs", SET_UP),
    "42703": ("has a table of the ticket server's without a column that it needs", SET_UP),
    "42883": ("lacks a function of PostgreSQL 13", "use PostgreSQL itself, not a product that resembles it"),
}
_BUSY = {
    "40001": "refused the transaction as it ran beside another",
    "40P01": "deadlocked",
    LOCKED: "waited too long for a lock",
    "57014": "had the statement cancelled",
}
_DATABASE = {
    "08P01": "does not speak PostgreSQL's protocol",
    "25006": "is read-only",
    "28000": "refuses the user, or connections from this host",
    "28P01": "refuses the user or password",
    "3D000": "has no such database",
    MISSING_TABLE: "has lost a table of the ticket server's",
    "53100": "has a full disk",
    "53200": "is out of memory",
    "57P01": "is shutting down",
    "57P02": "crashed",
    "57P03": "is starting up or shutting down",
    "57P04": "had its database dropped",
    "57P05": "closed the idle connection",
    "58030": "cannot read or write its files",
    "XX001": "has damaged data",
    "XX002": "has a damaged index",
}


def code_of(error: BaseException | None) -> str:
    """PostgreSQL's SQLSTATE; empty where the error is none of its errors."""
    return str(getattr(error, "sqlstate", None) or "")


def translated(error: BaseException) -> TicketDatabaseError:
    """The error in our words; the database's name is added where it is shown."""
    code = code_of(error)
    if code in _BUSY:
        return TicketDatabaseBusy(_BUSY[code])
    if code == NO_FURTHER_CONNECTION:
        return NoFurtherConnection("has too many connections")
    if code in _MISCONFIGURED:
        return TicketDatabaseSetWrong(*_MISCONFIGURED[code])
    if code[:2] in ("22", "23"):
        return SequenceUnavailable(f"refuses the row (SQLSTATE {code})")
    if code and not isinstance(error, asyncpg.ConnectionDoesNotExistError):
        return TicketDatabaseUnavailable(_DATABASE.get(code, f"answered with SQLSTATE {code}"))
    return TicketDatabaseUnavailable("broke the connection off")
