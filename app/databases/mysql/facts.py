"""What a MySQL or MariaDB server says of itself: which machine it is, what is refused, and what is warned of."""

import hashlib
import re
from collections.abc import Iterator

from app.databases.mysql.login import Rows
from app.databases.mysql.sql import LAYOUT
from app.databases.session import Facts, Residue
from app.errors import DatabaseRefused

_NAMES = (
    "auto_increment_increment, auto_increment_offset, datadir, group_replication_auto_increment_increment, "
    "group_replication_group_name, hostname, innodb_autoinc_lock_mode, innodb_doublewrite, "
    "innodb_flush_log_at_trx_commit, innodb_flush_method, log_bin, port, server_id, server_uuid, sync_binlog, version, "
    "wsrep_auto_increment_control, wsrep_on"
)
VARIABLES = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('" + _NAMES.replace(", ", "', '") + "')"
_OLDEST = {"MySQL": (8, 0), "MariaDB": (10, 6)}


def facts_of(clock: Rows, variables: Rows, own_tables: Rows) -> Facts:
    """Return the facts, from the answers to `sql.clock`, `VARIABLES` and `sql.OWN_TABLES`."""
    now, started = clock[0]
    known: dict[str, str] = dict(variables)
    machine = known.get("server_uuid") or ""
    if not machine:  # MariaDB has no such word
        place = "\0".join(known.get(name, "") for name in ("hostname", "port", "datadir", "server_id"))
        machine = hashlib.sha256(place.encode()).hexdigest()[:32]
    version = f"{'MariaDB' if 'mariadb' in known['version'].lower() else 'MySQL'} {known['version']}"
    births = " ".join(str(created) for _, created, *_ in own_tables)
    return Facts(machine, float(started), births, float(now), version, tuple(_warnings(known)))


def check(greeting: str, variables: Rows, own_tables: Rows, residue: Residue | None) -> None:
    """Raise DatabaseRefused where the server cannot be a ticket database, or not one of this residue.

    greeting: the server's version, as it greets. A server whose own increment is another one is served, because each
    session sets its own, and an operator may change the server's at any time while a ring grows.
    """
    complaint = next(_complaints(greeting, dict(variables), own_tables, residue), None)
    if complaint is not None:
        raise DatabaseRefused(complaint)


def _complaints(greeting: str, known: dict[str, str], own_tables: Rows, residue: Residue | None) -> Iterator[str]:
    engine = "MariaDB" if "mariadb" in greeting.lower() else "MySQL"
    # MariaDB may put "5.5.5-" before its version, for the sake of old replicas.
    found = re.search(r"(\d+)\.(\d+)\.\d+-mariadb" if engine == "MariaDB" else r"^(\d+)\.(\d+)", greeting.lower())
    if found is None or (int(found[1]), int(found[2])) < _OLDEST[engine]:
        yield f"forgets its counters in a crash: {engine} has to be {'.'.join(map(str, _OLDEST[engine]))} or later"
    if known.get("wsrep_on") == "ON" and known.get("wsrep_auto_increment_control") == "ON":
        yield "has wsrep_auto_increment_control=ON, so its Galera cluster numbers the ids: set it to OFF on every node"
    increment, offset = known.get("auto_increment_increment"), known.get("auto_increment_offset")
    by_group = known.get("group_replication_auto_increment_increment")
    in_group = by_group == increment and known.get("group_replication_group_name")
    if residue is not None and in_group and increment != str(residue.increment):
        yield (
            f"has group_replication_auto_increment_increment={by_group}, so Group Replication numbers the ids: set "
            f"it to {residue.increment} on every member, and restart the members one after the other"
        )
    if residue is not None and increment == str(residue.increment) and offset != str(residue.offset):
        yield f"has auto_increment_offset={offset}, expected {residue.offset}: list it there, or change the setting"
    for name, _, storage, comment in own_tables:
        if comment != LAYOUT:
            yield f"has a table {name} of '{comment}', and this release knows '{LAYOUT}': upgrade the ticket server"
        if storage != "InnoDB":
            yield f"has the table {name} on {storage}: ALTER TABLE {name} ENGINE=InnoDB"


def _warnings(known: dict[str, str]) -> Iterator[str]:
    if (flush := known.get("innodb_flush_log_at_trx_commit", "1")) != "1":
        yield f"innodb_flush_log_at_trx_commit={flush} loses tickets in a crash: set it to 1"
    if known.get("log_bin") == "ON" and (sync := known.get("sync_binlog")) != "1":
        yield f"sync_binlog={sync} with the binary log on loses tickets in a crash: set it to 1"
    if (double := known.get("innodb_doublewrite", "ON")) not in ("ON", "1"):
        yield f"innodb_doublewrite={double} loses tables in a power cut: set it to ON and restart the server"
    if (method := known.get("innodb_flush_method", "")).lower() in ("nosync", "littlesync"):
        yield f"innodb_flush_method={method} loses tickets in a power cut: set it to O_DIRECT and restart the server"
    if known.get("innodb_autoinc_lock_mode") == "0":
        yield "innodb_autoinc_lock_mode=0 makes draws wait for each other: set it to 2 and restart the server"
