"""Every statement that the ticket server sends to PostgreSQL while it serves, and the tables that it makes.

Each draw and each write of marks takes two locks: `GATE`, an advisory lock in shared mode, and the one row of `_ring`
in shared mode. A change of the ring record takes the gate alone. PostgreSQL queues for an advisory lock in order, so a
change does not starve behind a stream of draws. The lock on the row makes the statement read the newest ring number,
even where it has waited.
"""

# ruff: noqa: S608 - it is put together from constants of this file alone

import json
from typing import Any

GATE = "1953067883, 1"
"""`tick` in ASCII, and which lock of the ticket server's it is: ring changes alone, everything else side by side."""
KINDS_GATE = "1953067883, 2"
"""One server at a time changes how sequences were made, or makes the tables."""

SEQUENCES = "ticket_sequences"
COLUMNS = {
    SEQUENCES: {"sequence": "text", "id": "bigint", "bits": "smallint", "born": "uuid"},
    "_ring": {"one": "smallint", "number": "bigint", "record": "text"},
    "_high_water": {
        "sequence": "text",
        "offset_of": "integer",
        "increment_of": "integer",
        "mark": "bigint",
        "issued": "bigint",
        "token": "text",
        "changed": "bigint",
    },
    "_kinds": {
        "folded": "text",
        "sequence": "text",
        "kind": "text",
        "parameters": "text",
        "decided": "boolean",
        "claimed_by": "text",
    },
    "_servers": {"instance": "text", "entry": "text", "seen": "double precision"},
    "_probe": {"one": "smallint", "seen": "double precision"},
}
"""The columns that the server needs of each table, and their types. There may be others."""

TABLES = f"""
CREATE TABLE IF NOT EXISTS {SEQUENCES} (sequence text PRIMARY KEY, id bigint NOT NULL DEFAULT 0,
    bits smallint NOT NULL DEFAULT 64, born uuid NOT NULL DEFAULT gen_random_uuid()) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS _ring (one smallint PRIMARY KEY CHECK (one = 1), number bigint, record text);
CREATE TABLE IF NOT EXISTS _high_water (sequence text NOT NULL, offset_of integer NOT NULL,
    increment_of integer NOT NULL, mark bigint NOT NULL, issued bigint NOT NULL, token text NOT NULL,
    changed bigint NOT NULL, PRIMARY KEY (sequence, offset_of, increment_of)) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS _kinds (folded text PRIMARY KEY, sequence text NOT NULL, kind text NOT NULL,
    parameters text NOT NULL, decided boolean NOT NULL, claimed_by text NOT NULL);
CREATE TABLE IF NOT EXISTS _servers (instance text PRIMARY KEY, entry text NOT NULL,
    seen double precision NOT NULL) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS _probe (one smallint PRIMARY KEY CHECK (one = 1), seen double precision NOT NULL);
"""
"""deploy/postgresql/01-tickets.sql has the same for an account that may not create tables."""
MAKE_FENCE = "INSERT INTO _ring (one) VALUES (1) ON CONFLICT DO NOTHING"
"""There is always a row that a draw can lock, whether a ring is recorded or not."""

# --- a new connection ------------------------------------------------------------------------------------------------


def prepare(milliseconds: int) -> str:
    """The settings of a new session. `milliseconds`: the longest that one of its statements may take.

    The planner has to use indexes: without statistics of a table it may read the whole table. With these settings it
    overrates the cost of a statement that has no index to use, and would spend longer on compiling it than on running
    it; hence `jit = off`.
    """
    return f"""
SET default_transaction_isolation = 'read committed';
SET client_min_messages = error;
SET statement_timeout = {milliseconds};
SET idle_in_transaction_session_timeout = {10 * milliseconds};
SET lock_timeout = {max(1, milliseconds // 3)};
SET jit = off;
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
SELECT set_config('search_path', quote_ident(current_schema()), false) WHERE current_schema() IS NOT NULL;
"""


FACTS = """
SELECT (SELECT system_identifier FROM pg_control_system()) AS system,
    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint AS started,
    CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS timeline,
    pg_is_in_recovery() AS standby,
    (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) AS database,
    current_schema()::text AS schema,
    pg_backend_pid() AS process,
    current_setting('server_version_num')::integer AS version,
    current_setting('synchronous_commit') AS synchronous
"""

