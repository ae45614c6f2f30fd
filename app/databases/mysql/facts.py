"""Reads what a MySQL or MariaDB server says of itself, and prepares a session there."""

import hashlib
import re
from collections.abc import Mapping

from app.databases.mysql.login import Line, Rows, literal, quoted
from app.databases.session import Facts, Residue
from app.errors import DatabaseRefused

_SETTINGS = (
    "lock_wait_timeout = {0}, innodb_lock_wait_timeout = {0}, wait_timeout = 31536000, autocommit = 1, "
    "completion_type = 'NO_CHAIN', time_zone = '+00:00', unique_checks = 1, foreign_key_checks = 1, "
    "sql_mode = 'NO_AUTO_VALUE_ON_ZERO,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', "
    "sql_safe_updates = 0, sql_big_selects = 1, sql_select_limit = 18446744073709551615"
)
_IN_CLUSTERS = {
    ("wsrep_on", "ON"): "wsrep_sync_wait = 15",
    ("group_replication_consistency", "EVENTUAL"): "group_replication_consistency = 'BEFORE_ON_PRIMARY_FAILOVER'",
}
"""For a variable of a cluster's node, what lets each statement wait for what other nodes have committed before."""
_PROBE = {"auto_increment_increment": 60_013, "auto_increment_offset": 40_009}
"""Steps that no session has."""
_LAYOUT = "layout 1 on InnoDB"
"""The comment of both own tables, and their engine."""
_OWN_TABLES = (
    "SELECT TABLE_NAME, UNIX_TIMESTAMP(CREATE_TIME), CONCAT(TABLE_COMMENT, ' on ', ENGINE) "
    "FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() "
    "AND TABLE_NAME IN ('_ticket_notes', '_ticket_ring') ORDER BY TABLE_NAME"
)
_NAMES = (
    "auto_increment_increment, auto_increment_offset, datadir, group_replication_auto_increment_increment, "
    "group_replication_group_name, hostname, innodb_autoinc_lock_mode, innodb_doublewrite, "
    "innodb_flush_log_at_trx_commit, innodb_flush_method, log_bin, port, server_id, server_uuid, sync_binlog, version, "
    "wsrep_auto_increment_control, wsrep_on"
)
_VARIABLES = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('" + _NAMES.replace(", ", "', '") + "')"
_OLDEST = {"MySQL": (8, 0), "MariaDB": (10, 6)}
_WEAKENING = (
    # a variable, which of its values weaken a guarantee, and what to do
    ("innodb_flush_log_at_trx_commit", "[^1]", "loses tickets in a crash: set it to 1"),
    ("sync_binlog", "(?!1$).*", "with the binary log on loses tickets in a crash: set it to 1"),
    ("innodb_doublewrite", "(?!ON$|1$).*", "loses tables in a power cut: set it to ON and restart"),
    ("innodb_flush_method", "(?i)nosync|littlesync", "loses tickets in a power cut: set it to O_DIRECT and restart"),
    ("innodb_autoinc_lock_mode", "0", "makes draws wait for each other: set it to 2 and restart"),
)


async def prepare(line: Line, residue: Residue | None, seconds: float) -> Facts:
    """Prepare the session, and return the facts. Raises DatabaseRefused if any is wrong.

    The names come first, because the server reads by them what follows. An `init_connect` may have begun a transaction,
    or have led to another database. Only under REPEATABLE READ may the binary log have any format.

    A statement is committed when it is answered, a number that does not fit is an error, an explicit 0 is no request
    for an id, and a lock is waited for about as long as the caller waits; the servers count whole seconds.
    """
    offset, increment = residue or (1, 1)
    read = "@@SESSION.auto_increment_increment, @@SESSION.auto_increment_offset"
    own = "max_statement_time = 0" if line.mariadb else "max_execution_time = 0, information_schema_stats_expiry = 0"
    statements = [
        "SET NAMES utf8mb4 COLLATE utf8mb4_general_ci",
        f"SET SESSION auto_increment_increment = {increment}, auto_increment_offset = {offset}, {own}, "
        f"{_SETTINGS.format(max(1, round(seconds)))}",
        "ROLLBACK",
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        f"USE {quoted(line.db)}",
        f"SHOW VARIABLES WHERE (Variable_name, Value) IN ({', '.join(f'({literal(*each)})' for each in _IN_CLUSTERS)})",
        # The session has to keep its steps, and a statement has to have others.
        f"SELECT {read}",
        line.with_settings("SELECT", read, **_PROBE),
    ]
    *_, clustered, kept, other = await line.run(statements)
    for each in clustered.rows:
        await line.step(f"SET SESSION {_IN_CLUSTERS[each]}")
    facts = await read_facts(line, residue)  # it raises first where a cluster sets the steps of each session
    steps = [*kept.rows, *other.rows]
    if steps != [(increment, offset), tuple(_PROBE.values())]:
        raise DatabaseRefused(
            f"has the increments and offsets {steps} in a session that has others: something between the ticket server "
            "and it shares sessions, resets them, or removes hints from statements"
        )
    return facts


