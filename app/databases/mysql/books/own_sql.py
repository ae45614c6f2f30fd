"""Every SQL statement on the ticket server's own tables in MySQL or MariaDB: marks, ring record, kinds, servers.

A word in them is a constant, or it has been checked (`app.common.sequences`, `rows`, `ServerEntry`): it holds nothing
that ends a literal. All else is a number. All of it stands in one file: one reading shows what the server writes.
"""

from collections.abc import Sequence

from app.databases.protocol import OLDER, OLDER_SECONDS, USE_INTERVALS

LAYOUT_VERSION = 4
RING_LAYOUT, INNER_LAYOUT, BODIES_LAYOUT = 2, 3, 4
"""Version of the server's own tables; a database that says a higher one was prepared by a newer server. From version 2
on they include the ring record, from version 3 on what is kept of inner sequences, and the servers, and from version 4
on the bodies of data. `docs/databases/tables.md` describes every table."""

MARKS_TABLE, INNER_MARKS_TABLE = "_high_water", "_inner_high_water"
KINDS_TABLE, SERVERS_TABLE = "_kinds", "_servers"
DEFINITIONS_TABLE = "_definitions"
"""Of every name that a server was asked to make. `_kinds` has what is decided of other kinds than `ticket`: servers of
release 0.2.0 look there, and refuse a sequence of plain tickets that they find there."""
LATER_TABLES = KINDS_TABLE, SERVERS_TABLE, INNER_MARKS_TABLE
"""The tables of version 3."""

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
    "CREATE TABLE IF NOT EXISTS _bodies (offset_of INT NOT NULL PRIMARY KEY, number BIGINT NOT NULL, "
    "word VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "place VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "life VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE IF NOT EXISTS _ring_more (id INT NOT NULL PRIMARY KEY, number BIGINT NOT NULL, "
    "increments VARCHAR(8000) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "alive DATETIME(6) NULL, alive_by VARCHAR(300) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '') "
    "ENGINE=InnoDB",
    "CREATE TABLE IF NOT EXISTS _in_use ("
    "instance VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, offset_of INT NOT NULL, "
    "word VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "place VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "server VARCHAR(300) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "probe_interval DOUBLE NOT NULL, at DATETIME(6) NOT NULL, "
    "PRIMARY KEY (instance, offset_of), KEY at (at)) ENGINE=InnoDB",
    "CREATE TABLE IF NOT EXISTS _definitions ("
    "folded VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, "
    "sequence VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "parameters VARCHAR(2000) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "decided TINYINT NOT NULL, "
    "claimed_by VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL) ENGINE=InnoDB",
)
COMPLETE_KINDS = (
    "INSERT IGNORE INTO _kinds (sequence, kind, parameters) "
    "SELECT sequence, kind, parameters FROM _definitions WHERE decided = 1 AND kind <> 'ticket'"
)
"""Writes what servers of release 0.2.0 read, where somebody has dropped the table."""
OWN_TABLES_ARE_THERE = (
    "SELECT 1 FROM _high_water, _probe, _ring, _inner_high_water, _servers, _kinds, _bodies, _ring_more, _in_use, "
    "_definitions WHERE FALSE"
)
RECORD_LAYOUT = (
    f"INSERT INTO _layout (id, version) VALUES (1, {LAYOUT_VERSION}) "  # noqa: S608 - a constant
    "ON DUPLICATE KEY UPDATE version = GREATEST(version, VALUES(version))"
)
LAYOUT = "SELECT version FROM _layout WHERE id = 1"
NAMES = (
    *("_probe", "_layout", MARKS_TABLE, INNER_MARKS_TABLE, "_ring", "_ring_more", "_bodies", "_in_use"),
    *(SERVERS_TABLE, KINDS_TABLE, DEFINITIONS_TABLE),
)
ENGINES = (
    "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() "  # noqa: S608
    f"AND TABLE_TYPE = 'BASE TABLE' AND TABLE_NAME IN ({', '.join(map(repr, NAMES))})"
)
"""The storage engine of each of these tables."""


# --- marks -----------------------------------------------------------------------------------------------------------


def marks_table_of(sequence: str) -> str:
    """The table that marks of this name lie in."""
    return INNER_MARKS_TABLE if sequence.startswith("_") else MARKS_TABLE


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


