"""What `ticketd doctor` finds in a MySQL or MariaDB ticket database. To find it changes nothing there."""

import time

from app.databases.address import Address
from app.databases.examination import Examination, Severity
from app.databases.mysql.counters import RAISE_STUB, read_counters
from app.databases.mysql.errors import DENIED, StatementFailed
from app.databases.mysql.login import Line, Rows, log_in
from app.databases.mysql.session import MySQLSession, prepare
from app.databases.mysql.sql import OWN_TABLES, RING, literal, quoted
from app.databases.mysql.url import MySQLAddress, SslMode
from app.databases.session import Counter

_NEEDED = {
    "SELECT": "SELECT 1 FROM {} LIMIT 1",
    "INSERT": "EXPLAIN INSERT INTO {} (text) VALUES ('')",
    "UPDATE": "EXPLAIN UPDATE {} SET text = '' WHERE FALSE",
    "DELETE": "EXPLAIN DELETE FROM {} WHERE FALSE",
}
"""For each privilege a statement that needs it on a table, there or not, and changes nothing."""
_MAKES_NOTHING = "CREATE TABLE _ticket_doctor (id INT, id INT)"
"""It always fails: with _TWO_COLUMNS where the user may make tables, with another error where it may not."""
_TWO_COLUMNS, _READ_ONLY = 1060, (1290, 1792, 1836, 3989)
_SERVER = (
    "SELECT CURRENT_USER(), UNIX_TIMESTAMP(NOW(6)), @@GLOBAL.auto_increment_increment, "
    "@@GLOBAL.auto_increment_offset, @@GLOBAL.log_bin",
    "SHOW SESSION STATUS LIKE 'Ssl_cipher'",
    "SHOW GLOBAL STATUS WHERE Variable_name IN ('Slaves_connected', 'Rpl_semi_sync_master_clients', "
    "'Rpl_semi_sync_source_clients')",
    "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()",
)
_TRIGGERS = (
    "SELECT EVENT_OBJECT_TABLE, TRIGGER_NAME, ACTION_TIMING, EVENT_MANIPULATION FROM information_schema.TRIGGERS "
    "WHERE TRIGGER_SCHEMA = DATABASE()",
    "SELECT 1 FROM information_schema.SCHEMA_PRIVILEGES WHERE DATABASE() LIKE TABLE_SCHEMA AND PRIVILEGE_TYPE = "
    "'TRIGGER' UNION SELECT 1 FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE = 'TRIGGER'",
)


async def examine(address: Address, seconds: float) -> Examination:
    """Examine a database. Raises DatabaseFailed, DatabaseRefused where it cannot be logged in to, or not be used."""
    assert isinstance(address, MySQLAddress)
    started = time.monotonic()
    line = await log_in(address, seconds)
    try:
        facts = await prepare(line, address.database, None, seconds, makes=False)
        elapsed, began = time.monotonic() - started, time.time()
        ((server,), ((_, cipher),), status, tables) = (result.rows for result in await line.run(_SERVER))
        name, now, increment, offset, is_logged = server
        found = Examination(facts.version, facts.machine, began, float(now), time.time(), elapsed)
        found.numbering = int(increment), int(offset)
        for warning in facts.warnings:
            found.add(Severity.WRONG, "settings", warning)
        if not cipher or address.ssl_mode is not SslMode.VERIFY_IDENTITY:
            state = "what the server shows is not verified" if cipher else "it is not encrypted"
            advice = "set VERIFY_IDENTITY and ssl-ca in its URL"
            found.add(Severity.NOTE, "connection", f"{state} (ssl-mode={address.ssl_mode}): {advice}")
        found.add_old_tables(table for (table,) in tables)
        user, _, host = name.rpartition("@")
        account = f"{literal(user)}@{literal(host)}"
        whole = f"ON {quoted(address.database)}.* TO {account}"
        may_draw = await _examine_account(line, address, whole, found)
        if not found.unread:
            await _read(MySQLSession(line, None, facts), line, found)
            await _examine_tables(line, whole, found, may_draw=may_draw)
    finally:
        line.abort()
    await _examine_replication(address, f"ON *.* TO {account}", found, dict(status), is_logged=bool(is_logged))
    return found


