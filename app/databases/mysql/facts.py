"""What a MySQL or MariaDB server says of itself: which machine it is, what is refused, and what is warned of."""

import hashlib
import re

from app.databases.mysql.login import Line, Rows
from app.databases.session import Facts, Residue
from app.errors import DatabaseRefused

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


async def read_facts(line: Line, residue: Residue | None) -> Facts:
    """Read the facts. Raises what `facts_of` raises, and DatabaseFailed."""
    # One statement reads the clock and the second of the start, so that they belong together.
    clock = (
        "SELECT UNIX_TIMESTAMP(NOW(6)), CAST(UNIX_TIMESTAMP() AS SIGNED) - CAST(VARIABLE_VALUE AS SIGNED) FROM "  # noqa: S608
        f"{'information' if line.mariadb else 'performance'}_schema.global_status WHERE VARIABLE_NAME = 'UPTIME'"
    )
    times, variables, own = await line.run([clock, _VARIABLES, _OWN_TABLES])
    return facts_of(times.rows, variables.rows, own.rows, residue)


def facts_of(times: Rows, variables: Rows, own_tables: Rows, residue: Residue | None) -> Facts:
    """Return the facts, from the rows of the clock and of the start, of the variables and of the own tables.

    Raises DatabaseRefused where the server cannot be a ticket database, or not one of this residue. A server whose own
    increment is another one is served, because each session sets its own, and an operator may change the server's at
    any time while a ring grows.
    """
    known: dict[str, str] = dict(variables)
    engine = "MariaDB" if "mariadb" in known["version"].lower() else "MySQL"
    has = Residue(int(known["auto_increment_offset"]), int(known["auto_increment_increment"]))
    wanted, by_group = residue or has, known.get("group_replication_auto_increment_increment")
    complaints = {
        f"forgets its counters in a crash: {engine} has to be {'.'.join(map(str, _OLDEST[engine]))} or later": (
            tuple(map(int, re.findall(r"\d+", known["version"])[:2])) < _OLDEST[engine]
        ),
        "has wsrep_auto_increment_control=ON, so its Galera cluster numbers the ids: set it to OFF on every node": (
            known.get("wsrep_on") == known.get("wsrep_auto_increment_control") == "ON"
        ),
        f"has group_replication_auto_increment_increment={by_group}, so Group Replication numbers the ids: set it to "
        f"{wanted.increment} on every member, and restart the members one after the other": (
            known.get("group_replication_group_name") and by_group == str(has.increment) != str(wanted.increment)
        ),
        f"has auto_increment_offset={has.offset}, expected {wanted.offset}: list it there, or change the setting": (
            has.increment == wanted.increment and has.offset != wanted.offset
        ),
        **{
            f"has a table {name} of '{layout}', and this release knows '{_LAYOUT}': upgrade the ticket server": (
                layout != _LAYOUT
            )
            for name, _, layout in own_tables
        },
    }
    for complaint, is_right in complaints.items():
        if is_right:
            raise DatabaseRefused(complaint)
    machine = known.get("server_uuid") or ""
    if not machine:  # MariaDB has no such word
        place = "\0".join(known.get(name, "") for name in ("hostname", "port", "datadir", "server_id"))
        machine = hashlib.sha256(place.encode()).hexdigest()[:32]
    births = " ".join(str(created) for _, created, _ in own_tables)
    warnings = (
        f"{name}={known[name]} {harm}"
        for name, values, harm in _WEAKENING
        if re.fullmatch(values, known.get(name, "1")) and (name != "sync_binlog" or known.get("log_bin") == "ON")
    )
    ((now, started),) = times
    return Facts(machine, float(started), births, float(now), f"{engine} {known['version']}", tuple(warnings))