FOUND_TABLES = """
SELECT c.relname::text AS name, c.relkind::text AS kind, c.relpersistence::text AS persistence,
    array(SELECT a.attname || ' ' || format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns
FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = ANY($1::text[])
"""

# --- a probe ---------------------------------------------------------------------------------------------------------

SETTINGS = """
SELECT current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous, pg_is_in_recovery() AS standby,
    (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit') AS default_synchronous,
    pg_has_role('pg_read_all_stats', 'USAGE') AS sees_others,
    (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = to_regclass('ticket_sequences')) AS dead,
    (SELECT extract(epoch FROM max(clock_timestamp() - xact_start))::double precision FROM pg_stat_activity
        WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
        AND xact_start < clock_timestamp() - make_interval(secs => $1)) AS long
"""
MAY_CREATE = "SELECT has_schema_privilege(current_schema(), 'CREATE')"

NOW = "extract(epoch FROM clock_timestamp())::double precision"
_LOOK = f"""
SELECT {NOW} AS clock,
    pg_is_in_recovery() AS standby,
    pg_relation_filenode('{SEQUENCES}')::bigint AS node,
    current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous,
    (SELECT record FROM _ring WHERE one = 1) AS record,
    (SELECT coalesce(json_agg(json_build_array(entry, seen)), '[]') FROM (SELECT * FROM _servers LIMIT $1) few)::text
    AS servers
"""
_SAY = f"""
INSERT INTO _servers (instance, entry, seen) VALUES (%s, %s, {NOW})
ON CONFLICT (instance) DO UPDATE SET entry = excluded.entry, seen = excluded.seen
"""
SAY = _SAY % ("$1", "$2")
LOOK_AND_ANNOUNCE = f"""
WITH stale AS (DELETE FROM _servers WHERE seen < {NOW} - $4::double precision AND instance <> $2),
said AS ({_SAY % ("$2", "$3")})
{_LOOK}
"""
LOOK = f"""
WITH said AS (INSERT INTO _probe (one, seen) VALUES (1, {NOW})
    ON CONFLICT (one) DO UPDATE SET seen = excluded.seen)
{_LOOK}
"""


def parsed(text: str) -> list[Any]:
    """The rows that a statement gives as one value."""
    return list(json.loads(text))


FORGET_SERVER = "DELETE FROM _servers WHERE instance = $1"
CLOCK = f"SELECT {NOW}"
OTHERS = """
SELECT DISTINCT application_name FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user
AND backend_type = 'client backend' AND pid <> ALL($1::integer[]) LIMIT 20
"""

# --- draws -----------------------------------------------------------------------------------------------------------

_FENCED = f"""
gate AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared({GATE}) IS NOT NULL AS passed),
fence AS MATERIALIZED (SELECT r.number FROM gate, _ring r WHERE gate.passed AND r.one = 1 FOR SHARE OF r)
"""


def draw(*, skip_locked: bool = False) -> str:
    """Draw for several sequences, each named once: all of each or nothing. `skip_locked`: pass over the sequences whose
    row another session has locked.

    `origin` and `step` are offset and increment. `least`: no ticket is below it. `more`: how far the last of these
    tickets is above the first one.
    """
    return f"""
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
    AS w(sequence, origin, step, ring, least, more, ceiling)
), {_FENCED}, held AS MATERIALIZED (
    SELECT w.*, s.id, greatest(s.id, w.least - 1, 0) AS above FROM wanted w JOIN {SEQUENCES} s USING (sequence)
    ORDER BY w.sequence FOR UPDATE OF s {"SKIP LOCKED" if skip_locked else ""}
), stepped AS (
    SELECT *, 1 + ((origin - above - 1) % step + step) % step AS rise FROM held
), drawn AS (
    UPDATE {SEQUENCES} s SET id = t.above + t.rise + t.more FROM stepped t, fence f
    WHERE s.sequence = t.sequence AND coalesce(f.number, t.ring) = t.ring AND t.above <= t.ceiling - t.more - t.rise
    RETURNING s.sequence, s.id
)
SELECT w.sequence, f.number, pg_relation_filenode('{SEQUENCES}')::bigint AS node, d.id AS last, h.id AS position,
    EXISTS (SELECT FROM {SEQUENCES} s WHERE s.sequence = w.sequence) AS there, h.sequence IS NOT NULL AS held
FROM fence f CROSS JOIN wanted w LEFT JOIN held h USING (sequence) LEFT JOIN drawn d USING (sequence)
"""


