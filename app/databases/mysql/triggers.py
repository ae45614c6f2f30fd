"""Which ticket tables have triggers, as far as the account may see that.

A trigger may set the id that a row gets, and two servers would be given the same one. So draws are checked for it, and
the check-up names the tables. MariaDB lists triggers to any account that has a privilege on their table. MySQL lists
them to one with the privilege TRIGGER only; but from 9.1 on a session's counters say whether the table of a statement
had any, and to explain the statement is enough.
"""

from collections.abc import Iterable

from app.databases.inspection import Flaw, NotLookedAt
from app.databases.mysql import sequence_sql
from app.databases.mysql.line import session_sql
from app.databases.mysql.line.bounds import listing
from app.databases.mysql.line.connection import MySQLConnection
from app.databases.mysql.line.driver import Rows

MOST_TRIGGERS = 10_000
TRIGGERS = (
    "SELECT EVENT_OBJECT_TABLE, TRIGGER_NAME, ACTION_TIMING, EVENT_MANIPULATION FROM information_schema.TRIGGERS "
    "WHERE TRIGGER_SCHEMA = DATABASE()"
)
_COUNTERS = "SHOW SESSION STATUS LIKE 'Table_open_cache_triggers_%'"
_PRIVILEGES = (
    "SELECT PRIVILEGE_TYPE FROM information_schema.SCHEMA_PRIVILEGES "
    "WHERE DATABASE() LIKE TABLE_SCHEMA AND PRIVILEGE_TYPE = 'TRIGGER' "
    "UNION ALL SELECT PRIVILEGE_TYPE FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE = 'TRIGGER'"
)
UNKNOWN = NotLookedAt("whether triggers on its tables set the ids", "TRIGGER")


async def triggers_of(
    connection: MySQLConnection, tables: Iterable[str]
) -> tuple[dict[str, list[Flaw]], NotLookedAt | None]:
    """The faults of the tables that have triggers, and the tables that could not be examined.

    Raises TicketDatabaseError.
    """
    tables = set(tables)
    found: dict[str, list[Flaw]] = {}
    for table, name, timing, event in await connection.ask(TRIGGERS, _listed, listing(MOST_TRIGGERS)):
        if table in tables:
            found.setdefault(table, []).append(_flaw(name, timing, event))
    if connection.mariadb or await connection.ask(_PRIVILEGES, bool):
        return found, None
    before = await connection.ask(_COUNTERS, _total)
    if before is None:
        return found, UNKNOWN
    for table in sorted(tables - found.keys()):
        if await connection.attempt(sequence_sql.may(table)["INSERT"]):
            continue  # the privilege that it lacks is a finding of its own
        after = await connection.ask(_COUNTERS, _total)
        if after != before:
            found[table] = [_unnamed(table)]
        before = after
    return found, None


def _listed(rows: Rows) -> list[tuple[str, str, str, str]]:
    return [(str(table), str(name), str(timing), str(event)) for table, name, timing, event in rows]


def _total(rows: Rows) -> int | None:
    """How many tables with triggers the session has opened; None where the server does not count them."""
    return sum(int(value) for name, value in rows if not str(name).endswith("overflows")) if rows else None


def _flaw(name: str, timing: str, event: str) -> Flaw:
    harm = (
        "it can set the id, and two ticket servers would be given the same one; they refuse such ids"
        if (timing, event) == ("BEFORE", "INSERT")
        else "it slows every draw"
    )
    shown = session_sql.quoted(name)
    return Flaw(f"has the trigger {shown} ({timing} {event}): {harm}", f"DROP TRIGGER {shown}")


def _unnamed(table: str) -> Flaw:
    return Flaw(
        "has a trigger, which its user may not see: one that sets the id would give two ticket servers the same one; "
        "they refuse such ids",
        f"find it as an administrator (SHOW TRIGGERS LIKE '{table}') and DROP TRIGGER it",
    )
