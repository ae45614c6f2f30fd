"""A check-up of a MySQL or MariaDB ticket database: every fact that `app.doctor.report` needs, and not one change."""

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from app.common.errors import (
    SequenceMissing,
    TicketDatabaseError,
    TicketDatabaseMisconfigured,
    TicketDatabaseSetWrong,
    TicketDatabaseUnavailable,
)
from app.common.sequences import Width
from app.common.slices import sliced
from app.databases.inspection import SERVERS_SECONDS, InspectedTable, Inspection, NotLookedAt
from app.databases.mysql import account, sequence_sql
from app.databases.mysql.books import own_sql
from app.databases.mysql.books.definitions import definitions_of
from app.databases.mysql.books.marks import marks_of
from app.databases.mysql.books.ring_record import RECORD_BOUND, earlier_record_of, record_of
from app.databases.mysql.books.rows import clock_of, layout_of
from app.databases.mysql.books.servers import servers_of
from app.databases.mysql.line import session_sql
from app.databases.mysql.line.bounds import MOST_KEYS, MOST_MARKS, MOST_SERVERS, MOST_TABLES, listing
from app.databases.mysql.line.connection import MySQLConnection, ServerFacts
from app.databases.mysql.line.driver import NoAgreement, NoTLS, Rows, code_of
from app.databases.mysql.line.errors import MISSING_TABLE
from app.databases.mysql.line.url import DatabaseURL, SslMode
from app.databases.mysql.tables import CRASH_SAFE_ENGINES, names_of, not_crash_safe, position_of, table_of
from app.databases.mysql.triggers import triggers_of
from app.databases.protocol import Position

LOOK_SECONDS = 30.0
"""How long a look at one database may take. A doctor has more patience than a request."""
CONNECT_SECONDS = 5.0
"""How long connecting may take, at least."""

DENIED = frozenset({1044, 1142, 1143})
_UNREAD = {MISSING_TABLE: "is missing", **dict.fromkeys(DENIED, "may not be read by its user")}
CLOCK_READINGS = 3
SYNTAX_ERROR = 1064
READ_ONLY = {
    1290: "it runs with read_only or super_read_only",
    1792: "its transactions are read-only (transaction_read_only)",
    1836: "it runs in read-only mode (innodb_read_only)",
    3989: "its schema is read-only",
}

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