def keep(table: str, marks: list[tuple[str, int, int, int, int, str]], ring: int) -> str:
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


def read_back(table: str, keys: Sequence[tuple[str, int, int]]) -> str:
    """The rows of these sequences, offsets and increments."""
    requested = ", ".join(f"('{sequence}', {offset}, {increment})" for sequence, offset, increment in keys)
    return f"{marks_in(table)} WHERE (sequence, offset_of, increment_of) IN ({requested})"


def supersede(key: tuple[str, int, int], old: tuple[str, int], new: tuple[str, int], issued: int, ring: int) -> str:
    """Replaces token and mark, unless another server has superseded the row, set a higher mark or changed the ring
    meanwhile."""
    sequence, offset, increment = key
    return (
        f"UPDATE {marks_table_of(sequence)} "  # noqa: S608
        f"SET token = '{new[0]}', issued = GREATEST(issued, {issued}), mark = {new[1]} "
        f"WHERE sequence = '{sequence}' AND offset_of = {offset} AND increment_of = {increment} "
        f"AND token = '{old[0]}' AND mark <= {old[1]} AND (SELECT number FROM _ring WHERE id = 1) = {ring}"
    )


# --- the ring record -------------------------------------------------------------------------------------------------

RING = "SELECT number, increment_of, since, offsets, own_offset, state FROM _ring WHERE id = 1"
"""All that a database of a layout before version 4 records."""
RING_NUMBER = "SELECT number FROM _ring WHERE id = 1"
OWN_BODY = 0
"""The `offset_of` of the row that says which body the database itself holds."""
RECORD = (
    "SELECT 'ring', number, increment_of, since, own_offset, offsets, state, '' FROM _ring WHERE id = 1 "
    "UNION ALL SELECT 'more', number, 0, 0, 0, increments, '', '' FROM _ring_more WHERE id = 1 "
    "UNION ALL SELECT 'body', number, offset_of, 0, 0, word, place, life FROM _bodies"
)
"""The whole record. One statement, so that no other server's change shows in one part and not in another."""

RingRow = tuple[int, int, int, str, int, str]
BodyRow = tuple[int, int, str, str, str]
UseRow = tuple[int, str, str, str]
"""Offset, word, place, server."""
Announcements = tuple[str, Sequence[UseRow], float] | None
"""The arguments of `use`; None if the program is no ticket server."""


def first_ring(new: RingRow, increments: str, bodies: list[BodyRow], announcements: Announcements) -> list[str]:
    """Records the ring where none is recorded, in one transaction with what the server announces."""
    return _in_one_transaction(
        "NOT EXISTS (SELECT 1 FROM _ring WHERE id = 1)",
        new,
        increments,
        bodies,
        announcements,
        before=["DELETE FROM _bodies WHERE offset_of >= 0 AND NOT EXISTS (SELECT 1 FROM _ring WHERE id = 1)"],
        write="INSERT IGNORE INTO _ring (id, number, increment_of, since, offsets, own_offset, state) "  # noqa: S608
        f"VALUES (1, {new[0]}, {new[1]}, {new[2]}, '{new[3]}', {new[4]}, '{new[5]}')",
    )


def next_ring(
    old: RingRow, new: RingRow, increments: str, bodies: list[BodyRow], announcements: Announcements
) -> list[str]:
    """Records the ring in one transaction with what the server announces, unless another server has recorded another
    one than `old` meanwhile."""
    is_old = " AND ".join(_ring_columns(old))
    return _in_one_transaction(
        f"EXISTS (SELECT 1 FROM _ring WHERE id = 1 AND {is_old})",  # noqa: S608
        new,
        increments,
        bodies,
        announcements,
        write=f"UPDATE _ring SET {', '.join(_ring_columns(new))} WHERE id = 1 AND {is_old}",  # noqa: S608
    )


