"""Every SQL statement that goes to MySQL or MariaDB, by name.

Identifiers come from `app.common.sequences.validated` names, or from `names()` of the database filtered by the same
rule; all else is a number or passes through the driver's escaping.
"""

import string
from collections.abc import Sequence
from functools import lru_cache

from app.common.sequences import Width
from app.databases.protocol import OLDER

STUBS = string.ascii_lowercase[:24]
"""The stubs that draws use, always in this order: two statements that name them in different orders deadlock. So many,
since a block costs the database as much as that many rows (MySQL 9.7), however large it is; and all different under any
collation."""
JAVASCRIPT_COMMENT = "53 bits"
"""Of the id column of a sequence that ends where readers in JavaScript lose integers."""
RAISE_STUB = "!"
"""The stub that no draw uses, for moving a sequence up."""

LAYOUT_VERSION = 3
RING_LAYOUT, INNER_LAYOUT = 2, 3
"""Version of the server's own tables; a database that says a higher one was prepared by a newer server. From version 2
on they include the ring record, and from version 3 on what is kept of inner sequences, and the servers."""

MARKS_TABLE, INNER_MARKS_TABLE = "_high_water", "_inner_high_water"
KINDS_TABLE, SERVERS_TABLE = "_kinds", "_servers"
LATER_TABLES = KINDS_TABLE, SERVERS_TABLE, INNER_MARKS_TABLE
"""Those of version 3."""


def marks_table_of(sequence: str) -> str:
    """The table that marks of this name lie in."""
    return INNER_MARKS_TABLE if sequence.startswith("_") else MARKS_TABLE


OWN_TABLES = (
    "CREATE TABLE IF NOT EXISTS _probe (id INT NOT NULL PRIMARY KEY, at DATETIME(6) NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE IF NOT EXISTS _layout (id INT NOT NULL PRIMARY KEY, version INT NOT NULL) ENGINE=InnoDB",
    *(
        f"CREATE TABLE IF NOT EXISTS {marks} ("
        "sequence VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
        "offset_of INT NOT NULL, increment_of INT NOT NULL, "
        "mark BIGINT NOT NULL, issued BIGINT NOT NULL, "
        "token VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
        "changed TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6), "
        "PRIMARY KEY (sequence, offset_of, increment_of), KEY changed (changed)) ENGINE=InnoDB"
        for marks in (MARKS_TABLE, INNER_MARKS_TABLE)
    ),
    "CREATE TABLE IF NOT EXISTS _ring (id INT NOT NULL PRIMARY KEY, number BIGINT NOT NULL, increment_of INT NOT NULL, "
    "since BIGINT NOT NULL, offsets VARCHAR(8000) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "own_offset INT NOT NULL, state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE IF NOT EXISTS _servers ("
    "instance VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, "
    "of_release VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "kinds VARCHAR(2000) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "probe_interval DOUBLE NOT NULL, reserve_window DOUBLE NOT NULL DEFAULT 0, at DATETIME(6) NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE IF NOT EXISTS _kinds ("
    "sequence VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, "
    "kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "parameters VARCHAR(2000) CHARACTER SET ascii COLLATE ascii_bin NOT NULL) ENGINE=InnoDB",
)
OWN_TABLES_ARE_THERE = "SELECT 1 FROM _high_water, _probe, _ring, _inner_high_water, _servers, _kinds WHERE FALSE"
RECORD_LAYOUT = (
    f"INSERT INTO _layout (id, version) VALUES (1, {LAYOUT_VERSION}) "  # noqa: S608 - a constant
    "ON DUPLICATE KEY UPDATE version = GREATEST(version, VALUES(version))"
)
LAYOUT = "SELECT version FROM _layout WHERE id = 1"
PROBE = "REPLACE INTO _probe (id, at) VALUES (2, UTC_TIMESTAMP(6))"
"""The probe of a program that is no ticket server. The row 1 is written by servers that do not announce themselves: of
releases before version 3 of the tables."""
FORGET_STALE_SERVERS = "DELETE FROM _servers WHERE at < UTC_TIMESTAMP(6) - INTERVAL 1 DAY"

