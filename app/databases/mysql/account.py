"""The account that a ticket server logs in with, as MySQL or MariaDB shows it to itself: limits, and when its password
expires. No privilege is needed for that, but for the day on which the password was changed last.

What the server answers holds a hash of the password. Nothing of it is kept but the clauses that are looked for.
"""

import datetime
import re
from collections.abc import Iterator
from typing import NamedTuple

from app.databases.inspection import Flaw
from app.databases.mysql.line.driver import Rows

CONNECTIONS_OF_A_SERVER = 13
"""The most connections that one ticket server has open to one database: three for draws, four for questions about
tables, four for marks, and its probe's, which is opened anew while the old one is there."""

CURRENT_USER = "SELECT CURRENT_USER()"
DEFINITION = "SHOW CREATE USER CURRENT_USER()"
DEFAULT_LIFETIME = "SELECT @@GLOBAL.default_password_lifetime"
USER_CONNECTIONS = "SELECT @@GLOBAL.max_user_connections"

_TEXTS = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.|'')*'", re.DOTALL)
"""Names, hashes and comments, which may hold anything."""
_HOURLY = re.compile(r"\b(MAX_(?:QUERIES|UPDATES|CONNECTIONS)_PER_HOUR) (\d+)")
_CONNECTIONS = re.compile(r"\bMAX_USER_CONNECTIONS (-?\d+)")
_EXPIRES = re.compile(r"\bPASSWORD EXPIRE (?:(NEVER)|(DEFAULT)|INTERVAL (\d+) DAY)")


def password_changed(*, mariadb: bool) -> str:
    """When the password was changed last, in seconds since 1970. Needs SELECT on the system's table of accounts."""
    if mariadb:
        return (
            "SELECT JSON_VALUE(Priv, '$.password_last_changed') FROM mysql.global_priv "
            "WHERE CONCAT(User, '@', Host) = CURRENT_USER()"
        )
    return "SELECT UNIX_TIMESTAMP(password_last_changed) FROM mysql.user WHERE CONCAT(user, '@', host) = CURRENT_USER()"


class Account(NamedTuple):
    """`name`: as a statement names it. `hourly`: the limits for an hour, by their names. `connections`: the most that
    it may have open at once, 0 for any number, and `own_connections`, whether that is its own limit or the server's for
    all accounts. `days`: after which its password expires, None for never."""

    name: str
    hourly: dict[str, int]
    connections: int
    own_connections: bool
    days: int | None


def account_of(name: str, definition: str, default_days: int, default_connections: int) -> Account:
    """The account from the texts that the server answers with; the defaults are its global variables."""
    clauses = _TEXTS.sub("''", definition)
    own = _CONNECTIONS.search(clauses)
    connections = int(own[1]) if own else 0
    expires = _EXPIRES.search(clauses)
    days = default_days or None
    if expires is not None and not expires[2]:
        days = int(expires[3]) if expires[3] else None
    return Account(
        name=_quoted(name),
        hourly={limit: int(number) for limit, number in _HOURLY.findall(clauses) if int(number)},
        connections=connections or default_connections,
        own_connections=connections > 0,
        days=days,
    )


def _quoted(name: str) -> str:
    user, _, host = name.rpartition("@")
    return "@".join("'" + part.replace("\\", "\\\\").replace("'", "''") + "'" for part in (user, host))


def first_number(rows: Rows) -> int:
    """The one number of an answer. Raises ValueError, TypeError, IndexError."""
    return int(rows[0][0])


def changed_at(rows: Rows) -> float | None:
    """From the rows of `password_changed`; None where they do not say."""
    return float(rows[0][0]) if rows and rows[0][0] is not None else None


def flaws_of(account: Account, changed: float | None, servers: int) -> Iterator[Flaw]:
    """What of the account will stop ticket servers, or hold them up. `changed`: when its password was, None where that
    is unknown. `servers`: how many use the database."""
    for limit, number in account.hourly.items():
        yield Flaw(
            f"limits the account {account.name} to {limit} {number}: once an hour's are used up, no ticket is drawn "
            "from it until the hour is over",
            f"ALTER USER {account.name} WITH {limit} 0",
        )
    needed = CONNECTIONS_OF_A_SERVER * max(1, servers)
    if 0 < account.connections < needed:
        yield Flaw(
            f"limits the account {account.name} to MAX_USER_CONNECTIONS {account.connections}, and "
            f"{_servers(servers)} {needed}: requests wait for each other's connections",
            f"ALTER USER {account.name} WITH MAX_USER_CONNECTIONS {0 if account.own_connections else needed}"
            + ("" if account.own_connections else ", or raise max_user_connections, the limit of all accounts"),
        )
    if account.days is not None:
        yield Flaw(
            f"lets the password of the account {account.name} expire {_when(account.days, changed)}: from then on no "
            "ticket server can log in",
            f"ALTER USER {account.name} PASSWORD EXPIRE NEVER",
        )


def remarks_on(account: Account) -> Iterator[str]:
    """The notes on an account that has enough rights and connections for the ticket servers there are."""
    if account.connections > 0:
        yield (
            f"the account {account.name} may have {account.connections} connections at once, and each ticket server "
            f"opens up to {CONNECTIONS_OF_A_SERVER}"
        )


def _servers(count: int) -> str:
    return "a ticket server opens up to" if count <= 1 else f"the {count} ticket servers that use it open up to"


def _when(days: int, changed: float | None) -> str:
    if changed is None:
        return f"{days} days after it was last changed (when that was, the account may not read)"
    expires = datetime.datetime.fromtimestamp(changed, datetime.UTC) + datetime.timedelta(days=days)
    return f"at {expires:%Y-%m-%d %H:%M} UTC, {days} days after it was last changed"