def _in_one_transaction(
    condition: str,
    new: RingRow,
    increments: str,
    bodies: list[BodyRow],
    announcements: Announcements,
    *,
    before: Sequence[str] = (),
    write: str,
) -> list[str]:
    """All statements go out in one packet: a server that stands still between two packets would keep the row of the
    ring record locked, and with it every write of a mark.

    The row is locked first, so that the condition is the same in all of them. What has been heard of the body at an
    offset only grows.
    """
    later = "(VALUES(number), VALUES(word)) > (number, word)"
    heard = " UNION ALL ".join(
        f"SELECT {offset} AS o, {number} AS n, '{word}' AS w, '{place}' AS p, '{life}' AS l"
        for offset, number, word, place, life in bodies
    )
    own = f"offset_of = {OWN_BODY}"
    return [
        "BEGIN",
        "SELECT number FROM _ring WHERE id = 1 FOR UPDATE",
        *before,
        "INSERT INTO _bodies (offset_of, number, word, place, life) "  # noqa: S608
        f"SELECT v.o, v.n, v.w, v.p, v.l FROM ({heard}) AS v WHERE {condition} "
        # assignments see those before them, so `word` and `number`, which the others depend on, come last
        f"ON DUPLICATE KEY UPDATE place = IF({own} OR {later}, VALUES(place), place), "
        f"life = IF({own}, VALUES(life), life), "
        f"word = IF({own} OR {later}, VALUES(word), word), "
        f"number = IF({own} OR VALUES(number) > number, VALUES(number), number)",
        "INSERT INTO _ring_more (id, number, increments) "  # noqa: S608
        f"SELECT v.i, v.n, v.s FROM (SELECT 1 AS i, {new[0]} AS n, '{increments}' AS s) AS v WHERE {condition} "
        "ON DUPLICATE KEY UPDATE number = VALUES(number), increments = VALUES(increments)",
        *([use(*announcements, condition)] if announcements is not None else []),
        write,
        "COMMIT",
    ]


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


# --- kinds -----------------------------------------------------------------------------------------------------------

KINDS = "SELECT sequence, kind, parameters, 1, '' FROM _kinds"
_DEFINITIONS = "SELECT sequence, kind, parameters, decided, claimed_by FROM _definitions"
DEFINITIONS = (
    f"{_DEFINITIONS} UNION ALL {KINDS} "  # noqa: S608 - constants
    "WHERE LOWER(sequence) NOT IN (SELECT folded FROM _definitions WHERE decided = 1)"
)
"""Every definition; then what servers of release 0.2.0 have decided beside it, which replaces a claim of that name."""

DefinitionRow = tuple[str, str, str, str, int, str]
"""The name in lower case, the sequence, its kind, its parameters, whether it is decided, who claimed it."""


def define(new: DefinitionRow, old: DefinitionRow | None) -> list[str]:
    """Takes over what a server of release 0.2.0 has decided for the name; writes `new` in the place of `old` alone
    (None: of nothing); tells servers of release 0.2.0 what is decided; then reads what is kept."""
    folded, values = new[0], ", ".join(map(repr, new))
    if old is None:
        write = f"INSERT INTO _definitions VALUES ({values}) ON DUPLICATE KEY UPDATE folded = folded"  # noqa: S608
    else:
        written = ", ".join(_definition_columns(new))
        write = f"UPDATE _definitions SET {written} WHERE {' AND '.join(_definition_columns(old))} AND decided = 0"  # noqa: S608
    return [
        "INSERT INTO _definitions SELECT LOWER(k.sequence), k.sequence, k.kind, k.parameters, 1, '' "  # noqa: S608
        f"FROM _kinds AS k WHERE LOWER(k.sequence) = '{folded}' ORDER BY k.sequence LIMIT 1 "
        "ON DUPLICATE KEY UPDATE "
        + ", ".join(
            f"{column} = IF(_definitions.decided, _definitions.{column}, VALUES({column}))"
            for column in ("sequence", "kind", "parameters", "claimed_by", "decided")
        ),
        write,
        "INSERT IGNORE INTO _kinds (sequence, kind, parameters) "  # noqa: S608
        f"SELECT sequence, kind, parameters FROM _definitions WHERE folded = '{folded}' AND decided = 1 "
        "AND kind <> 'ticket'",
        f"{_DEFINITIONS} WHERE folded = '{folded}'",
    ]


def forget_definition(row: DefinitionRow) -> str:
    """Takes away a definition that is kept as it is here."""
    return f"DELETE FROM _definitions WHERE {' AND '.join(_definition_columns(row))}"  # noqa: S608


def _definition_columns(row: DefinitionRow) -> list[str]:
    names = "folded", "sequence", "kind", "parameters", "decided", "claimed_by"
    return [f"{name} = {value!r}" for name, value in zip(names, row, strict=True)]