VARIABLES = (
    "auto_increment_increment",
    "auto_increment_offset",
    "datadir",
    "hostname",
    "innodb_autoinc_lock_mode",
    "innodb_flush_log_at_trx_commit",
    "log_bin",
    "port",
    "server_id",
    "server_uuid",
    "sync_binlog",
    "version",
)
_NAMES = ", ".join(f"'{name}'" for name in VARIABLES)
SHOW_VARIABLES = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({_NAMES})"
SHOW_CIPHER = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"


def clock(*, mariadb: bool) -> str:
    """The server's clock, and the second it started in: both from one statement, so that the difference is exact.

    Signed before the subtraction: a clock set back beyond the server's start makes the uptime 2**64 less than nothing.
    """
    schema = "information_schema" if mariadb else "performance_schema"
    return (
        "SELECT UNIX_TIMESTAMP(NOW(6)), CAST(UNIX_TIMESTAMP() AS SIGNED) - CAST(VARIABLE_VALUE AS SIGNED) "  # noqa: S608 - a constant
        f"FROM {schema}.global_status WHERE VARIABLE_NAME = 'UPTIME'"
    )


CLOCK = "SELECT UNIX_TIMESTAMP(UTC_TIMESTAMP(6))"
"""The server's clock alone, in a session whose time zone is UTC (see `prepare`)."""

ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
"""Whatever the server's default: under READ COMMITTED a reservation would not lock the ring record it depends on."""


def prepare(increment: int, offset: int, *, mariadb: bool) -> str:
    """The session: its own increment and offset whatever the server's are, errors instead of clipping, and no lock
    waited for longer than a second (the servers' defaults are a day and a year)."""
    statement = (
        f"SET SESSION auto_increment_increment = {increment}, auto_increment_offset = {offset}, "
        "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', lock_wait_timeout = 1, innodb_lock_wait_timeout = 1, "
        "time_zone = '+00:00'"
    )
    return statement if mariadb else statement + ", information_schema_stats_expiry = 0"


@lru_cache(maxsize=128)
def _values(rows: int) -> str:
    return ",".join(f"('{stub}')" for stub in STUBS[:rows])


def draw(table: str, rows: int) -> str:
    """Draws `rows` consecutive ids; the OK packet carries the first."""
    return f"REPLACE INTO `{table}` (stub) VALUES {_values(rows)}"  # noqa: S608 - a validated name


def _widen(wide: int, within: tuple[int, int], increment: int, offset: int) -> str:
    """The session draws in steps of `wide` from now on, beginning right after the id it has just drawn.

    That id is the table's own counter at work. A block whose place was chosen from memory could not show that the table
    has gone back; and where the id is not `within` the first, exclusively, of these numbers (the largest one known) and
    the second, nothing is widened. So the counter is not moved in among ids that others have issued, and not near the
    end of its column, where it would stay for good, and all that was left be used up.
    """
    risen = f"LAST_INSERT_ID() BETWEEN {within[0] + 1} AND {within[1]}"
    return (
        f"SET SESSION auto_increment_increment = IF({risen}, {wide}, {increment}), "
        # the cast: MySQL takes no decimal, which is what an unsigned and a signed number make together
        f"auto_increment_offset = CAST(IF({risen}, (LAST_INSERT_ID() + {increment - 1}) MOD {wide} + 1, {offset}) "
        "AS UNSIGNED)"
    )


def _narrow(increment: int, offset: int) -> str:
    return f"SET SESSION auto_increment_increment = {increment}, auto_increment_offset = {offset}"


