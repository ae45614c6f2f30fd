"""From PostgreSQL's errors to ours. The driver's message stays at `__cause__` and goes nowhere else."""

import ssl
from typing import Any

import asyncpg

from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused

SET_UP = "run deploy/postgresql/01-tickets.sql there, as the tables' owner"
POOLED = (
    "is reached through a connection pooler, which loses the settings of a session: name the PostgreSQL server's own "
    "host and port in TICKETS_DATABASES"
)
CLEAR_TEXT = (
    "asks for the password in clear text, and has not proved its identity: let its pg_hba.conf ask for scram-sha-256, "
    "or use sslmode=verify-full"
)
LOCKED, _NO_TABLE = "55P03", "42P01"
UNDONE = ("40001", "40P01")
"""PostgreSQL undid the whole statement because of another one, so it may be sent again."""
_REFUSED = {
    "26000": POOLED,
    "42P05": POOLED,
    "42501": f"does not give this user the privileges that a ticket server needs: {SET_UP}",
    "42703": f"has a table of the ticket server's without a column that it needs: {SET_UP}",
    "3F000": "has no schema in this user's search path: create one, or set search_path",
    "42P10": f"has a table of the ticket server's without its primary key: {SET_UP}",
    "42883": "lacks a function of PostgreSQL 13: use PostgreSQL itself",
}
_FAILED = {
    "08P01": "does not speak PostgreSQL's protocol",
    "25006": "is read-only: name the primary in TICKETS_DATABASES, or see default_transaction_read_only there",
    "28000": "refuses the user, or connections from this host",
    "28P01": "refuses the user or password",
    "55000": "is a standby, which takes no writes",
    "3D000": "has no such database",
    **dict.fromkeys(UNDONE, "undid a statement twice because of another one"),
    "53100": "has a full disk",
    "53200": "is out of memory",
    "53300": "has too many connections",
    LOCKED: "waited too long for a lock: look for an open transaction there (pg_stat_activity)",
    "57014": "ended a statement that took too long",
    "57P01": "is shutting down, or an operator ended the connection",
    "57P02": "crashed",
    "57P03": "is starting up or shutting down",
}


class NoTLS(ConnectionError):
    """The server does not offer TLS."""


_WITHOUT_CODE: tuple[tuple[Any, str], ...] = (
    (ssl.SSLCertVerificationError, "has a TLS certificate that cannot be verified"),
    (ssl.SSLError, "cannot agree on TLS"),
    (ConnectionRefusedError, "refuses connections"),
    (NoTLS, "does not offer TLS"),
    ((asyncpg.ConnectionDoesNotExistError, asyncpg.InterfaceError, ConnectionError), "broke the connection off"),
    (OSError, "cannot be reached"),
    (BaseException, "gave an answer that makes no sense"),
)
"""The words for an error that the server did not send; the first class that fits."""


class Lost(DatabaseFailed):
    """has lost a table of the ticket server's, or its ring row"""


def code_of(error: BaseException | None) -> str:
    """Return PostgreSQL's SQLSTATE; empty where the error did not come from the server."""
    if isinstance(error, asyncpg.ConnectionDoesNotExistError):
        return ""  # the driver raises it and chooses its SQLSTATE
    return str(getattr(error, "sqlstate", None) or "")


def translated(error: BaseException) -> DatabaseError:
    """Return the error in our words. The name of the database is added where the error is shown."""
    code = code_of(error)
    if code in _REFUSED or (code == "08P01" and "startup parameter" in str(error)):
        return DatabaseRefused(_REFUSED.get(code, POOLED))
    if code == _NO_TABLE:
        return Lost()
    if code:
        return DatabaseFailed(_FAILED.get(code, f"answered with SQLSTATE {code}"))
    return DatabaseFailed(next(words for kind, words in _WITHOUT_CODE if isinstance(error, kind)))