async def _examine_account(line: Line, address: MySQLAddress, whole: str, found: Examination) -> bool:
    """Examine what the account may do; return whether that allows draws from each table.

    whole: what a GRANT on the whole database ends with.
    """
    code = await _ask(address, _MAKES_NOTHING)
    is_read_only = code in _READ_ONLY
    if is_read_only:  # the other statements would fail for that
        text = "it is read-only: make it writable, or name the primary in TICKETS_DATABASES"
        found.add(Severity.WRONG, "settings", text)
    elif code not in {*DENIED, _TWO_COLUMNS}:
        found.add(Severity.UNKNOWN, "privileges", f"whether its user may make tables (error {code})")
    lacking = ["CREATE"] if code in DENIED else []
    lacking += [
        privilege
        for privilege, statement in _NEEDED.items()
        if (privilege == "SELECT" or not is_read_only)
        and DENIED & {await _code(line, statement.format(own)) for own in ("_ticket_notes", "_ticket_ring")}
    ]
    for privilege in lacking:
        found.add(Severity.WRONG, "privileges", f"its user lacks {privilege}: GRANT {privilege} {whole}")
    if "SELECT" in lacking:
        found.unread = "its tables may not be read"
    return not (is_read_only or {"INSERT", "DELETE"} & set(lacking))


async def _code(line: Line, statement: str) -> int:
    """Return the error of a statement, 0 for none."""
    try:
        await line.step(statement)
    except StatementFailed as error:
        return error.number
    return 0


async def _ask(address: MySQLAddress, question: str) -> Rows | int:
    """Return the answer, or the error, on a connection of its own: an error may end it."""
    line = await log_in(address, 1)
    try:
        return (await line.run([question]))[0].rows
    except StatementFailed as error:
        return error.number
    finally:
        line.abort()


async def _read(session: MySQLSession, line: Line, found: Examination) -> None:
    (own,) = await line.run([OWN_TABLES])
    has_notes = len(own.rows) == 2
    if has_notes and (await line.run([RING]))[0].rows:
        await found.read(session)
    found.counters = await read_counters(line, None, has_notes=has_notes)


async def _examine_tables(line: Line, whole: str, found: Examination, *, may_draw: bool) -> None:
    """Examine the tables of the sequences that can be served."""
    tables = [counter.name for counter in found.counters.values() if isinstance(counter, Counter)]
    for name in tables if may_draw else ():
        draw = f"EXPLAIN REPLACE INTO {quoted(name)} (id, stub) VALUES (0, '{RAISE_STUB}')"  # noqa: S608
        if await _code(line, draw) in DENIED:
            found.add(Severity.WRONG, name, f"its user may not draw: GRANT SELECT, INSERT, DELETE {whole}")
    triggers, sees = await line.run(_TRIGGERS)
    for table, name, timing, event in triggers.rows:
        if table in tables or table.startswith("_ticket_"):
            harm = "it may change ids" if timing == "BEFORE" else "it slows each draw"
            text = f"it has the trigger {name} ({timing} {event}), and {harm}: DROP TRIGGER {quoted(name)}"
            found.add(Severity.WRONG, table, text)
    if not (line.mariadb or sees.rows):
        found.add(Severity.UNKNOWN, "triggers", f"its user may not see triggers: GRANT TRIGGER {whole}")


async def _examine_replication(
    address: MySQLAddress, everything: str, found: Examination, status: dict[str, str], *, is_logged: bool
) -> None:
    """Examine what the server replicates from, and what replicates from it."""
    is_mariadb = "Slaves_connected" in status
    privilege, first = ("REPLICA MONITOR", 3) if is_mariadb else ("REPLICATION CLIENT", 1)
    sources = await _ask(address, "SHOW ALL SLAVES STATUS" if is_mariadb else "SHOW REPLICA STATUS")
    if isinstance(sources, int):
        text = f"its user may not see whether it is a replica: GRANT {privilege} {everything}"
        found.add(Severity.UNKNOWN, "replication", text)
        sources = ()
    for row in sources:
        text = f"it is a replica of {row[first]}:{row[first + 2]}, and gets rows that it did not draw: end that"
        found.add(Severity.WRONG, "replication", text)
    replicas = int(status.pop("Slaves_connected", 0))
    if is_logged and not is_mariadb:
        shown = await _ask(address, "SHOW REPLICAS")
        if isinstance(shown, int):
            text = f"its user may not see whether it has replicas: GRANT REPLICATION SLAVE {everything}"
            found.add(Severity.UNKNOWN, "replication", text)
            return
        replicas = len(shown)
    if replicas > sum(map(int, status.values())):
        harm = "one that is promoted behind counts as a database that came back older, and skips ids"
        found.add(Severity.NOTE, "replication", f"it has {replicas} replicas, not all of them semi-synchronous: {harm}")