# --- the servers, and their probes -----------------------------------------------------------------------------------

PROBE = "REPLACE INTO _probe (id, at) VALUES (2, UTC_TIMESTAMP(6))"
"""The probe of a program that is no ticket server. The row 1 is written by servers that do not announce themselves: of
releases before version 3 of the tables."""
FORGET_STALE = tuple(
    f"DELETE FROM {table} WHERE at < UTC_TIMESTAMP(6) - INTERVAL 1 DAY"  # noqa: S608
    for table in ("_servers", "_in_use")
)
"""Remove the rows of servers that ended without removing them."""


def announce(instance: str, release: str, kinds: str, probe_interval: float, reserve_window: float) -> str:
    """The probe of a ticket server."""
    return (
        "REPLACE INTO _servers (instance, of_release, kinds, probe_interval, reserve_window, at) "  # noqa: S608
        f"VALUES ('{instance}', '{release}', '{kinds}', {probe_interval!r}, {reserve_window!r}, UTC_TIMESTAMP(6))"
    )


NO_OFFSET = 0
"""In the row with which a server says that it announces what it uses, whether it uses anything or not."""


def use(instance: str, uses: Sequence[UseRow], probe_interval: float, condition: str = "TRUE") -> str:
    """Says which body a ticket server uses at each offset, where the condition holds. An empty word: none any more.

    Rows are updated and not deleted, since a deletion locks the gap in which another server's first row may belong.
    """
    rows = " UNION ALL ".join(
        f"SELECT {offset} AS o, '{word}' AS w, '{place}' AS p, '{server}' AS s" for offset, word, place, server in uses
    )
    return (
        "INSERT INTO _in_use (instance, offset_of, word, place, server, probe_interval, at) "  # noqa: S608
        f"SELECT '{instance}', v.o, v.w, v.p, v.s, {probe_interval!r}, UTC_TIMESTAMP(6) FROM ({rows}) AS v "
        f"WHERE {condition} "
        "ON DUPLICATE KEY UPDATE word = VALUES(word), place = VALUES(place), server = VALUES(server), "
        "probe_interval = VALUES(probe_interval), at = VALUES(at)"
    )


def standing_uses(but: str) -> str:
    """The announcements of all ticket servers but this instance that stand, by the database's own clock; then, as rows
    of NO_OFFSET, the releases of the servers that announce nothing."""
    said = "SELECT 1 FROM _in_use AS said WHERE said.instance = _servers.instance"
    lately = f"at >= UTC_TIMESTAMP(6) - INTERVAL {int(OLDER_SECONDS)} SECOND"
    span = f"INTERVAL CAST(probe_interval * {USE_INTERVALS} * 1000000 AS SIGNED) MICROSECOND"
    return (
        f"SELECT offset_of, word, place, server FROM _in_use WHERE instance <> '{but}' AND word <> '' "  # noqa: S608
        f"AND at >= UTC_TIMESTAMP(6) - {span} AND at <= UTC_TIMESTAMP(6) + {span} "
        f"UNION ALL SELECT {NO_OFFSET}, '', '', of_release FROM _servers WHERE {lately} AND NOT EXISTS ({said}) "
        f"UNION ALL SELECT {NO_OFFSET}, '', '', '{OLDER}' FROM _probe WHERE id = 1 AND {lately}"
    )


def forget_server(instance: str) -> list[str]:
    """Takes away what a ticket server has announced."""
    return [f"DELETE FROM {table} WHERE instance = '{instance}'" for table in ("_in_use", "_servers")]  # noqa: S608 - see ServerEntry


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


# --- looking without touching: what the doctor asks ------------------------------------------------------------------

MAY_CREATE = "CREATE TABLE _doctor (id INT, id INT)"
"""Fails always: with 1060 (two columns of one name) where the user may create tables, before that where not."""

MAY_KEEP_OWN_TABLES = {
    "SELECT": "EXPLAIN SELECT mark FROM _high_water",
    "INSERT": "EXPLAIN INSERT INTO _high_water (mark) VALUES (0)",
    "UPDATE": "EXPLAIN UPDATE _high_water SET mark = 0 WHERE FALSE",
    "DELETE": "EXPLAIN DELETE FROM _probe WHERE FALSE",
}
"""For each privilege that these tables need, a statement that needs it and changes nothing, whether they are there
already or not."""
