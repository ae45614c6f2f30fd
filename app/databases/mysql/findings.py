"""What `ticketd doctor` finds in a MySQL or MariaDB ticket database. To find it changes nothing there."""

import time
from typing import NamedTuple

from app.databases.examination import Examination, Severity
from app.databases.mysql.facts import prepare
from app.databases.mysql.login import DENIED, READ_ONLY, Line, Rows, StatementFailed, literal, quoted
from app.databases.mysql.session import RING, MySQLSession
from app.databases.mysql.tables import read_counters
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
    "SHOW GLOBAL STATUS LIKE 'Slaves_connected'",
    "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()",
    "SELECT EVENT_OBJECT_TABLE, TRIGGER_NAME FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()",
    "SELECT 1 FROM information_schema.SCHEMA_PRIVILEGES WHERE DATABASE() LIKE TABLE_SCHEMA AND PRIVILEGE_TYPE = "
    "'TRIGGER' UNION SELECT 1 FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE = 'TRIGGER'",
)


async def examine(address: MySQLAddress, seconds: float) -> Examination:
    """Examine a database. Raises DatabaseFailed, DatabaseRefused where it cannot be logged in to, or not be used."""
    started, line = time.monotonic(), Line(address)
    try:
        await line.open(seconds)
        facts = await prepare(line, None, seconds)
        elapsed, began = time.monotonic() - started, time.time()
        server, tls, status, tables, triggers, sees = (result.rows for result in await line.run(_ABOUT_SERVER))
        ((name, now, is_logged, increment, offset),), ((_, cipher),) = server, tls
        found = Examination(facts.version, facts.machine, began, float(now), time.time(), elapsed)
        found.numbering = int(increment), int(offset)
        for warning in facts.warnings:
            found.add(Severity.WRONG, "settings", warning)
        if not cipher or address.ssl_mode != "VERIFY_IDENTITY":
            state = "what the server shows is not verified" if cipher else "it is not encrypted"
            advice = "set VERIFY_IDENTITY and ssl-ca in its URL"
            found.add(Severity.NOTE, "connection", f"{state} (ssl-mode={address.ssl_mode}): {advice}")
        found.add_old_tables(table for (table,) in tables)
        doctor = _Doctor(line, found, "@".join(map(literal, name.rsplit("@", 1))))
        await doctor.examine_privileges()
        if not found.unread:
            if " " in facts.births and (await line.step(RING)).rows:
                await found.read(MySQLSession(line, None, facts))
            found.counters = await read_counters(line, None)
            doctor.examine_triggers(triggers, sees=line.mariadb or bool(sees))
        await doctor.examine_replication(sum(int(count) for _, count in status), is_logged=bool(is_logged))
    finally:
        line.close()
    return found


class _Doctor(NamedTuple):
    """Examines a database by statements that may be denied."""

    line: Line
    found: Examination
    account: str

    def add_unseen(self, subject: str, what: str, privilege: str, where: str = "*.*") -> None:
        grant = f"GRANT {privilege} ON {where} TO {self.account}"
        self.found.add(Severity.UNKNOWN, subject, f"its user may not see {what}: {grant}")

    async def ask(self, question: str, what: str, privilege: str) -> Rows:
        """Return the answer, or nothing where the account may not see what it says."""
        try:
            return (await self.line.step(question)).rows
        except StatementFailed:
            self.add_unseen("replication", what, privilege)
            return ()

    async def examine_privileges(self) -> None:
        """Examine what the account may do with the own tables, and with any table of the database."""
        for privilege, statement in _NEEDED.items():
            errors = set()
            for own in ("_ticket_notes", "_ticket_ring"):
                try:
                    await self.line.step(statement.format(own))
                except StatementFailed as error:
                    errors.add(error.number)
            if DENIED & errors:
                text = f"its user lacks {privilege}: GRANT {privilege} ON {quoted(self.line.db)}.* TO {self.account}"
                self.found.add(Severity.WRONG, "privileges", text)
                self.found.unread = self.found.unread or ("its tables may not be read" if privilege == "SELECT" else "")
            elif privilege == "CREATE" and READ_ONLY & errors:
                text = "it is read-only: make it writable, or name the primary in TICKETS_DATABASES"
                self.found.add(Severity.WRONG, "settings", text)

    def examine_triggers(self, triggers: Rows, *, sees: bool) -> None:
        """Examine the triggers of sequences that can be served, and of the own tables. sees: whether these are all."""
        sequences = [counter.name for counter in self.found.counters.values() if isinstance(counter, Counter)]
        for table, name in triggers:
            if table in sequences or table.startswith("_ticket_"):
                text = f"it has the trigger {name}, which slows draws and may change ids: DROP TRIGGER {quoted(name)}"
                self.found.add(Severity.WRONG, table, text)
        if not sees:
            self.add_unseen("triggers", "triggers", "TRIGGER", f"{quoted(self.line.db)}.*")

    async def examine_replication(self, replicas: int, *, is_logged: bool) -> None:
        """Examine what the server replicates from, and what replicates from it. replicas: of MariaDB."""
        mariadb = self.line.mariadb
        question = "SHOW ALL SLAVES STATUS" if mariadb else "SHOW REPLICA STATUS"
        privilege = "REPLICA MONITOR" if mariadb else "REPLICATION CLIENT"
        for row in await self.ask(question, "whether it is a replica", privilege):
            host, _, port = row[3:6] if mariadb else row[1:4]
            text = f"it is a replica of {host}:{port}, and gets rows that it did not draw: end that"
            self.found.add(Severity.WRONG, "replication", text)
        if is_logged and not mariadb:
            replicas = len(await self.ask("SHOW REPLICAS", "whether it has replicas", "REPLICATION SLAVE"))
        if replicas:
            harm = "one that is promoted behind counts as a database that came back older, and skips ids"
            self.found.add(Severity.NOTE, "replication", f"it has {replicas} replicas: {harm}")
