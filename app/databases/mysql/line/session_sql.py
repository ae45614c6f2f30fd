"""Every SQL statement to a MySQL or MariaDB server that is about no table: its session, its settings, who is connected
to it, whom it replicates from."""

from functools import lru_cache

VARIABLES = (
    "auto_increment_increment",
    "auto_increment_offset",
    "datadir",
    "group_replication_auto_increment_increment",
    "group_replication_group_name",
    "hostname",
    "innodb_autoinc_lock_mode",
    "innodb_doublewrite",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "log_bin",
    "lower_case_table_names",
    "max_allowed_packet",
    "port",
    "server_id",
    "server_uuid",
    "sync_binlog",
    "version",
    "wsrep_auto_increment_control",
    "wsrep_on",
)
_SHOWN = ", ".join(f"'{name}'" for name in VARIABLES)
SHOW_VARIABLES = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({_SHOWN})"
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

LARGEST = 18_446_744_073_709_551_615
"""No limit, for `sql_select_limit`."""
SHORTEST_WAIT_TIMEOUT = 60
"""Seconds for which the server keeps an idle connection at the least. The pool closes its own earlier, but for one."""


def settings(increment: int, offset: int, *, mariadb: bool) -> dict[str, str]:
    """Every variable that a session sets, with its value in SQL. docs/databases/variables.md has the reason for each.

    Whatever the server's defaults or its `init_connect` say: increment and offset are the session's own, a statement is
    committed when it is answered, values that do not fit are errors, no lock is waited for longer than a second (the
    servers' defaults are a day and a year), and no answer is cut short.
    """
    common = {
        "autocommit": "1",
        "completion_type": "'NO_CHAIN'",
        "auto_increment_increment": str(increment),
        "auto_increment_offset": str(offset),
        "sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
        "lock_wait_timeout": "1",
        "innodb_lock_wait_timeout": "1",
        "time_zone": "'+00:00'",
        "sql_safe_updates": "0",
        "sql_select_limit": str(LARGEST),
        "sql_big_selects": "1",
        "max_sort_length": "1024",
        "group_concat_max_len": "1048576",
        "unique_checks": "1",
        "foreign_key_checks": "1",
    }
    own = (
        {
            "max_statement_time": "0",
            "max_session_mem_used": "9223372036854775807",
            "in_predicate_conversion_threshold": "1000",
        }
        if mariadb
        else {"max_execution_time": "0", "information_schema_stats_expiry": "0"}
    )
    return common | own


FOREIGN = (
    f"SET SESSION sql_mode = '', sql_quote_show_create = 1, sql_select_limit = {LARGEST}, sql_big_selects = 1 "
    "/*!50708 , max_execution_time = 0 */ /*M!100101 , max_statement_time = 0 */"
)
"""Prepares a session on a server of any version and of somebody else's, for reading a table's definition."""
NAMES = "SET NAMES utf8mb4 COLLATE utf8mb4_general_ci"
ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
"""Set whatever the server's default is: under READ COMMITTED a write of a mark would not lock the ring record that it
depends on."""
CONNECTION_ID = "SELECT CONNECTION_ID()"
"""The server's number for the session. A proxy's greeting has a number of its own."""


def quoted(identifier: str) -> str:
    """An identifier of somebody else's, whatever it holds."""
    return "`" + identifier.replace("`", "``") + "`"


def prepare(increment: int, offset: int, database: str, *, mariadb: bool) -> tuple[str, ...]:
    """The statements that prepare a session for this database of its server; the last one is `CONNECTION_ID`."""
    assignments = [f"{name} = {value}" for name, value in settings(increment, offset, mariadb=mariadb).items()]
    # the cast: MySQL takes no decimal here
    assignments.append(f"wait_timeout = CAST(GREATEST(@@SESSION.wait_timeout, {SHORTEST_WAIT_TIMEOUT}) AS UNSIGNED)")
    # first of all NAMES: what comes after it is read by it; an `init_connect` may have begun a transaction, or have led
    # to another database, where the same tables hold other tickets
    use = f"USE {quoted(database)}"
    return NAMES, f"SET SESSION {', '.join(assignments)}", "ROLLBACK", ISOLATION, use, CONNECTION_ID


def _conditions(increment: int, offset: int, *, mariadb: bool) -> dict[str, str]:
    """The value of each variable in a prepared session, in SQL, by the variable's name."""
    expected = settings(increment, offset, mariadb=mariadb) | {
        "tx_isolation" if mariadb else "transaction_isolation": "'REPEATABLE-READ'",
        "character_set_client": "'utf8mb4'",
        "character_set_results": "'utf8mb4'",
        "collation_connection": "'utf8mb4_general_ci'",
        # the id that the next draw would get, whatever the counter says: nothing but a draw takes it away
        "insert_id": "0",
    }
    if mariadb:
        expected["system_versioning_asof"] = "'DEFAULT'"
    conditions = {name: f"@@SESSION.{name} = {value}" for name, value in expected.items()}
    return conditions | {"wait_timeout": f"@@SESSION.wait_timeout >= {SHORTEST_WAIT_TIMEOUT}"}


@lru_cache(maxsize=16)
def read_back(increment: int, offset: int, *, mariadb: bool) -> str:
    """The session's number, and those of its variables that are not as they were set, in words; none: empty."""
    differing = [
        f"IF({condition}, NULL, CONCAT('{name}=', COALESCE(@@SESSION.{name}, 'NULL')))"
        for name, condition in _conditions(increment, offset, mariadb=mariadb).items()
    ]
    return f"{CONNECTION_ID}, CONCAT_WS(', ', {', '.join(differing)})"


def guard(session: int, increment: int, offset: int, *, mariadb: bool) -> str:
    """Fails with `WRONG_VALUE` unless this is the session of that number, and prepared as ever; else it changes
    nothing. So what follows in the same packet is not executed in any other session."""
    conditions = " AND ".join(_conditions(increment, offset, mariadb=mariadb).values())
    return (
        f"SET SESSION completion_type = IF(CONNECTION_ID() = {session} AND {conditions}, 'NO_CHAIN', 'another session')"
    )


WRONG_VALUE = 1231


def with_steps(verb: str, rest: str, increment: int, offset: int) -> str:
    """A statement for which the session draws in these steps, and in its own again afterwards.

    MySQL takes them from the hint and MariaDB from the comment that it alone executes. Where somebody in between leaves
    out comments, the statement is an ordinary one: `STEPS` shows whether they arrive.
    """
    steps = f"auto_increment_increment = {increment}", f"auto_increment_offset = {offset}"
    hints = " ".join([f"SET_VAR({step})" for step in steps])
    return f"/*M! SET STATEMENT {', '.join(steps)} FOR */ {verb} /*+ {hints} */ {rest}"


SOME_STEPS = 60_013, 40_009
"""An increment and an offset that no session has."""
STEPS = with_steps("SELECT", "@@auto_increment_increment, @@auto_increment_offset", *SOME_STEPS)
"""The session's steps, as they are in a statement that has `SOME_STEPS`."""
CONNECTED = "SHOW PROCESSLIST"
"""The connections of the same account; all connections, where the account has the privilege PROCESS."""


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
