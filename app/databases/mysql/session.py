"""The session of MySQL and MariaDB, see `app.databases.session`."""

from collections.abc import Mapping, Sequence

from app.databases.address import Address
from app.databases.examination import OLD_KINDS
from app.databases.mysql.counters import BITS_53, read_counters, standings_of
from app.databases.mysql.draws import Draw, raising
from app.databases.mysql.errors import StatementFailed
from app.databases.mysql.facts import read_facts
from app.databases.mysql.login import Line, literal, quoted
from app.databases.mysql.notebook import COLUMNS, MAKE_OWN_TABLES, RING, Notebook, note_of, of_beat, ring_of
from app.databases.mysql.url import MySQLAddress
from app.databases.record import new_word
from app.databases.session import Book, Counter, Drawn, Facts, Look, Note, Residue, Want
from app.errors import DatabaseError, DatabaseRefused, SequenceError

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
_OLD_KINDS = (
    ["SELECT 1 FROM _definitions WHERE decided = 1 AND kind <> 'ticket' LIMIT 1"],
    ["SELECT 1 FROM _kinds LIMIT 1"],
)
"""Statements that find kinds of sequences in the tables of releases before 1.0."""
_COLUMNS = {32: "INT UNSIGNED", 53: f"BIGINT UNSIGNED COMMENT '{BITS_53}'", 64: "BIGINT UNSIGNED"}


async def connect(address: Address, residue: Residue | None, seconds: float) -> "MySQLSession":
    """See `app.databases.session.Connect`. It has no deadline: the caller cancels it."""
    assert isinstance(address, MySQLAddress)
    line = Line(address)
    try:
        await line.open(seconds)
        facts = await prepare(line, address.database, residue, seconds)
        ring = (await line.step(RING)).rows if " " in facts.births else ()  # where there are two own tables
        if not ring:
            await line.run([each.format(word=new_word()) for each in MAKE_OWN_TABLES])
            facts, ring = await read_facts(line, residue), (await line.step(RING)).rows
        if not ring_of(ring).stamp:
            old = await line.run_each(_OLD_KINDS)
            if any(isinstance(each, list) and each[0].rows for each in old):
                raise DatabaseRefused(OLD_KINDS)
    except BaseException:
        line.close()
        raise
    return MySQLSession(line, residue, facts)


async def prepare(line: Line, database: str, residue: Residue | None, seconds: float) -> Facts:
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
        f"USE {quoted(database)}",
        # The session has to keep its steps, and a statement has to have others.
        f"SELECT {read}",
        line.with_settings("SELECT", read, **_PROBE),
    ]
    found = [row for result in (await line.run(statements))[-2:] for row in result.rows]
    clustered = ", ".join(f"({literal(name, value)})" for name, value in _IN_CLUSTERS)
    for each in (await line.step(f"SHOW VARIABLES WHERE (Variable_name, Value) IN ({clustered})")).rows:
        await line.step(f"SET SESSION {_IN_CLUSTERS[each]}")
    facts = await read_facts(line, residue)  # it raises first where a cluster sets the steps of each session
    if found != [(increment, offset), tuple(_PROBE.values())]:
        raise DatabaseRefused(
            f"has the increments and offsets {found} in a session that has others: something between the ticket server "
            "and it shares sessions, resets them, or removes hints from statements"
        )
    return facts


class MySQLSession(Notebook):
    """Implements `app.databases.session.Session`, where its methods are described."""

    def __init__(self, line: Line, residue: Residue | None, facts: Facts) -> None:
        super().__init__(line)
        self.residue = residue
        self.facts = facts
        self.life = ""

    def abort(self) -> None:
        self._line.close()

    async def look(self, server: str, beat: Note) -> Look:
        books = literal(Book.HEARTBEATS, Book.LIVES, Book.COUNTS)
        notes = f"SELECT book, {COLUMNS} FROM _ticket_notes WHERE book IN ({books})"  # noqa: S608
        _, ring, found = await self._line.run([of_beat(server, beat), RING, notes])
        rows = {(book, name): note_of(rest) for book, name, *rest in found.rows}
        return Look(
            await read_facts(self._line, self.residue),
            ring_of(ring.rows),
            rows.get((Book.LIVES, self.facts.machine)),
            {name: note for (book, name), note in rows.items() if book == Book.HEARTBEATS},
            rows.get((Book.COUNTS, "floors"), Note()).high,
        )

    # --- counters ----------------------------------------------------------------------------------------------------

    async def draw(self, wanted: Sequence[Want]) -> list[Drawn | DatabaseError]:
        assert self.residue is not None, "this session draws nothing"
        draws = [Draw(self._line, want, self.residue) for want in wanted]
        looking = [draw for draw in draws if draw.has_to_look]
        standings = await standings_of(self._line, [draw.want.sequence for draw in looking]) if looking else {}
        for draw in looking:
            standing = standings.get(draw.want.sequence)
            if isinstance(standing, tuple):  # else the draw itself says what is wrong
                draw.known = max(standing[0], draw.want.above)
        outcomes = await self._line.run_each([draw.statements() for draw in draws])
        results: list[Drawn | DatabaseError] = []
        for draw, outcome in zip(draws, outcomes, strict=True):
            results.append(outcome if isinstance(outcome, SequenceError) else draw.result(outcome))
            if draw.instead is not None:
                results[-1:] = await self.draw([draw.instead])
        return results

    async def sequences(self, names: Sequence[str] | None) -> dict[str, Counter | DatabaseError]:
        return await read_counters(self._line, names)

    async def make(self, name: str, bits: int, above: int) -> None:
        named = f"TABLE_SCHEMA = DATABASE() AND LOWER(TABLE_NAME) = {literal(name.lower())}"
        if (await self._line.step(f"SELECT 1 FROM information_schema.TABLES WHERE {named}")).rows:  # noqa: S608
            return
        statement = (
            f"CREATE TABLE IF NOT EXISTS {quoted(name)} (id {_COLUMNS[bits]} NOT NULL AUTO_INCREMENT, "
            "stub CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '', PRIMARY KEY (stub), KEY id (id)) "
            f"ENGINE=InnoDB AUTO_INCREMENT={above + 1}"
        )
        try:
            await self._line.step(statement)
        except StatementFailed as error:
            raise error.wrong or error from error

    async def raise_above(self, floors: Mapping[str, int]) -> dict[str, DatabaseError | None]:
        raised = {name: floor for name, floor in floors.items() if floor > 0}
        statements = [[raising(self._line, name, floor)] for name, floor in raised.items()]
        outcomes = zip(raised, await self._line.run_each(statements), strict=True)
        failed = {name: outcome for name, outcome in outcomes if isinstance(outcome, SequenceError)}
        return {name: failed.get(name) for name in floors}
