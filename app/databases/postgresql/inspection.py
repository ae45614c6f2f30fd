"""A check-up of a PostgreSQL ticket database. It reads, and changes nothing."""

import time
from typing import Any

from app.common.errors import TicketDatabaseError, TicketDatabaseMisconfigured, TicketDatabaseSetWrong
from app.databases.inspection import LOOK_SECONDS, Flaw, Inspection, Inspector, NotLookedAt
from app.databases.postgresql import sql
from app.databases.postgresql.database import PostgreSQLDatabase
from app.databases.postgresql.errors import SET_UP, code_of
from app.databases.postgresql.settings import check_table, flaws_of
from app.databases.postgresql.url import PostgreSQLURL

LONG_SECONDS = 60
"""While a transaction is open for longer, PostgreSQL cannot clear away the dead row versions that draws leave."""
_UNREACHABLE = "start it, or see to host, port and firewall"
_ADVICE = {
    "28000": "add a line for this user and host to pg_hba.conf",
    "28P01": "mend user and password in its URL",
    "3D000": "create the database, or mend the URL",
    "53300": "raise max_connections, or the user's CONNECTION LIMIT",
}


class PostgreSQLInspector(Inspector):
    """Looks at one schema of a PostgreSQL server."""

    def __init__(self, url: PostgreSQLURL, offset: int, increment: int, timeout: float) -> None:
        self._database = PostgreSQLDatabase(url, offset, increment, LOOK_SECONDS)
        super().__init__(Inspection(url.name, offset, increment), self._database)
        found = self.inspection
        found.set_offset, found.set_increment = offset, increment
        found.fix_unread = "check what locks its row (pg_stat_activity), or restore the table"
        self._url = url

    def explain(self, error: TicketDatabaseError) -> tuple[str, str]:
        """See Inspector.explain."""
        if isinstance(error, TicketDatabaseSetWrong):
            return error.wrong, error.fix
        if isinstance(error, TicketDatabaseMisconfigured):
            return str(error), "upgrade it"
        return str(error), _ADVICE.get(code_of(error.__cause__), _UNREACHABLE)

    async def begin(self) -> bool:
        """See Inspector.begin."""
        found, began = self.inspection, time.monotonic()
        before = time.time()
        there = await self._database.clock()
        after = time.time()
        (connection,) = self._database.open_connections
        found.connect_seconds = time.monotonic() - began
        found.clock_doubt = (after - before) / 2
        found.clock_ahead = there - (before + after) / 2
        found.product = f"PostgreSQL {connection.facts['version'] // 10_000}.{connection.facts['version'] % 10_000}"
        found.identity, found.tls = connection.identity, connection.tls
        if not connection.tls:
            found.unverified = "the connection is not encrypted: set sslmode=verify-full and sslrootcert in its URL"
        elif not self._url.verifies:
            found.unverified = "the server's certificate is not verified: set sslmode=verify-full and sslrootcert"
        return True

    async def look(self) -> None:
        """See Inspector.look."""
        found = self.inspection
        for row in await self._database.ask(lambda c: c.driver.fetch(sql.SETTINGS, LONG_SECONDS)):
            self._judge(row)
        rows = await self._database.ask(lambda c: c.driver.fetch(sql.FOUND_TABLES, list(sql.COLUMNS)))
        for row in rows:
            try:
                check_table(row)
            except TicketDatabaseSetWrong as error:
                found.flaws.append(Flaw(error.wrong, error.fix))
        missing = sorted(set(sql.COLUMNS) - {row["name"] for row in rows})
        if missing and not await self._database.ask(lambda c: c.driver.fetchval(sql.MAY_CREATE)):
            found.flaws.append(Flaw(f"has no {', '.join(missing)}, and its user may not create tables", SET_UP))
        for name, table in found.tables.items():
            found.columns[name] = f"{int(table.width)} bits"

    def _judge(self, row: Any) -> None:
        found = self.inspection
        found.flaws += flaws_of(row)
        if row["standby"]:
            found.flaws.append(Flaw("is a standby, which takes no writes", "name the primary in its URL"))
        if row["default_synchronous"] == "off":
            found.remarks.append(
                "synchronous_commit is off for its user; ticket servers set it to on for their sessions"
            )
        if not row["sees_others"]:
            found.not_looked_at.append(
                NotLookedAt("whether another user has a transaction open for long", "pg_read_all_stats")
            )
        if row["long"] is not None:
            found.flaws.append(
                Flaw(
                    f"has had a transaction open for {row['long']:.0f} s, so draws leave dead rows behind "
                    f"({row['dead'] or 0} now), and each draw reads past them",
                    "end it (pg_stat_activity, pg_prepared_xacts, pg_replication_slots)",
                )
            )