def draw_block(
    table: str, size: int, within: tuple[int, int], increment: int, offset: int, *, below: int = 1, least: int = 0
) -> str:
    """Draws one ordinary id, a block of `size` ids right after it, and one ordinary id above that, in one transaction.

    Under an increment of `size * increment` one REPLACE moves the counter past the whole block, but puts only its
    first id on disk; the last REPLACE puts an id above the block there. They follow one another without a gap where
    nobody else drew in between. Seven results; the second, the fourth and the sixth carry the ids.

    Several servers' first ids are drawn before any of them has the row's lock, and so say nothing of each other's
    blocks. With two ids `below` the block (one more result) the second is drawn under the lock: no other block lies
    between it and this one, and it is certain where the counter stands.

    With a `least` the counter is advanced to that first (one more result, after that of BEGIN).
    """
    one = draw(table, 1)
    widen, narrow = _widen(size * increment, within, increment, offset), _narrow(increment, offset)
    begin = f"BEGIN;{advance(table, least - 1)}" if least else "BEGIN"
    return f"{begin};{';'.join([one] * below)};{widen};{one};{narrow};{one};COMMIT"


def draw_ends(table: str, size: int, within: tuple[int, int], increment: int, offset: int, *, least: int = 0) -> str:
    """Draws one ordinary id, and then the first and the last id of a block of `size` in one statement, which puts both
    on disk.

    Leaves a gap as large as the block: for `innodb_autoinc_lock_mode = 0`, under which `draw_block` deadlocks. Four
    results; the first and the third carry the ordinary id and the block's first. With a `least` the counter is advanced
    to that first (one more result, the first): committed by itself, since a transaction is what deadlocks.
    """
    wide = (size - 1) * increment
    widen, narrow = _widen(wide, within, increment, offset), _narrow(increment, offset)
    first = f"{advance(table, least - 1)};" if least else ""
    return f"{first}{draw(table, 1)};{widen};{draw(table, 2)};{narrow}"


def make(table: str, width: Width, start: int) -> str:
    """A new sequence's table. `stub` is the primary key, so that REPLACE updates the row in place: on Flickr's keys it
    deletes and inserts under gap locks and deadlocks at any concurrency."""
    column = "INT" if width is Width.INT else "BIGINT"
    comment = f" COMMENT '{JAVASCRIPT_COMMENT}'" if width is Width.JAVASCRIPT else ""
    return (
        f"CREATE TABLE IF NOT EXISTS `{table}` (id {column} UNSIGNED NOT NULL AUTO_INCREMENT{comment}, "
        "stub CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '', PRIMARY KEY (stub), KEY id (id)) "
        f"ENGINE=InnoDB AUTO_INCREMENT={start}"
    )


def advance(table: str, above: int) -> str:
    """Moves the counter above `above`; a lower number is harmless."""
    return f"REPLACE INTO `{table}` (id, stub) VALUES ({above}, '{RAISE_STUB}')"  # noqa: S608 - a validated name


DEFINITIONS = "SELECT sequence, kind, parameters FROM _kinds"


def define(sequence: str, kind: str, parameters: str) -> tuple[str, str]:
    """Keeps what a sequence was made as, unless it is there; then reads what is kept."""
    return (
        f"INSERT INTO _kinds (sequence, kind, parameters) VALUES ('{sequence}', '{kind}', '{parameters}') "  # noqa: S608
        "ON DUPLICATE KEY UPDATE kind = kind",
        f"{DEFINITIONS} WHERE sequence = '{sequence}'",
    )


NAMES = (
    "SELECT TABLE_NAME, UNIX_TIMESTAMP(CREATE_TIME) FROM information_schema.TABLES "
    "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_TYPE = 'BASE TABLE'"
)


def counters(names: Sequence[str]) -> str:
    """The live counters of these tables; half a millisecond each on MySQL, which opens every one."""
    requested = ", ".join(f"'{name}'" for name in names)
    return (
        "SELECT TABLE_NAME, AUTO_INCREMENT, UNIX_TIMESTAMP(CREATE_TIME) FROM information_schema.TABLES "  # noqa: S608
        f"WHERE TABLE_SCHEMA = DATABASE() AND AUTO_INCREMENT IS NOT NULL AND TABLE_NAME IN ({requested})"
    )


