"""A check-up of a MySQL or MariaDB ticket database: what can be wrong with this engine alone, and not one change."""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from app.common.errors import (
    NoFurtherConnection,
    SequenceUnavailable,
    TicketDatabaseError,
    TicketDatabaseMisconfigured,
    TicketDatabaseSetWrong,
    TicketDatabaseUnavailable,
)
from app.common.sequences import Width
from app.common.slices import sliced
from app.databases.inspection import LOOK_SECONDS, Flaw, Inspection, Inspector, NotLookedAt
from app.databases.mysql import account, sequence_sql
from app.databases.mysql.books import own_sql
from app.databases.mysql.books.rows import clock_of, layout_of
from app.databases.mysql.database import MySQLDatabase
from app.databases.mysql.line import session_sql
from app.databases.mysql.line.bounds import MOST_KEYS, listing
from app.databases.mysql.line.connection import MySQLConnection
from app.databases.mysql.line.driver import NoAgreement, NoTLS, Rows, code_of
from app.databases.mysql.line.errors import MISSING_TABLE
from app.databases.mysql.line.pool import MySQLPool
from app.databases.mysql.line.server_facts import ServerFacts
from app.databases.mysql.line.url import DatabaseURL, SslMode
from app.databases.mysql.tables import CRASH_SAFE_ENGINES, not_crash_safe
from app.databases.mysql.triggers import triggers_of

CONNECT_SECONDS = 5.0
"""How long connecting may take, at least."""

DENIED = frozenset({1044, 1142, 1143})
_UNREAD = {MISSING_TABLE: "is missing", **dict.fromkeys(DENIED, "may not be read by its user")}
OWN = "its own tables"
CLOCK_READINGS = 3
SYNTAX_ERROR = 1064
READ_ONLY = {
    1290: "it runs with read_only or super_read_only",
    1792: "its transactions are read-only (transaction_read_only)",
    1836: "it runs in read-only mode (innodb_read_only)",
    3989: "its schema is read-only",
}

_MAKE_OWN = (
    "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE on the whole database to its user, and start a ticket server: it "
    "makes what is missing, and writes what the other databases record"
)
_WIDEST = "id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT"
_LOG_IN = "put the right user and password into its URL (or TICKETS_DATABASE_PASSWORD), or ALTER USER … IDENTIFIED BY"
_ADVICE = {
    1040: "raise its max_connections, or close what else is connected",
    1044: "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE on that database to its user",
    1045: _LOG_IN,
    1049: "CREATE DATABASE it and run mysql_init/*.sql there, or put the right one into its URL",
    1129: "FLUSH HOSTS (TRUNCATE performance_schema.host_cache) there",
    1130: "create the user for the host that this machine connects from",
    1203: "raise max_user_connections",
    1226: "raise the user's limits",
    1698: _LOG_IN,
    1862: "set the user a new password",
    2061: _LOG_IN,
    3118: "ALTER USER … ACCOUNT UNLOCK",
    3159: "use ssl-mode=REQUIRED in its URL",
}
_UNREACHABLE = "start it, or see to host, port and firewall"
_TRUST = (
    "let ssl-ca in its URL be the authority that signed its certificate; with ssl-mode=VERIFY_IDENTITY, that has to "
    "name the URL's host"
)
_VERIFY = "set ssl-mode=VERIFY_IDENTITY and ssl-ca in its URL"

Key = tuple[str, bool, list[str]]
"""A key of a table: its name, whether it is unique, its columns in order."""