class MySQLInspector:
    """Looks at one MySQL or MariaDB server on one connection."""

    def __init__(
        self, url: DatabaseURL, offset: int, increment: int, timeout: float, clock: Callable[[], float] = time.time
    ) -> None:
        """`clock`: this machine's, in seconds since 1970."""
        self.inspection = Inspection(url.name, offset, increment, known_layout=own_sql.LAYOUT_VERSION)
        self.inspection.unverified = unverified(url, tls=url.ssl_mode is not SslMode.DISABLED)
        self._url = url
        self._clock = clock
        self._connect_seconds = max(timeout, CONNECT_SECONDS)
        self._connection = MySQLConnection(url, increment, offset, url.ssl_context())

    async def inspect(self) -> None:
        """See Inspector.look."""
        found = self.inspection
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                facts = await self._connect()
                self._take(facts)
                await self._look_at_clock()
                await self._look_at_sources(mariadb=facts.mariadb)
                await self._look_at_privileges()
                await self._look_at_own_tables()
                await self._look_at_account(mariadb=facts.mariadb)
                await self._look_at_tables()
        except TimeoutError:
            self._connection.drop()
            found.trouble, found.advice = "did not answer in time", _UNREACHABLE
        except NoTLS as error:
            found.trouble, found.advice = (
                str(error),
                "give it a certificate (ssl_cert, ssl_key), or ask for less in its URL",
            )
        except NoAgreement as error:
            found.trouble, found.advice = str(error), _TRUST
        except TicketDatabaseSetWrong as error:
            found.trouble, found.advice = error.wrong, error.fix
        except TicketDatabaseMisconfigured as error:
            found.trouble, found.advice = str(error), "upgrade it"
        except TicketDatabaseError as error:
            found.trouble, found.advice = str(error), _ADVICE.get(code_of(error) or 0, _UNREACHABLE)

    async def _connect(self) -> ServerFacts:
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._connect_seconds):
                facts = await self._connection.open_unchecked()
        except TimeoutError as error:
            self._connection.drop()
            raise TicketDatabaseUnavailable("did not answer a new connection in time") from error
        self.inspection.connect_seconds = time.monotonic() - began
        return facts

    def _take(self, facts: ServerFacts) -> None:
        found = self.inspection
        found.product = f"{'MariaDB' if facts.mariadb else 'MySQL'} {facts.version.split('-')[0]}"
        found.identity = facts.identity
        found.set_increment, found.set_offset = facts.increment, facts.offset
        found.flaws += facts.flaws
        if facts.numbered_by_group is not None:
            found.numbered_by_group = facts.numbered_by_group.wrong, facts.numbered_by_group.fix
        found.tls = facts.tls
        found.folds_names = facts.folds_names
        found.unverified = unverified(self._url, tls=facts.tls)

    async def _look_at_clock(self) -> None:
        """It reads its clock somewhere between a question and the answer: half of the shortest round trip is the
        doubt."""
        found = self.inspection
        found.clock_doubt = LOOK_SECONDS
        for _ in range(CLOCK_READINGS):
            before = self._clock()
            there = await self._connection.ask(session_sql.CLOCK, clock_of)
            after = self._clock()
            if abs(after - before) / 2 < found.clock_doubt:
                found.clock_doubt = abs(after - before) / 2
                found.clock_ahead = there - (before + after) / 2

    async def _look_at_sources(self, *, mariadb: bool) -> None:
        found = self.inspection
        for statement in session_sql.sources(mariadb=mariadb):
            code = await self._connection.attempt(statement)
            if code != SYNTAX_ERROR:
                break
        if code:
            privilege = "REPLICA MONITOR" if mariadb else "REPLICATION CLIENT"
            found.not_looked_at.append(NotLookedAt("whether it replicates from another server", privilege))
            return
        word = "REPLICA" if "REPLICA" in statement else "SLAVE"
        found.sources = self._connection.understand(lambda rows: _sources_of(rows, word, mariadb=mariadb))

    # --- what the user may -----------------------------------------------------------------------------------------

    async def _look_at_privileges(self) -> None:
        code = await self._connection.attempt(own_sql.MAY_CREATE)
        if code in READ_ONLY:
            self.inspection.read_only = READ_ONLY[code]
        elif code in DENIED:
            self._deny("CREATE", "")
        for privilege, statement in own_sql.MAY_KEEP_OWN_TABLES.items():
            await self._try(privilege, statement, "its own tables")

    async def _try(self, privilege: str, statement: str, table: str) -> None:
        if await self._connection.attempt(statement) in DENIED:
            self._deny(privilege, table)

    def _deny(self, privilege: str, table: str) -> None:
        self.inspection.denied.setdefault(privilege, []).append(table)

    def _may_read(self, table: str) -> bool:
        return table not in self.inspection.denied.get("SELECT", ())

    async def _look_at_account(self, *, mariadb: bool) -> None:
        """After the own tables: they say how many servers use the account."""
        found, connection = self.inspection, self._connection
        name = await connection.ask(account.CURRENT_USER, lambda rows: str(rows[0][0]))
        if await connection.attempt(account.DEFINITION):
            found.not_looked_at.append(NotLookedAt("at the limits of its account", "SELECT on the schema mysql"))
            return
        definition = connection.understand(lambda rows: str(rows[0][0]))
        days = await connection.ask(account.DEFAULT_LIFETIME, account.first_number)
        connections = await connection.ask(account.USER_CONNECTIONS, account.first_number)
        own = account.account_of(name, definition, days, connections)
        changed = None
        if own.days is not None and not await connection.attempt(account.password_changed(mariadb=mariadb)):
            changed = connection.understand(account.changed_at)
        flaws = list(account.flaws_of(own, changed, len(found.servers)))
        found.flaws += flaws
        if not any("MAX_USER_CONNECTIONS" in flaw.wrong for flaw in flaws):
            found.remarks += account.remarks_on(own)

    # --- tables ----------------------------------------------------------------------------------------------------

    async def _look_at_own_tables(self) -> None:
        if not self._may_read("its own tables"):
            return
        found, connection = self.inspection, self._connection
        try:
            found.flaws += await connection.ask(own_sql.ENGINES, not_crash_safe)
            found.layout = await connection.ask(own_sql.LAYOUT, layout_of)
            if found.layout >= own_sql.BODIES_LAYOUT:
                found.record = await connection.ask(own_sql.RECORD, record_of, RECORD_BOUND)
            elif found.layout >= own_sql.RING_LAYOUT:
                found.record = await connection.ask(own_sql.RING, earlier_record_of)
            if found.layout < own_sql.INNER_LAYOUT:
                found.marks = tuple(
                    await connection.ask(own_sql.marks_in(own_sql.MARKS_TABLE), marks_of, listing(MOST_MARKS))
                )
            else:
                await self._look_at_later_tables()
        except SequenceMissing:
            return  # they are made by the first server that comes

    async def _look_at_later_tables(self) -> None:
        """Those of version 3, each of which is looked at although another one cannot be."""
        found, connection = self.inspection, self._connection
        for table in own_sql.LATER_TABLES:
            code = await connection.attempt(f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608 - a constant
            if code:
                found.own_unread[table] = _UNREAD.get(code, f"cannot be read (error {code})")
        inner = own_sql.INNER_MARKS_TABLE not in found.own_unread
        marks = own_sql.ALL_MARKS if inner else own_sql.marks_in(own_sql.MARKS_TABLE)
        found.marks = tuple(await connection.ask(marks, marks_of, listing(MOST_MARKS)))
        if own_sql.KINDS_TABLE not in found.own_unread:
            found.definitions = await connection.ask(own_sql.KINDS, definitions_of, listing(MOST_TABLES))
        if own_sql.SERVERS_TABLE not in found.own_unread:
            found.servers = tuple(
                await connection.ask(own_sql.servers(SERVERS_SECONDS), servers_of, listing(MOST_SERVERS))
            )

    async def _look_at_tables(self) -> None:
        connection = self._connection
        names = sorted(await connection.ask(sequence_sql.NAMES, names_of, listing(MOST_TABLES)))
        for part in sliced(names, 50):
            keys = await connection.ask(sequence_sql.keys(part), _keys_of, listing(len(part) * MOST_KEYS))
            await connection.start(sequence_sql.tables(part), listing(len(part)))
            self.inspection.tables.update(connection.understand(partial(_all_inspected, keys=keys)))
        self.inspection.table_flaws, unknown = await triggers_of(connection, self.inspection.tables)
        if unknown is not None:
            self.inspection.not_looked_at.append(unknown)
        for name in self.inspection.tables:
            for privilege, statement in sequence_sql.may(name).items():
                await self._try(privilege, statement, name)

    async def read_positions(self) -> None:
        """See Inspector.read_positions."""
        found = self.inspection
        for name in found.tables if found.seen else ():
            if not self._may_read(name):
                continue
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    found.positions[name] = await self._position(name)
            except TimeoutError:
                self._connection.drop()
                found.unread[name] = "did not answer in time"
            except TicketDatabaseError as error:
                found.unread[name] = str(error)
            if not self._connection.usable:
                self._connection = MySQLConnection(self._url, found.increment, found.offset, self._url.ssl_context())
                try:
                    await self._connect()
                except TicketDatabaseError as error:
                    found.trouble, found.advice = str(error), _UNREACHABLE
                    return

    async def _position(self, name: str) -> Position:
        largest_first, counter_then = sequence_sql.position(name)
        largest = await self._connection.execute(largest_first)
        return await self._connection.ask(counter_then, lambda counter: position_of(largest, counter))

    async def close(self) -> None:
        """See Inspector.close."""
        if self._connection.usable:
            try:
                async with asyncio.timeout(1):
                    await self._connection.say_goodbye()
            except TimeoutError:
                self._connection.drop()


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


def _all_inspected(rows: Rows, keys: dict[str, list[Key]]) -> dict[str, InspectedTable]:
    found = (_inspected(row, keys.get(str(row[0]), [])) for row in rows)
    return {each.table.sequence: each for each in found if each is not None}


def _inspected(row: tuple[Any, ...], keys: list[Key]) -> InspectedTable | None:
    """An `InspectedTable` from a row of `sequence_sql.tables` and the table's keys."""
    table = table_of(row)
    if table is None:
        return None
    engine, name = str(row[1]), sequence_sql.quoted(table.sequence)
    return InspectedTable(
        table=table,
        column=str(row[4]),
        engine=engine,
        fix_engine=None if engine in CRASH_SAFE_ENGINES else f"ALTER TABLE {name} ENGINE=InnoDB",
        fix_keys=_fix_keys(name, keys),
        widen="" if table.width is Width.JAVASCRIPT else f"ALTER TABLE {name} MODIFY {_WIDEST}",
    )


def _fix_keys(name: str, keys: Iterable[Key]) -> str | None:
    """The statement that makes `stub` the primary key; None where it is."""
    changes = []
    id_has_key = False
    for index, unique, columns in keys:
        if index == "PRIMARY":
            if columns == ["stub"]:
                return None
            changes.append("DROP PRIMARY KEY")
        elif unique and columns == ["stub"]:
            changes.append(f"DROP KEY {sequence_sql.quoted(index)}")
        elif columns[0] == "id":
            id_has_key = True
    changes.append("ADD PRIMARY KEY (stub)")
    if not id_has_key:
        changes.append("ADD KEY id (id)")
    return f"ALTER TABLE {name} {', '.join(changes)}"