# --- sequences -------------------------------------------------------------------------------------------------------

LIST = f"SELECT sequence, id, bits, born::text AS born FROM {SEQUENCES} LIMIT $1"
LIST_NAMED = f"SELECT sequence, id, bits, born::text AS born FROM {SEQUENCES} WHERE sequence = ANY($2::text[]) LIMIT $1"
MAKE = f"INSERT INTO {SEQUENCES} (sequence, id, bits) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
ADVANCE = f"""
WITH given AS (SELECT * FROM unnest($1::text[], $2::bigint[]) AS g(sequence, floor)), held AS MATERIALIZED (
    SELECT s.sequence, g.floor, s.id FROM given g JOIN {SEQUENCES} s USING (sequence) ORDER BY sequence FOR UPDATE OF s
), raised AS (
    UPDATE {SEQUENCES} s SET id = h.floor FROM held h WHERE s.sequence = h.sequence AND h.id < h.floor
)
SELECT count(*) FROM held
"""

# --- notes -----------------------------------------------------------------------------------------------------------

_CHANGE = "pg_current_xact_id()::text::bigint"
"""A transaction's number dates a change: every transaction below the oldest that still runs is seen by a reader."""
_MARK = "sequence, offset_of, increment_of, mark, issued, token"
MARKS = f"""
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS change, {_MARK}
FROM (SELECT 1) AS one LEFT JOIN _high_water ON changed >= $2 LIMIT $1
"""
_GIVEN = """
SELECT * FROM unnest($1::text[], $2::integer[], $3::integer[], $4::bigint[], $5::bigint[], $6::text[])
AS g(sequence, offset_of, increment_of, mark, issued, token)
"""
KEEP_MARKS = f"""
WITH {_FENCED}, written AS (
    INSERT INTO _high_water AS k ({_MARK}, changed)
    SELECT g.*, {_CHANGE} FROM ({_GIVEN}) g, fence f WHERE f.number = $7 ORDER BY 1, 2, 3
    ON CONFLICT (sequence, offset_of, increment_of) DO UPDATE SET
        mark = CASE WHEN k.token = excluded.token THEN greatest(k.mark, excluded.mark) ELSE k.mark END,
        issued = CASE WHEN k.token = excluded.token THEN greatest(k.issued, excluded.issued) ELSE k.issued END,
        changed = excluded.changed
    RETURNING {_MARK}
)
SELECT w.* FROM fence f LEFT JOIN written w ON true WHERE f.number = $7
"""
HELD_MARKS = f"""
SELECT {_MARK} FROM _high_water JOIN unnest($1::text[], $2::integer[], $3::integer[])
AS g(sequence, offset_of, increment_of) USING (sequence, offset_of, increment_of)
ORDER BY 1, 2, 3 FOR UPDATE OF _high_water
"""
REPLACE_MARKS = f"""
UPDATE _high_water k SET mark = g.mark, issued = g.issued, token = g.token, changed = {_CHANGE} FROM ({_GIVEN}) g
WHERE (k.sequence, k.offset_of, k.increment_of) = (g.sequence, g.offset_of, g.increment_of)
"""
FENCE = f"WITH {_FENCED} SELECT number FROM fence"
CLOSE_GATE = f"SELECT pg_advisory_xact_lock({GATE})"
CLOSE_KINDS_GATE = f"SELECT pg_advisory_xact_lock({KINDS_GATE})"
RECORD = "SELECT record FROM _ring WHERE one = 1 AND record IS NOT NULL LIMIT $1"
WRITE_RECORD = "UPDATE _ring SET number = $1, record = $2 WHERE one = 1"
KINDS = "SELECT sequence, kind, parameters, decided, claimed_by FROM _kinds LIMIT $1"
WRITE_KIND = """
INSERT INTO _kinds VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (folded) DO UPDATE SET sequence = excluded.sequence,
    kind = excluded.kind, parameters = excluded.parameters, decided = excluded.decided, claimed_by = excluded.claimed_by
"""
FORGET_KIND = "DELETE FROM _kinds WHERE folded = $1"
SERVERS = "SELECT entry, seen FROM _servers LIMIT $1"