class MySQLInspector(Inspector):
    """Looks at one MySQL or MariaDB server on one connection."""

    def __init__(
        self, url: DatabaseURL, offset: int, increment: int, timeout: float, clock: Callable[[], float] = time.time
    ) -> None:
        """`clock`: this machine's, in seconds since 1970."""
        self._pool = MySQLPool(url, offset, increment, LOOK_SECONDS, anybody=True)
        found = Inspection(url.name, offset, increment, ServerFacts.setting_names, known_layout=own_sql.LAYOUT_VERSION)
        super().__init__(found, MySQLDatabase(url, offset, increment, LOOK_SECONDS, pool=self._pool))
        found.unverified = unverified(url, tls=url.ssl_mode is not SslMode.DISABLED)
        found.fix_unread = "check what locks its table (SHOW PROCESSLIST), or restore the table"
        self._url = url
        self._clock = clock
        self._connect_seconds = max(timeout, CONNECT_SECONDS)
        self._mariadb = False
        self._denied: dict[str, list[str]] = {}

    def explain(self, error: TicketDatabaseError) -> tuple[str, str]:
        """See Inspector.explain."""
        match error:
            case NoTLS():
                return str(error), "give it a certificate (ssl_cert, ssl_key), or ask for less in its URL"
            case NoAgreement():
                return str(error), _TRUST
            case TicketDatabaseSetWrong():
                return error.wrong, error.fix
            case TicketDatabaseMisconfigured():
                return str(error), "upgrade it"
            case NoFurtherConnection():
                error = error.__cause__ if isinstance(error.__cause__, TicketDatabaseError) else error
        return str(error), _ADVICE.get(code_of(error) or 0, _UNREACHABLE)

    async def begin(self) -> bool:
        """See Inspector.begin."""
        found = self.inspection
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._connect_seconds):
                connection = await self._pool.connect()
        except TimeoutError as error:
            raise TicketDatabaseUnavailable("did not answer a new connection in time") from error
        found.connect_seconds = time.monotonic() - began
        assert connection.facts is not None
        self._take(connection.facts)
        with suppress(SequenceUnavailable):  # the first server that comes makes them, or it may not be read
            found.layout = await connection.ask(own_sql.LAYOUT, layout_of)
        self._pool.give_back(connection)
        return True

    def _take(self, facts: ServerFacts) -> None:
        found = self.inspection
        self._mariadb = facts.mariadb
        found.product = f"{'MariaDB' if facts.mariadb else 'MySQL'} {facts.version.split('-')[0]}"
        found.identity = facts.identity
        if facts.numbered_by_group is None:
            found.set_increment, found.set_offset = facts.increment, facts.offset
        else:
            found.flaws.append(Flaw(facts.numbered_by_group.wrong, facts.numbered_by_group.fix))
        found.flaws += facts.flaws
        found.tls = facts.tls
        found.folded_by = "lower_case_table_names" if facts.folds_names else ""
        found.unverified = unverified(self._url, tls=facts.tls)

    async def look(self) -> None:
        """See Inspector.look."""
        async with self._pool.question() as connection:
            await self._look_at_clock(connection)
            await self._look_at_sources(connection)
            await self._look_at_privileges(connection)
            await self._look_at_own_tables(connection)
            await self._look_at_account(connection)
            await self._look_at_tables(connection)
        for privilege, tables in sorted(self._denied.items()):
            named = [table for table in tables if table]
            where = f" ({', '.join(named[:3])}{' and more' if len(named) > 3 else ''})" if named else ""
            self.inspection.flaws.append(
                Flaw(
                    f"does not grant its user the privilege {privilege}{where}",
                    f"GRANT {privilege} on the whole database to that user",
                )
            )

    async def _look_at_clock(self, connection: MySQLConnection) -> None:
        """It reads its clock somewhere between a question and the answer: half of the shortest round trip is the
        doubt."""
        found = self.inspection
        found.clock_doubt = LOOK_SECONDS
        for _ in range(CLOCK_READINGS):
            before = self._clock()
            there = await connection.ask(session_sql.CLOCK, clock_of)
            after = self._clock()
            if abs(after - before) / 2 < found.clock_doubt:
                found.clock_doubt = abs(after - before) / 2
                found.clock_ahead = there - (before + after) / 2

    async def _look_at_sources(self, connection: MySQLConnection) -> None:
        found, mariadb = self.inspection, self._mariadb
        for statement in session_sql.sources(mariadb=mariadb):
            code = await connection.attempt(statement)
            if code != SYNTAX_ERROR:
                break
        if code:
            privilege = "REPLICA MONITOR" if mariadb else "REPLICATION CLIENT"
            found.not_looked_at.append(NotLookedAt("whether it replicates from another server", privilege))
            return
        word = "REPLICA" if "REPLICA" in statement else "SLAVE"
        for source, end in connection.understand(lambda rows: _sources_of(rows, word, mariadb=mariadb)).items():
            found.flaws.append(
                Flaw(
                    f"replicates from {source}: it gets rows that it has not drawn, and its counters follow that "
                    "server's",
                    f"{end}, and take it out of whatever set that up: a ticket database replicates from nobody",
                )
            )

    # --- what the user may -----------------------------------------------------------------------------------------

    async def _look_at_privileges(self, connection: MySQLConnection) -> None:
        code = await connection.attempt(own_sql.MAY_CREATE)
        if code in READ_ONLY:
            self.inspection.flaws.append(Flaw(f"is read-only: {READ_ONLY[code]}", "make it writable"))
        elif code in DENIED:
            self._deny("CREATE", "")
        for privilege, statement in own_sql.MAY_KEEP_OWN_TABLES.items():
            await self._try(connection, privilege, statement, OWN)

    async def _try(self, connection: MySQLConnection, privilege: str, statement: str, table: str) -> None:
        if await connection.attempt(statement) in DENIED:
            self._deny(privilege, table)

    def _deny(self, privilege: str, table: str) -> None:
        self._denied.setdefault(privilege, []).append(table)
        if privilege == "SELECT":
            self.inspection.hidden.add(table)

    async def _look_at_account(self, connection: MySQLConnection) -> None:
        """How many servers use the account is known by now."""
        found = self.inspection
        name = await connection.ask(account.CURRENT_USER, lambda rows: str(rows[0][0]))
        if await connection.attempt(account.DEFINITION):
            found.not_looked_at.append(NotLookedAt("at the limits of its account", "SELECT on the schema mysql"))
            return
        definition = connection.understand(lambda rows: str(rows[0][0]))
        days = await connection.ask(account.DEFAULT_LIFETIME, account.first_number)
        connections = await connection.ask(account.USER_CONNECTIONS, account.first_number)
        own = account.account_of(name, definition, days, connections)
        changed = None
        if own.days is not None and not await connection.attempt(account.password_changed(mariadb=self._mariadb)):
            changed = connection.understand(account.changed_at)
        flaws = list(account.flaws_of(own, changed, len(found.servers)))
        found.flaws += flaws
        if not any("MAX_USER_CONNECTIONS" in flaw.wrong for flaw in flaws):
            found.remarks += account.remarks_on(own)

    # --- tables ----------------------------------------------------------------------------------------------------

    async def _look_at_own_tables(self, connection: MySQLConnection) -> None:
        found = self.inspection
        if OWN in found.hidden:
            return
        found.flaws += await connection.ask(own_sql.ENGINES, not_crash_safe)
        known = own_sql.INNER_LAYOUT <= found.layout <= own_sql.LAYOUT_VERSION
        for table in own_sql.LATER_TABLES if known else ():
            code = await connection.attempt(f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608 - a constant
            if code:
                why = _UNREAD.get(code, f"cannot be read (error {code})")
                found.flaws.append(Flaw(f"{table}: {why}", _MAKE_OWN))

    async def _look_at_tables(self, connection: MySQLConnection) -> None:
        found = self.inspection
        for part in sliced(sorted(found.tables), 50):
            keys = await connection.ask(sequence_sql.keys(part), _keys_of, listing(len(part) * MOST_KEYS))
            await connection.start(sequence_sql.tables(part), listing(len(part)))
            connection.understand(partial(self._take_tables, keys=keys))
        triggers, unknown = await triggers_of(connection, found.tables)
        for name, flaws in triggers.items():
            found.table_flaws.setdefault(name, []).extend(flaws)
        if unknown is not None:
            found.not_looked_at.append(unknown)
        for name in found.tables:
            for privilege, statement in sequence_sql.may(name).items():
                await self._try(connection, privilege, statement, name)

    def _take_tables(self, rows: Rows, keys: dict[str, list[Key]]) -> None:
        """The tables, from the rows of `sequence_sql.tables` and the tables' keys."""
        found = self.inspection
        for row in rows:
            name, engine, shown = str(row[0]), str(row[1]), session_sql.quoted(str(row[0]))
            if name not in found.tables:
                continue
            found.columns[name] = str(row[4])
            if found.tables[name].width is not Width.JAVASCRIPT:
                found.widen[name] = f"ALTER TABLE {shown} MODIFY {_WIDEST}"
            flaws = []
            if engine not in CRASH_SAFE_ENGINES:
                wrong = f"its engine {engine} is not crash-safe: a lost row would be a ticket issued twice"
                flaws.append(Flaw(wrong, f"ALTER TABLE {shown} ENGINE=InnoDB"))
            if fix := fix_keys(shown, keys.get(name, [])):
                flaws.append(Flaw("its keys deadlock when several servers draw at once", fix))
            if flaws:
                found.table_flaws[name] = flaws


def unverified(url: DatabaseURL, *, tls: bool) -> str:
    """What nobody verifies of a connection by this URL that uses `tls` or not, and what to set; empty where all is."""
    if not tls:
        key = ", and it is sent the password for any public key that comes" if url.get_server_public_key else ""
        return f"its connection is not encrypted: whoever gets between can take its place{key}; {_VERIFY}"
    if not url.verifies:
        return (
            f"its certificate is not verified (ssl-mode={url.ssl_mode}): whoever gets between can take its place and "
            f"learn the password; {_VERIFY}"
        )
    if url.ssl_mode is not SslMode.VERIFY_IDENTITY:
        return (
            f"the name in its certificate is not verified (ssl-mode={url.ssl_mode}): whoever gets between with another "
            "certificate of the same authority can take its place and learn the password; set ssl-mode=VERIFY_IDENTITY"
        )
    return ""


def _sources_of(rows: Rows, word: str, *, mariadb: bool) -> dict[str, str]:
    """See Inspection.sources; from the rows of `session_sql.sources`. `word`: the server's for a replica."""
    if mariadb:
        return {f"{row[3]}:{row[5]}": session_sql.no_longer_from(str(row[0]), word) for row in rows}
    return {f"{row[1]}:{row[3]}": session_sql.no_longer_from("", word) for row in rows}


def _keys_of(rows: Rows) -> dict[str, list[Key]]:
    """The keys of each table, from the rows of `sequence_sql.keys`."""
    keys: dict[str, list[Key]] = {}
    for table, index, not_unique, columns in rows:
        keys.setdefault(str(table), []).append((str(index), not int(not_unique), str(columns).split(",")))
    return keys


def fix_keys(name: str, keys: Iterable[Key]) -> str | None:
    """The statement that makes `stub` the primary key; None where it is."""
    changes = []
    id_has_key = False
    for index, unique, columns in keys:
        if index == "PRIMARY":
            if columns == ["stub"]:
                return None
            changes.append("DROP PRIMARY KEY")
        elif unique and columns == ["stub"]:
            changes.append(f"DROP KEY {session_sql.quoted(index)}")
        elif columns[0] == "id":
            id_has_key = True
    changes.append("ADD PRIMARY KEY (stub)")
    if not id_has_key:
        changes.append("ADD KEY id (id)")
    return f"ALTER TABLE {name} {', '.join(changes)}"
