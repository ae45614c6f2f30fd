"""What `ticketd doctor` finds in a MySQL or MariaDB ticket database. To find it changes nothing there."""

import time
from typing import NamedTuple

from app.databases.address import Address
from app.databases.examination import Examination, Severity
from app.databases.mysql.counters import read_counters
from app.databases.mysql.errors import DENIED, READ_ONLY, StatementFailed
from app.databases.mysql.login import Line, Rows, literal, quoted
from app.databases.mysql.notebook import RING
from app.databases.mysql.session import MySQLSession, prepare
from app.databases.mysql.url import MySQLAddress
from app.databases.session import Counter

_NEEDED = {
    "CREATE": "CREATE TABLE _ticket_doctor (id INT, id INT)",
    "SELECT": "SELECT 1 FROM {} LIMIT 1",
    "INSERT": "EXPLAIN INSERT INTO {} (text) VALUES ('')",
    "UPDATE": "EXPLAIN UPDATE {} SET text = '' WHERE FALSE",
    "DELETE": "EXPLAIN DELETE FROM {} WHERE FALSE",
}
"""For each privilege a statement that needs it on a table, there or not, and changes nothing."""
_ABOUT_SERVER = (
    "SELECT CURRENT_USER(), UNIX_TIMESTAMP(NOW(6)), @@GLOBAL.log_bin, @@GLOBAL.auto_increment_increment, "
    "@@GLOBAL.auto_increment_offset",
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
    started, line = time.monotonic(), Line(address)
    try:
        await line.open(seconds)
        facts = await prepare(line, address.database, None, seconds)
        elapsed, began = time.monotonic() - started, time.time()
        ((server,), ((_, cipher),), status, tables) = (result.rows for result in await line.run(_ABOUT_SERVER))
        name, now, is_logged, increment, offset = server
        found = Examination(facts.version, facts.machine, began, float(now), time.time(), elapsed)
        found.numbering = int(increment), int(offset)
        for warning in facts.warnings:
            found.add(Severity.WRONG, "settings", warning)
        if not cipher or address.ssl_mode != "VERIFY_IDENTITY":
            state = "what the server shows is not verified" if cipher else "it is not encrypted"
            advice = "set VERIFY_IDENTITY and ssl-ca in its URL"
            found.add(Severity.NOTE, "connection", f"{state} (ssl-mode={address.ssl_mode}): {advice}")
        found.add_old_tables(table for (table,) in tables)
        account = "@".join(map(literal, name.rsplit("@", 1)))
        doctor = _Doctor(line, found, account, f"ON {quoted(address.database)}.* TO {account}")
        await doctor.examine_privileges()
        if not found.unread:
            has_notes = " " in facts.births
            if has_notes and (await line.step(RING)).rows:
                await found.read(MySQLSession(line, None, facts))
            found.counters = await read_counters(line, None, has_notes=has_notes)
            await doctor.examine_triggers()
        await doctor.examine_replication(dict(status), is_logged=bool(is_logged))
    finally:
        line.close()
    return found


class _Doctor(NamedTuple):
    """Examines a database by statements that may be denied. grant: what a GRANT on the database ends with."""

    line: Line
    found: Examination
    account: str
    grant: str

    async def ask(self, question: str) -> Rows | int:
        """Return the answer, or the number of the error."""
        try:
            return (await self.line.step(question)).rows
        except StatementFailed as error:
            return error.number

    def add_unseen(self, subject: str, what: str, privilege: str, where: str) -> None:
        self.found.add(Severity.UNKNOWN, subject, f"its user may not see {what}: GRANT {privilege} {where}")

    async def examine_privileges(self) -> None:
        """Examine what the account may do with the own tables, and with any table of the database."""
        for privilege, statement in _NEEDED.items():
            answers = {await self.ask(statement.format(own)) for own in ("_ticket_notes", "_ticket_ring")}
            if DENIED & answers:
                text = f"its user lacks {privilege}: GRANT {privilege} {self.grant}"
                self.found.add(Severity.WRONG, "privileges", text)
                self.found.unread = self.found.unread or ("its tables may not be read" if privilege == "SELECT" else "")
            elif privilege == "CREATE" and READ_ONLY & answers:
                text = "it is read-only: make it writable, or name the primary in TICKETS_DATABASES"
                self.found.add(Severity.WRONG, "settings", text)

    async def examine_triggers(self) -> None:
        """Examine the triggers of sequences that can be served, and of the own tables."""
        sequences = [counter.name for counter in self.found.counters.values() if isinstance(counter, Counter)]
        triggers, sees = await self.line.run(_TRIGGERS)
        for table, name, timing, event in triggers.rows:
            if table in sequences or table.startswith("_ticket_"):
                harm = "it may change ids" if timing == "BEFORE" else "it slows each draw"
                text = f"it has the trigger {name} ({timing} {event}), and {harm}: DROP TRIGGER {quoted(name)}"
                self.found.add(Severity.WRONG, table, text)
        if not (self.line.mariadb or sees.rows):
            self.add_unseen("triggers", "triggers", "TRIGGER", self.grant)

    async def examine_replication(self, status: dict[str, str], *, is_logged: bool) -> None:
        """Examine what the server replicates from, and what replicates from it."""
        mariadb, everything = self.line.mariadb, f"ON *.* TO {self.account}"
        privilege, first = ("REPLICA MONITOR", 3) if mariadb else ("REPLICATION CLIENT", 1)
        sources = await self.ask("SHOW ALL SLAVES STATUS" if mariadb else "SHOW REPLICA STATUS")
        if isinstance(sources, int):
            self.add_unseen("replication", "whether it is a replica", privilege, everything)
            sources = ()
        for row in sources:
            text = f"it is a replica of {row[first]}:{row[first + 2]}, and gets rows that it did not draw: end that"
            self.found.add(Severity.WRONG, "replication", text)
        replicas = int(status.pop("Slaves_connected", 0))
        if is_logged and not mariadb:
            shown = await self.ask("SHOW REPLICAS")
            if isinstance(shown, int):
                self.add_unseen("replication", "whether it has replicas", "REPLICATION SLAVE", everything)
                return
            replicas = len(shown)
        if replicas > sum(map(int, status.values())):
            harm = "one that is promoted behind counts as a database that came back older, and skips ids"
            text = f"it has {replicas} replicas, not all of them semi-synchronous: {harm}"
            self.found.add(Severity.NOTE, "replication", text)
