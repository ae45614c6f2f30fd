"""What `ticketd doctor` finds in a PostgreSQL ticket database. To find it changes nothing there."""

# ruff: noqa: S608 - the statements are put together from constants alone

import time

from app.databases.examination import Examination, Severity
from app.databases.postgresql import sql
from app.databases.postgresql.driver import login
from app.databases.postgresql.session import PostgreSQLSession
from app.databases.postgresql.url import PostgreSQLAddress
from app.errors import DatabaseError

_TABLES = f"unnest(ARRAY['{sql.SEQUENCES}', '{sql.RING}', '{sql.NOTES}']) t"
ABOUT_SERVER = f"""WITH {sql.SERVER}
SELECT version, machine, now,
    array(SELECT relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace) AS tables
FROM server
"""
FINDINGS = f"""WITH {sql.SERVER}
SELECT 'wrong', 'settings', 'it is read-only: set default_transaction_read_only off for its user'
    WHERE current_setting('transaction_read_only') = 'on'
UNION ALL SELECT 'wrong', CASE WHEN words LIKE '%UNLOGGED%' THEN 'tables' ELSE 'settings' END, words FROM warned
UNION ALL SELECT 'note', 'settings', 'synchronous_commit is off for its user; ticket servers set it on'
    FROM pg_settings WHERE name = 'synchronous_commit' AND reset_val = 'off'
UNION ALL SELECT 'note', 'connection',
        CASE WHEN ssl THEN 'its certificate is not verified' ELSE 'it is not encrypted' END
        || ' (sslmode=' || $1 || '): set sslmode=verify-full and sslrootcert in its URL'
    FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND NOT (ssl AND $1 LIKE 'verify%')
UNION ALL SELECT 'note', 'replication', format('it has %s replicas, and synchronous_standby_names is empty: one that '
        'is promoted behind counts as a database that came back older, and skips ids', count(*))
    FROM pg_stat_replication WHERE current_setting('synchronous_standby_names') = '' HAVING count(*) > 0
UNION ALL SELECT 'wrong', 'tables', $$its user's search path has no schema: create one$$ WHERE current_schema() IS NULL
UNION ALL SELECT 'wrong', 'privileges',
        format($$its user may not make the tables %s: {sql.SET_UP}$$, string_agg(t, ', ' ORDER BY t COLLATE "C"))
    FROM {_TABLES} WHERE to_regclass(t) IS NULL AND NOT has_schema_privilege(current_schema(), 'CREATE')
    HAVING count(*) > 0
-- UPDATE of one column is enough, and DELETE is of whole tables.
UNION ALL SELECT 'wrong', 'privileges',
        format('its user lacks %1$s on %2$s: GRANT %1$s ON %2$s TO %3$I', p, t, current_user)
    FROM {_TABLES}, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p
    WHERE CASE p WHEN 'DELETE' THEN t = '{sql.NOTES}' AND NOT has_table_privilege(to_regclass(t), p)
        ELSE NOT has_any_column_privilege(to_regclass(t), p) END
UNION ALL SELECT 'wrong', '{sql.SEQUENCES}', 'it has the trigger or rule ' || n || ', which may change ids: drop it'
    FROM (SELECT tgname AS n FROM pg_trigger WHERE tgrelid = to_regclass('{sql.SEQUENCES}') AND NOT tgisinternal
        UNION ALL SELECT rulename FROM pg_rewrite WHERE ev_class = to_regclass('{sql.SEQUENCES}')) act
-- A transaction that has not written, and reads nothing at the moment, keeps no dead rows.
UNION ALL SELECT 'wrong', 'transactions',
        n || ' has been open for more than a minute, and each draw reads past the dead rows that it keeps: end it'
    FROM (SELECT format('the transaction of process %s (%s)', pid, usename) AS n, datname, xact_start AS began
        FROM pg_stat_activity WHERE backend_type = 'client backend' AND coalesce(backend_xid, backend_xmin) IS NOT NULL
        UNION ALL SELECT 'the prepared transaction ' || gid, database, prepared FROM pg_prepared_xacts) long
    WHERE datname = current_database() AND began < clock_timestamp() - interval '1 minute'
UNION ALL SELECT 'unknown', 'transactions',
        format('its user may not see the transactions of others: GRANT pg_read_all_stats TO %I', current_user)
    WHERE NOT pg_has_role('pg_read_all_stats', 'USAGE')
"""
"""Each row is a finding. $1: the sslmode."""


async def examine(address: PostgreSQLAddress, seconds: float) -> Examination:
    """Examine a database. Raises DatabaseFailed, DatabaseRefused where it cannot be logged in to, or not be used."""
    started = time.monotonic()
    session = PostgreSQLSession(await login(address, seconds), None)
    try:
        await session.ask(sql.BEGIN)
        elapsed, began = time.monotonic() - started, time.time()
        ((version, machine, now, tables),) = await session.ask(ABOUT_SERVER)
        found = Examination(version, machine, began, now, time.time(), elapsed)
        for severity, subject, text in await session.ask(FINDINGS, address.sslmode):
            found.add(Severity(severity), subject, text)
        found.add_old_tables(tables)
        try:
            if {sql.SEQUENCES, sql.RING, sql.NOTES} <= set(tables) and await session.ask(sql.READ_RING):
                await session.read_look()
                await found.read(session)
            if sql.SEQUENCES in tables:
                found.counters = await session.sequences(None)
        except DatabaseError as error:
            found.unread = str(error)
        return found
    finally:
        session.abort()