async def read_facts(line: Line, residue: Residue | None) -> Facts:
    """Read the facts. Raises DatabaseRefused where the server cannot be a ticket database, or not one of this residue.

    A server whose own increment is another one is served, because each session sets its own, and an operator may change
    the server's at any time while a ring grows.
    """
    # One statement reads the clock and the second of the start, so that they belong together.
    clock = (
        "SELECT UNIX_TIMESTAMP(NOW(6)), CAST(UNIX_TIMESTAMP() AS SIGNED) - CAST(VARIABLE_VALUE AS SIGNED) FROM "  # noqa: S608
        f"{'information' if line.mariadb else 'performance'}_schema.global_status WHERE VARIABLE_NAME = 'UPTIME'"
    )
    times, variables, own_tables = await line.run([clock, _VARIABLES, _OWN_TABLES])
    ((now, started),) = times.rows
    known: dict[str, str] = dict(variables.rows)
    version = f"{'MariaDB' if line.mariadb else 'MySQL'} {known['version']}"
    if complaint := _complaint(known, version, residue, own_tables.rows):
        raise DatabaseRefused(complaint)
    # MariaDB has no word of its own.
    place = "\0".join(known.get(name, "") for name in ("hostname", "port", "datadir", "server_id"))
    machine = known.get("server_uuid") or hashlib.sha256(place.encode()).hexdigest()[:32]
    warnings = tuple(
        f"{name}={known[name]} {harm}"
        for name, values, harm in _WEAKENING
        if re.fullmatch(values, known.get(name, "1")) and (name != "sync_binlog" or known.get("log_bin") == "ON")
    )
    births = " ".join(str(created) for _, created, _ in own_tables.rows)
    return Facts(machine, float(started), births, float(now), version, warnings)


def _complaint(known: Mapping[str, str], version: str, residue: Residue | None, own_tables: Rows) -> str | None:
    """Return what an operator has to put right, if anything."""
    engine, number = version.split(" ", 1)
    if tuple(map(int, re.findall(r"\d+", number)[:2])) < _OLDEST[engine]:
        return f"forgets its counters in a crash: {engine} has to be {'.'.join(map(str, _OLDEST[engine]))} or later"
    if known.get("wsrep_on") == known.get("wsrep_auto_increment_control") == "ON":
        return "has wsrep_auto_increment_control=ON, so its Galera cluster numbers the ids: set it to OFF on every node"
    has = Residue(int(known["auto_increment_offset"]), int(known["auto_increment_increment"]))
    wanted, by_group = residue or has, known.get("group_replication_auto_increment_increment")
    if known.get("group_replication_group_name") and by_group == str(has.increment) != str(wanted.increment):
        return (
            f"has group_replication_auto_increment_increment={by_group}, so Group Replication numbers the ids: set it "
            f"to {wanted.increment} on every member, and restart the members one after the other"
        )
    if has.increment == wanted.increment and has.offset != wanted.offset:
        return f"has auto_increment_offset={has.offset}, expected {wanted.offset}: list it there, or change the setting"
    for name, _, layout in own_tables:
        if layout != _LAYOUT:
            return f"has a table {name} of '{layout}', and this release knows '{_LAYOUT}': upgrade the ticket server"
    return None