def tables(names: Sequence[str]) -> str:
    """Everything that `Table` is made from, for these names."""
    requested = ", ".join(f"'{name}'" for name in names)
    return (
        "SELECT t.TABLE_NAME, t.ENGINE, UNIX_TIMESTAMP(t.CREATE_TIME), i.DATA_TYPE, i.COLUMN_TYPE, "  # noqa: S608 - names
        "s.CHARACTER_MAXIMUM_LENGTH, s.COLUMN_KEY, i.COLUMN_COMMENT "
        "FROM information_schema.TABLES t "
        "JOIN information_schema.COLUMNS i ON i.TABLE_SCHEMA = t.TABLE_SCHEMA AND i.TABLE_NAME = t.TABLE_NAME "
        "AND i.COLUMN_NAME = 'id' AND i.EXTRA LIKE '%auto_increment%' "
        "JOIN information_schema.COLUMNS s ON s.TABLE_SCHEMA = t.TABLE_SCHEMA AND s.TABLE_NAME = t.TABLE_NAME "
        "AND s.COLUMN_NAME = 'stub' AND s.COLUMN_KEY IN ('PRI', 'UNI') "
        f"WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME IN ({requested})"
    )


def position(table: str) -> tuple[str, str]:
    """The largest id in a row; then the live counter and when the table was made.

    In this order, and two statements: the other way round a draw in between looks like a counter that has gone back,
    and on MySQL the counter reads one too low until something has opened the table.
    """
    return (
        f"SELECT COALESCE(MAX(id), 0) FROM `{table}`",  # noqa: S608 - a validated name
        "SELECT COALESCE(AUTO_INCREMENT, 1), UNIX_TIMESTAMP(CREATE_TIME) FROM information_schema.TABLES "  # noqa: S608
        f"WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{table}'",
    )


def positions(tables: Sequence[str]) -> tuple[str, str]:
    """The same for many tables, with each one's name."""
    names = ", ".join(f"'{table}'" for table in tables)
    largest = (f"SELECT '{table}', COALESCE(MAX(id), 0) FROM `{table}`" for table in tables)  # noqa: S608 - names
    return (
        " UNION ALL ".join(largest),
        "SELECT TABLE_NAME, COALESCE(AUTO_INCREMENT, 1), UNIX_TIMESTAMP(CREATE_TIME) FROM information_schema.TABLES "  # noqa: S608
        f"WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ({names})",
    )


def marks_in(table: str) -> str:
    """All marks in one of the two tables."""
    return f"SELECT sequence, offset_of, increment_of, mark, issued, token FROM {table}"  # noqa: S608 - a constant


ALL_MARKS = f"{marks_in(MARKS_TABLE)} UNION ALL {marks_in(INNER_MARKS_TABLE)}"
MARKS_PER_PAGE = 1_000


def marks_page(table: str, increment: int, after: tuple[str, int]) -> str:
    """The next marks of this increment in a table after a sequence and offset, in that order."""
    sequence, offset = after
    return (
        f"{marks_in(table)} WHERE increment_of = {increment} "
        f"AND (sequence > '{sequence}' OR (sequence = '{sequence}' AND offset_of > {offset})) "
        f"ORDER BY sequence, offset_of LIMIT {MARKS_PER_PAGE}"
    )


def marks_changed(increment: int, seconds: float) -> str:
    """The marks of this increment that changed in the last so many seconds, by the database's own clock."""
    lately = (
        f" WHERE increment_of = {increment} AND changed >= NOW(6) - INTERVAL {int(seconds * 1_000_000)} MICROSECOND"
    )
    return " UNION ALL ".join(marks_in(table) + lately for table in (MARKS_TABLE, INNER_MARKS_TABLE))


def _row(mark: tuple[str, int, int, int, int, str]) -> str:
    sequence, offset, increment, high, issued, token = mark
    return f"SELECT '{sequence}' AS s, {offset} AS o, {increment} AS i, {high} AS h, {issued} AS d, '{token}' AS t"


