"""The statements that prepare a session, and those that make the own tables.

A word in them is a constant or went through `quoted` or `literal`; all else is a number.
"""

from app.databases.session import Residue
from app.errors import DatabaseFailed

LAYOUT = "layout 1"
"""The comment of both own tables."""
_LONGEST_IDLE = 31_536_000
_SETTINGS = (
    "autocommit = 1, completion_type = 'NO_CHAIN', time_zone = '+00:00', unique_checks = 1, foreign_key_checks = 1, "
    "sql_mode = 'NO_AUTO_VALUE_ON_ZERO,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', "
    "sql_safe_updates = 0, sql_big_selects = 1, sql_select_limit = 18446744073709551615, "
)
_MYSQL = "max_execution_time = 0, information_schema_stats_expiry = 0"
_MARIADB = "max_statement_time = 0"
PROBE = 60_013, 40_009
"""An increment and an offset that no session has."""
OWN_TABLES = (
    "SELECT TABLE_NAME, UNIX_TIMESTAMP(CREATE_TIME), ENGINE, TABLE_COMMENT FROM information_schema.TABLES "
    "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ('_ticket_notes', '_ticket_ring') ORDER BY TABLE_NAME"
)
OLD_KINDS = {
    "_definitions": "SELECT 1 FROM _definitions WHERE decided = 1 AND kind <> 'ticket' LIMIT 1",
    "_kinds": "SELECT 1 FROM _kinds LIMIT 1",
}
"""The tables in which releases before 1.0 kept the kinds of sequences, and what finds one."""
OLD_TABLES = (
    "SELECT TABLE_NAME FROM information_schema.TABLES "
    "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ('_definitions', '_kinds')"
)
RING = "SELECT body, ring_offset, stamp, text FROM _ticket_ring WHERE one = 1"
_ASCII = "CHARACTER SET ascii COLLATE ascii_bin"
_TEXT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_MAKE = (
    f"CREATE TABLE IF NOT EXISTS _ticket_ring (one TINYINT NOT NULL PRIMARY KEY, body VARCHAR(64) {_ASCII} NOT NULL, "
    f"ring_offset BIGINT UNSIGNED NOT NULL, stamp VARCHAR(200) {_ASCII} NOT NULL, text MEDIUMTEXT {_TEXT}) "
    f"ENGINE=InnoDB COMMENT='{LAYOUT}'",
    f"CREATE TABLE IF NOT EXISTS _ticket_notes (book VARCHAR(16) {_ASCII}, name VARCHAR(80) {_ASCII}, "
    "high BIGINT UNSIGNED NOT NULL DEFAULT 0, issued BIGINT UNSIGNED NOT NULL DEFAULT 0, "
    f"tenure VARCHAR(200) {_ASCII}, sure TINYINT NOT NULL DEFAULT 0, text VARCHAR(4000) {_TEXT} DEFAULT '', "
    f"PRIMARY KEY (book, name)) ENGINE=InnoDB COMMENT='{LAYOUT}'",
)


def make_own_tables(body: str) -> list[str]:
    """Return the statements that make what is missing of the own tables. body: the word of a new body."""
    row = f"INSERT IGNORE INTO _ticket_ring (one, body, ring_offset, stamp, text) VALUES (1, '{body}', 0, '', '')"  # noqa: S608
    return [*_MAKE, row]


def quoted(identifier: str) -> str:
    """Return an identifier in back-quotes."""
    return "`" + identifier.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return a text as a string literal; the session's sql_mode leaves the backslash its meaning."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0") + "'"


def checked(text: str, most: int, encoding: str = "ascii") -> str:
    """Return a text as a literal. Raises DatabaseFailed if it has more than `most` characters, or others."""
    try:
        text.encode(encoding)
    except UnicodeError:
        raise DatabaseFailed(f"cannot keep a text that is not {encoding}") from None
    if len(text) > most:
        raise DatabaseFailed(f"cannot keep a text of {len(text)} characters: {most} fit")
    return literal(text)


def same(column: str, text: str | None) -> str:
    """Return the condition that a column holds exactly this text.

    With nothing behind them, the collations pass over spaces at the end of either side.
    """
    return f"{column} IS NULL" if text is None else f"CONCAT({column}, '.') = {literal(text + '.')}"


def with_steps(verb: str, rest: str, increment: int, offset: int, *, mariadb: bool) -> str:
    """Return a statement for which alone the session draws in these steps."""
    steps = f"auto_increment_increment={increment}", f"auto_increment_offset={offset}"
    if mariadb:
        return f"SET STATEMENT {', '.join(steps)} FOR {verb} {rest}"
    return f"{verb} /*+ SET_VAR({steps[0]}) SET_VAR({steps[1]}) */ {rest}"


def clock(*, mariadb: bool) -> str:
    """Return a question for the clock, and for the second of the start: from one statement, so that it is exact."""
    return (
        "SELECT UNIX_TIMESTAMP(NOW(6)), CAST(UNIX_TIMESTAMP() AS SIGNED) - CAST(VARIABLE_VALUE AS SIGNED) FROM "  # noqa: S608
        f"{'information' if mariadb else 'performance'}_schema.global_status WHERE VARIABLE_NAME = 'UPTIME'"
    )


def steps_of(residue: Residue | None) -> tuple[int, int]:
    """Return the increment and the offset of a session."""
    return (1, 1) if residue is None else (residue.increment, residue.offset)


def prepare(residue: Residue | None, seconds: float, database: str, *, mariadb: bool) -> list[str]:
    """Return the statements that prepare a session.

    The names come first, because the server reads by them what follows. An `init_connect` may have begun a transaction,
    or have led to another database. Only under REPEATABLE READ may the binary log have any format.

    A statement is committed when it is answered, a number that does not fit is an error, an explicit 0 is no request
    for an id, and a lock is waited for about as long as the caller waits; the servers count whole seconds.
    """
    increment, offset = steps_of(residue)
    wait = max(1, round(seconds))
    return [
        "SET NAMES utf8mb4 COLLATE utf8mb4_general_ci",
        f"SET SESSION auto_increment_increment = {increment}, auto_increment_offset = {offset}, "
        f"lock_wait_timeout = {wait}, innodb_lock_wait_timeout = {wait}, wait_timeout = {_LONGEST_IDLE}, "
        f"{_SETTINGS}{_MARIADB if mariadb else _MYSQL}",
        "ROLLBACK",
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        f"USE {quoted(database)}",
    ]


def read_back(*, mariadb: bool) -> list[str]:
    """Return a question for the session's increment and offset, and one that has the steps `PROBE` for itself alone.

    The answers show that the session keeps its steps, and that a statement can have others.
    """
    steps = "@@SESSION.auto_increment_increment, @@SESSION.auto_increment_offset"
    return [f"SELECT {steps}", with_steps("SELECT", steps, *PROBE, mariadb=mariadb)]
