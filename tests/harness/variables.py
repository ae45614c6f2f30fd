"""The worst of the variables that an operator can set for every session of a ticket database."""

import re
from pathlib import Path

from tests.harness.engine import Engine

PAGE = Path(__file__).parents[2] / "docs" / "databases" / "variables.md"

COMMON = {
    "autocommit": "0",
    "completion_type": "'CHAIN'",
    "sql_safe_updates": "1",
    "sql_select_limit": "3",
    "sql_mode": "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,NO_AUTO_VALUE_ON_ZERO,NO_UNSIGNED_SUBTRACTION'",
    "sql_big_selects": "0",
    "max_join_size": "1",
    "max_sort_length": "8",
    "group_concat_max_len": "4",
    "max_error_count": "0",
    "lock_wait_timeout": "86400",
    "innodb_lock_wait_timeout": "86400",
    "wait_timeout": "1",
    "time_zone": "'+13:00'",
    "unique_checks": "0",
    "foreign_key_checks": "0",
    "low_priority_updates": "1",
    "sql_auto_is_null": "1",
    "sql_quote_show_create": "0",
    "big_tables": "1",
    "sql_buffer_result": "1",
    "div_precision_increment": "0",
    "default_storage_engine": "MyISAM",
    "character_set_server": "utf16",
    "net_write_timeout": "1",
    "explicit_defaults_for_timestamp": "0",
    "innodb_strict_mode": "0",
}
MYSQL = {
    "transaction_isolation": "'SERIALIZABLE'",
    "max_execution_time": "1",
    "information_schema_stats_expiry": "86400",
    "sql_require_primary_key": "1",
    "sql_generate_invisible_primary_key": "1",
    "default_table_encryption": "0",
    "session_track_transaction_info": "'CHARACTERISTICS'",
    "session_track_state_change": "1",
    "session_track_gtids": "'ALL_GTIDS'",
}
MARIADB = {
    "tx_isolation": "'READ-UNCOMMITTED'",
    "max_statement_time": "0.001",
    "in_predicate_conversion_threshold": "2",
    "innodb_snapshot_isolation": "1",
    "sql_if_exists": "1",
    "session_track_transaction_info": "'CHARACTERISTICS'",
    "session_track_state_change": "1",
    "idle_transaction_timeout": "1",
    "idle_write_transaction_timeout": "1",
    "idle_readonly_transaction_timeout": "1",
    "innodb_force_primary_key": "1",
}


AS_EVER = (
    "SET SESSION completion_type = 0, sql_safe_updates = 0, sql_select_limit = 18446744073709551615, sql_mode = '', "
    "sql_big_selects = 1, max_sort_length = 1024, unique_checks = 1, foreign_key_checks = 1, wait_timeout = 28800 "
    "/*!50708 , max_execution_time = 0, information_schema_stats_expiry = 0 */ "
    "/*M!100101 , max_statement_time = 0, sql_if_exists = 0 */"
)
"""Sets a session right in which a test looks at such a database, or changes something there. With `sql_if_exists`,
MariaDB 10.11 takes no CREATE TABLE … LIKE."""


def worst(engine: Engine) -> dict[str, str]:
    """The worst values, in SQL, by the variables' names; for `TicketMySQL(variables=…)`."""
    return COMMON | (MARIADB if engine.is_mariadb else MYSQL)


def rows_of_page(heading: str = "") -> list[str]:
    """The names and patterns in the first columns of the page's tables, of those under this heading or of all."""
    text = PAGE.read_text(encoding="utf-8")
    part = text.partition(f"\n## {heading}")[2].partition("\n## ")[0] if heading else text
    cells: list[str] = re.findall(r"^\| (`[^|]*) \|", part, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
