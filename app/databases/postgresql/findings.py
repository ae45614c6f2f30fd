"""What `ticketd doctor` finds in a PostgreSQL ticket database. To find it changes nothing there."""

import time
from typing import Any

from app.databases.address import Address
from app.databases.examination import Examination, Severity
from app.databases.postgresql import rows, sql
from app.databases.postgresql.errors import SET_UP
from app.databases.postgresql.login import login
from app.databases.postgresql.session import PostgreSQLSession
from app.databases.postgresql.url import PostgreSQLAddress
from app.errors import DatabaseError

_NEEDED = {
    sql.SEQUENCES: ("SELECT", "INSERT", "UPDATE"),
    sql.RING: ("SELECT", "INSERT", "UPDATE"),
    sql.NOTES: ("SELECT", "INSERT", "UPDATE", "DELETE"),
}
_PAIRS = ", ".join(f"('{table}', '{each}')" for table, needed in _NEEDED.items() for each in needed)
# UPDATE of one column is enough, and DELETE is of whole tables.
EXAMINE = f"""
SELECT current_setting('server_version') AS version, pg_is_in_recovery() AS standby, current_user AS account,
    current_setting('transaction_read_only') AS read_only, extract(epoch FROM clock_timestamp())::float AS now,
    concat_ws('-', (SELECT system_identifier FROM pg_control_system()), current_setting('port')) AS machine,
    current_schema() AS schema, coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS may_create,
    (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()) AS tls,
    {", ".join(f"current_setting('{setting}') AS {setting}" for setting in rows.SETTINGS)},
    (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit') AS usual_commit,
    (SELECT count(*) FROM pg_stat_replication) AS replicas,
    current_setting('synchronous_standby_names') AS synchronous,
    array(SELECT t || ' ' || p FROM (VALUES {_PAIRS}) needed(t, p) WHERE NOT CASE p WHEN 'DELETE'
        THEN has_table_privilege(to_regclass(t), p) ELSE has_any_column_privilege(to_regclass(t), p) END) AS lacking,
    array(SELECT relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace) AS tables,
    array(SELECT tgname::text FROM pg_trigger WHERE tgrelid = to_regclass('{sql.SEQUENCES}') AND NOT tgisinternal
        UNION ALL SELECT rulename FROM pg_rewrite WHERE ev_class = to_regclass('{sql.SEQUENCES}')) AS triggers
"""  # noqa: S608


async def examine(address: Address, seconds: float) -> Examination:
    """Examine a database. Raises DatabaseFailed, DatabaseRefused where it cannot be logged in to, or not be used."""
    assert isinstance(address, PostgreSQLAddress)
    started = time.monotonic()
    reader = _Reader(await login(address, sql.settings(seconds), seconds), None)
    try:
        return await reader.examine(address, started)
    finally:
        reader.abort()


class _Reader(PostgreSQLSession):
    """A session that only reads, and makes no table."""

    async def examine(self, address: PostgreSQLAddress, started: float) -> Examination:
        """Examine the database. started: when the login began, by the monotonic clock."""
        await self.begin()
        elapsed, began = time.monotonic() - started, time.time()
        (row,) = await self._ask(list, EXAMINE)
        version = f"PostgreSQL {row['version']}"
        found = Examination(version, row["machine"], began, row["now"], time.time(), elapsed)
        _judge_server(row, address, found)
        _judge_tables(row, found)
        if row["standby"]:
            found.unread = "is a standby, which takes no writes: name the primary in TICKETS_DATABASES"
        else:
            await self._read(set(row["tables"]), found)
        return found

    async def _read(self, tables: set[str], found: Examination) -> None:
        try:
            if tables >= _NEEDED.keys() and await self._send(self._driver.fetch, sql.READ_RING):
                for warning in set((await self._look(heartbeats=False)).facts.warnings) - {*rows.SETTINGS.values()}:
                    found.add(Severity.WRONG, "tables", warning)
                await found.read(self)
            if sql.SEQUENCES in tables:
                found.counters = await self.sequences(None)
        except DatabaseError as error:
            found.unread = str(error)


def _judge_server(row: Any, address: PostgreSQLAddress, found: Examination) -> None:
    if row["read_only"] == "on" and not row["standby"]:
        found.add(Severity.WRONG, "settings", "it is read-only: set default_transaction_read_only off for its user")
    for setting, words in rows.SETTINGS.items():
        if row[setting] == "off":
            found.add(Severity.WRONG, "settings", words)
    if row["usual_commit"] == "off":
        found.add(Severity.NOTE, "settings", "synchronous_commit is off for its user; ticket servers set it on")
    if not (row["tls"] and address.verifies):
        fault = "its certificate is not verified" if row["tls"] else "it is not encrypted"
        advice = "set sslmode=verify-full and sslrootcert in its URL"
        found.add(Severity.NOTE, "connection", f"{fault} (sslmode={address.sslmode}): {advice}")
    if row["replicas"] and not row["synchronous"]:
        harm = "one that is promoted behind counts as a database that came back older, and skips ids"
        text = f"it has {row['replicas']} replicas, and synchronous_standby_names is empty: {harm}"
        found.add(Severity.NOTE, "replication", text)


def _judge_tables(row: Any, found: Examination) -> None:
    missing = sorted(_NEEDED.keys() - set(row["tables"]))
    if row["schema"] is None:
        found.add(Severity.WRONG, "tables", "the search path of its user has no schema: create one")
    elif missing and not row["may_create"]:
        found.add(Severity.WRONG, "privileges", f"its user may not make the tables {', '.join(missing)}: {SET_UP}")
    for table, _, privilege in (each.partition(" ") for each in row["lacking"]):
        grant = f"GRANT {privilege} ON {table} TO {row['account']}"
        found.add(Severity.WRONG, "privileges", f"its user lacks {privilege} on {table}: {grant}")
    for name in row["triggers"]:
        found.add(Severity.WRONG, sql.SEQUENCES, f"it has the trigger or rule {name}, which may change ids: drop it")
    found.add_old_tables(row["tables"])
