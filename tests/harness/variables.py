"""The worst of the variables that an operator can set for every session of a ticket database."""

from tests.harness.mysqld import TicketMySQL

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


def set_worst(database: TicketMySQL) -> None:
    """Set them for every session that begins from now on, until the next start."""
    for name, value in (COMMON | (MARIADB if database.engine.is_mariadb else MYSQL)).items():
        database.execute(f"SET GLOBAL {name} = {value}", database=None)