def reserve(table: str, marks: list[tuple[str, int, int, int, int, str]], ring: int) -> str:
    """Takes the larger mark where the token is the same or there is no row yet, while the ring has this number.

    One statement, and it locks the row of the ring record that it depends on: no change of the ring is committed
    between the look at the number and the commit. `mark` and `issued` are assigned before anything they depend on
    changes; `token` is never assigned.
    """
    rows = " UNION ALL ".join(_row(mark) for mark in marks)
    return (
        f"INSERT INTO {table} (sequence, offset_of, increment_of, mark, issued, token) "  # noqa: S608
        f"SELECT v.s, v.o, v.i, v.h, v.d, v.t FROM _ring, ({rows}) AS v WHERE _ring.id = 1 AND _ring.number = {ring} "
        "ON DUPLICATE KEY UPDATE "
        "mark = IF(token = VALUES(token), GREATEST(mark, VALUES(mark)), mark), "
        "issued = IF(token = VALUES(token), GREATEST(issued, VALUES(issued)), issued)"
    )


def read_back(table: str, keys: list[tuple[str, int, int]]) -> str:
    """The rows of these sequences, offsets and increments."""
    requested = ", ".join(f"('{sequence}', {offset}, {increment})" for sequence, offset, increment in keys)
    return f"{marks_in(table)} WHERE (sequence, offset_of, increment_of) IN ({requested})"


def supersede(key: tuple[str, int, int], old: tuple[str, int], new: tuple[str, int], issued: int, ring: int) -> str:
    """Replaces token and mark, unless somebody has superseded the row, reserved above the old mark or changed the ring
    meanwhile."""
    sequence, offset, increment = key
    return (
        f"UPDATE {marks_table_of(sequence)} "  # noqa: S608
        f"SET token = '{new[0]}', issued = GREATEST(issued, {issued}), mark = {new[1]} "
        f"WHERE sequence = '{sequence}' AND offset_of = {offset} AND increment_of = {increment} "
        f"AND token = '{old[0]}' AND mark <= {old[1]} AND (SELECT number FROM _ring WHERE id = 1) = {ring}"
    )


# --- the ring record -----------------------------------------------------------------------------------------------


RING = "SELECT number, increment_of, since, offsets, own_offset, state FROM _ring WHERE id = 1"
RING_NUMBER = "SELECT number FROM _ring WHERE id = 1"
CONNECTED = "SHOW PROCESSLIST"
"""The connections of the same account; all connections, where the account has the privilege PROCESS."""


def announce(instance: str, release: str, kinds: str, probe_interval: float, reserve_window: float) -> str:
    """The probe of a ticket server."""
    return (
        "REPLACE INTO _servers (instance, of_release, kinds, probe_interval, reserve_window, at) "  # noqa: S608
        f"VALUES ('{instance}', '{release}', '{kinds}', {probe_interval!r}, {reserve_window!r}, UTC_TIMESTAMP(6))"
    )


def forget_server(instance: str) -> str:
    """Takes away what a ticket server has announced."""
    return f"DELETE FROM _servers WHERE instance = '{instance}'"  # noqa: S608 - see ServerEntry


def servers(seconds: float) -> str:
    """The ticket servers of the last so many seconds, those that do not announce themselves as one."""
    lately = f"at >= UTC_TIMESTAMP(6) - INTERVAL {int(seconds * 1_000_000)} MICROSECOND"
    return (
        "SELECT instance, of_release, kinds, probe_interval, reserve_window, UNIX_TIMESTAMP(at) "  # noqa: S608
        f"FROM _servers WHERE {lately} "
        f"UNION ALL SELECT '', '{OLDER}', '', 0, 0, UNIX_TIMESTAMP(at) FROM _probe WHERE id = 1 AND {lately}"
    )


def probed(instance: str) -> str:
    """When each ticket server but this one has probed."""
    return (
        f"SELECT instance, at FROM _servers WHERE instance <> '{instance}' "  # noqa: S608 - see ServerEntry
        "UNION ALL SELECT '', at FROM _probe WHERE id = 1"
    )


RingRow = tuple[int, int, int, str, int, str]


