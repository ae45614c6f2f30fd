"""Every SQL statement on a sequence's table in MySQL or MariaDB: made, drawn from, advanced, read.

Identifiers come from `app.common.sequences.validated` names, or from `names()` of the database filtered by the same
rule, or are `quoted`; all else is a number.
"""

import string
from collections.abc import Iterable, Sequence
from functools import lru_cache

from app.common.sequences import Width
from app.databases.mysql.line.session_sql import quoted, with_steps

STUBS = string.ascii_lowercase[:24]
"""The stubs that draws use, always in this order: two statements that name them in different orders deadlock. So many,
since a block between ids costs the database as much as that many rows (MySQL 9.7), however large it is; and all
different under any collation."""
JAVASCRIPT_COMMENT = "53 bits"
"""Of the id column of a sequence that ends where readers in JavaScript lose integers."""
RAISE_STUB = "!"
"""The stub that no draw uses, for moving a sequence up."""


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


def draw_after(table: str, wide: int, offset: int, *, least: int = 0) -> str:
    """Draws a block whose first id is the next of this offset in steps of `wide`, and the ordinary id above it, in one
    transaction.

    The first REPLACE moves the counter past the whole block, but puts only its first id on disk; the second puts the id
    above it there, and shows that the block ends where it should. Four results; the second and the third carry the ids.
    With a `least` the counter is advanced to that first (one more result, after that of BEGIN).
    """
    begin = f"BEGIN;{advance(table, least - 1)}" if least else "BEGIN"
    first = with_steps("REPLACE", f"INTO `{table}` (stub) VALUES {_values(1)}", wide, offset)
    return f"{begin};{first};{draw(table, 1)};COMMIT"


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

    Leaves a gap as large as the block: for `innodb_autoinc_lock_mode = 0`, under which `draw_block` deadlocks, and for
    MyISAM, whose counter knows of a block by its rows alone. Four
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


# --- which tables there are, and where they stand --------------------------------------------------------------------

NAMES = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_TYPE = 'BASE TABLE'"
"""Nothing else about them: MariaDB opens every table of the schema for that, 0.3 ms each."""


def _quoted(names: Iterable[str]) -> str:
    """A list for IN; every name is a validated one."""
    return ", ".join(f"'{name}'" for name in names)


def moments(names: Sequence[str]) -> str:
    """When each of these tables was made. From 1,000 names on, MariaDB looks at every table of the schema instead."""
    requested = _quoted(names)
    return (
        "SELECT TABLE_NAME, UNIX_TIMESTAMP(CREATE_TIME) FROM information_schema.TABLES "  # noqa: S608 - names
        f"WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ({requested})"
    )


def tables(names: Sequence[str]) -> str:
    """Everything that `Table` is made from, for these names.

    The columns are brought together before they are joined: MariaDB looks for the columns of a join in every table of
    the schema.
    """
    requested = _quoted(names)
    columns = (
        f"SELECT TABLE_NAME, {_of('id', 'DATA_TYPE')} AS data_type, {_of('id', 'COLUMN_TYPE')} AS column_type, "  # noqa: S608 - names
        f"{_of('stub', 'CHARACTER_MAXIMUM_LENGTH')} AS stub_length, {_of('stub', 'COLUMN_KEY')} AS stub_key, "
        f"{_of('id', 'COLUMN_COMMENT')} AS comment FROM information_schema.COLUMNS "
        f"WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ({requested}) "
        "AND (COLUMN_NAME = 'id' AND EXTRA LIKE '%auto_increment%' "
        "OR COLUMN_NAME = 'stub' AND COLUMN_KEY IN ('PRI', 'UNI')) GROUP BY TABLE_NAME HAVING COUNT(*) = 2"
    )
    return (
        "SELECT t.TABLE_NAME, t.ENGINE, UNIX_TIMESTAMP(t.CREATE_TIME), c.data_type, c.column_type, c.stub_length, "  # noqa: S608 - names
        f"c.stub_key, c.comment FROM information_schema.TABLES t JOIN ({columns}) c ON c.TABLE_NAME = t.TABLE_NAME "
        f"WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME IN ({requested})"
    )


def _of(column: str, fact: str) -> str:
    """The description of one column; each column has a row."""
    return f"MAX(CASE COLUMN_NAME WHEN '{column}' THEN {fact} END)"


def positions(tables: Sequence[str]) -> tuple[str, str]:
    """The largest id in a row of each of these tables; then the live counters and when the tables were made.

    In this order, and two statements: the other way round a draw in between looks like a counter that has gone back,
    and on MySQL the counter reads one too low until something has opened the table.
    """
    names = _quoted(tables)
    largest = (f"SELECT '{table}', COALESCE(MAX(id), 0) FROM `{table}`" for table in tables)  # noqa: S608 - names
    return (
        " UNION ALL ".join(largest),
        "SELECT TABLE_NAME, COALESCE(AUTO_INCREMENT, 1), UNIX_TIMESTAMP(CREATE_TIME) FROM information_schema.TABLES "  # noqa: S608
        f"WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ({names})",
    )


# --- looking without touching: what the doctor asks ------------------------------------------------------------------


def keys(names: Sequence[str]) -> str:
    """The keys of these tables, each with its columns in order."""
    requested = _quoted(names)
    return (
        "SELECT TABLE_NAME, INDEX_NAME, NON_UNIQUE, GROUP_CONCAT(COLUMN_NAME ORDER BY SEQ_IN_INDEX) "  # noqa: S608
        f"FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ({requested}) "
        "GROUP BY TABLE_NAME, INDEX_NAME, NON_UNIQUE"
    )


def may(table: str) -> dict[str, str]:
    """For each privilege that drawing from a sequence's table needs, a statement that needs it and changes nothing."""
    return {
        "SELECT": f"EXPLAIN SELECT id FROM `{table}`",  # noqa: S608 - a validated name
        "INSERT": f"EXPLAIN INSERT INTO `{table}` (id, stub) VALUES (0, '{RAISE_STUB}')",  # noqa: S608
        "DELETE": f"EXPLAIN DELETE FROM `{table}` WHERE FALSE",  # noqa: S608
    }


# --- an auto-increment table of somebody else's ----------------------------------------------------------------------


def largest(table: str, column: str) -> str:
    """The largest number in a column."""
    return f"SELECT MAX({quoted(column)}) FROM {quoted(table)}"  # noqa: S608 - quoted


def definition(table: str) -> str:
    """The table's definition, with its live AUTO_INCREMENT."""
    return f"SHOW CREATE TABLE {quoted(table)}"
