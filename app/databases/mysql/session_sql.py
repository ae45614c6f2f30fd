"""Every SQL statement to a MySQL or MariaDB server that is about no table: its session, its settings, who is connected
to it, whom it replicates from."""

VARIABLES = (
    "auto_increment_increment",
    "auto_increment_offset",
    "datadir",
    "hostname",
    "innodb_autoinc_lock_mode",
    "innodb_doublewrite",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "log_bin",
    "max_allowed_packet",
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