def first_ring(new: RingRow) -> str:
    """Records the ring where none is recorded."""
    number, increment, since, offsets, own, state = new
    return (
        "INSERT IGNORE INTO _ring (id, number, increment_of, since, offsets, own_offset, state) "  # noqa: S608
        f"VALUES (1, {number}, {increment}, {since}, '{offsets}', {own}, '{state}')"
    )


def next_ring(old: RingRow, new: RingRow) -> str:
    """Records the ring, unless somebody has recorded another one than `old` meanwhile."""
    return f"UPDATE _ring SET {', '.join(_ring_columns(new))} WHERE id = 1 AND {' AND '.join(_ring_columns(old))}"  # noqa: S608


def _ring_columns(row: RingRow) -> list[str]:
    number, increment, since, offsets, own, state = row
    return [
        f"number = {number}",
        f"increment_of = {increment}",
        f"since = {since}",
        f"offsets = '{offsets}'",
        f"own_offset = {own}",
        f"state = '{state}'",
    ]


# --- looking without touching: what the doctor asks ----------------------------------------------------------------


def keys(names: Sequence[str]) -> str:
    """The keys of these tables, each with its columns in order."""
    requested = ", ".join(f"'{name}'" for name in names)
    return (
        "SELECT TABLE_NAME, INDEX_NAME, NON_UNIQUE, GROUP_CONCAT(COLUMN_NAME ORDER BY SEQ_IN_INDEX) "  # noqa: S608
        f"FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ({requested}) "
        "GROUP BY TABLE_NAME, INDEX_NAME, NON_UNIQUE"
    )


MAY_CREATE = "CREATE TABLE _doctor (id INT, id INT)"
"""Fails always: with 1060 (two columns of one name) where the user may create tables, before that where not."""


def may(table: str) -> dict[str, str]:
    """For each privilege that drawing from a sequence's table needs, a statement that needs it and changes nothing."""
    return {
        "SELECT": f"EXPLAIN SELECT id FROM `{table}`",  # noqa: S608 - a validated name
        "INSERT": f"EXPLAIN INSERT INTO `{table}` (id, stub) VALUES (0, '{RAISE_STUB}')",  # noqa: S608
        "DELETE": f"EXPLAIN DELETE FROM `{table}` WHERE FALSE",  # noqa: S608
    }


MAY_KEEP_OWN_TABLES = {
    "SELECT": "EXPLAIN SELECT mark FROM _high_water",
    "INSERT": "EXPLAIN INSERT INTO _high_water (mark) VALUES (0)",
    "UPDATE": "EXPLAIN UPDATE _high_water SET mark = 0 WHERE FALSE",
    "DELETE": "EXPLAIN DELETE FROM _probe WHERE FALSE",
}
"""The same for the server's own tables, whether they are there already or not."""


def sources(*, mariadb: bool) -> tuple[str, ...]:
    """Which servers this one replicates from, a row each: the first of these that the server understands.

    MySQL lists all channels, and has had the newer word since 8.0.22. MariaDB without ALL shows the one without a name
    alone.
    """
    return ("SHOW ALL SLAVES STATUS",) if mariadb else ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS")


def no_longer_from(connection: str, word: str) -> str:
    """Ends replication: all of MySQL's, or MariaDB's of this name. `word`: the server's for a replica."""
    name = f" '{connection}'" if connection else ""
    return f"STOP {word}{name}; RESET {word}{name} ALL"


# --- an auto-increment table of somebody else's --------------------------------------------------------------------


def quoted(identifier: str) -> str:
    """An identifier of somebody else's, whatever it holds."""
    return "`" + identifier.replace("`", "``") + "`"


def largest(table: str, column: str) -> str:
    """The largest number in a column."""
    return f"SELECT MAX({quoted(column)}) FROM {quoted(table)}"  # noqa: S608 - quoted


def definition(table: str) -> str:
    """The table's definition, with its live AUTO_INCREMENT."""
    return f"SHOW CREATE TABLE {quoted(table)}"
