"""Every statement that a session sends to PostgreSQL, and the tables that it makes.

A change is one statement about one row, with its own condition and its own result. Several go in one packet, which is
one transaction, in the order of the rows' names, so that two sessions never wait for each other. A statement that
waited for a row goes on with the newest version of the row (READ COMMITTED).
"""

# ruff: noqa: S608 - the statements are put together from constants of this file alone

from app.databases.session import ENDS

SEQUENCES, RING, NOTES = "ticket_sequences", "_ticket_ring", "_ticket_notes"
COLUMNS = {"sequence text", "id bigint", "bits smallint"}
"""What a table of sequences needs. It may have other columns."""
LAYOUT = "ticketd layout 1"
"""The comment of the server's own tables."""
_LOCK = "SELECT pg_advisory_xact_lock(1953067883, 3);"
"""`tick` in ASCII, and a number. One session at a time makes tables or a sequence."""
MAKE_TABLES = f"""{_LOCK}
DO $$ BEGIN
IF to_regclass('{SEQUENCES}') IS NULL THEN
    CREATE TABLE {SEQUENCES} (sequence text PRIMARY KEY, id bigint NOT NULL DEFAULT 0,
        bits smallint NOT NULL DEFAULT 64, birth text NOT NULL DEFAULT gen_random_uuid()::text) WITH (fillfactor = 50);
    CREATE INDEX ON {SEQUENCES} (lower(sequence COLLATE "C"));
END IF;
IF to_regclass('{RING}') IS NULL THEN
    CREATE TABLE {RING} (one smallint PRIMARY KEY CHECK (one = 1), body text NOT NULL, ring_offset integer NOT NULL,
        stamp text NOT NULL, text text NOT NULL) WITH (fillfactor = 50);
    COMMENT ON TABLE {RING} IS '{LAYOUT}';
END IF;
IF to_regclass('{NOTES}') IS NULL THEN
    CREATE TABLE {NOTES} (book text COLLATE "C", name text COLLATE "C", high bigint NOT NULL, issued bigint NOT NULL,
        tenure text, sure boolean NOT NULL, text text NOT NULL, PRIMARY KEY (book, name)) WITH (fillfactor = 50);
    COMMENT ON TABLE {NOTES} IS '{LAYOUT}';
END IF;
END $$;
INSERT INTO {RING} VALUES (1, '{{word}}', 0, '', '') ON CONFLICT (one) DO NOTHING
"""
"""The fill factors leave room on each page for the new versions of its rows."""

# --- a new session ---------------------------------------------------------------------------------------------------


def settings(seconds: float) -> dict[str, str]:
    """Return the settings that a session logs in with. They hold against those of the user and of the database.

    seconds: the database timeout. The planner has to use indexes, which it might not without statistics of a table. The
    keepalives end a session whose network was cut in the middle of a statement, so that it holds no lock for long.
    """
    milliseconds = max(3, int(seconds * 1000))
    return {
        "default_transaction_isolation": "read committed",
        "statement_timeout": f"{milliseconds}",
        "lock_timeout": f"{milliseconds // 3}",
        "idle_in_transaction_session_timeout": f"{2 * milliseconds}",
        **{"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "3", "tcp_keepalives_count": "3"},
        **{"client_min_messages": "error", "plan_cache_mode": "force_generic_plan", "jit": "off"},
        "enable_seqscan": "off",
    }


BEGIN = """
SELECT set_config('search_path', coalesce(quote_ident(current_schema()), ''), false),
    set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), false)
"""
"""Fix the schema, and have commits wait for the disk unless they do so already."""

# --- looks -----------------------------------------------------------------------------------------------------------

_FIELDS = {"high": "bigint", "issued": "bigint", "tenure": "text", "sure": "boolean", "text": "text"}
_NOTE, _ROW = ", ".join(_FIELDS), ", ".join(["name", *_FIELDS])
BEAT = f"""
INSERT INTO {NOTES} (book, {_ROW}) VALUES ('heartbeats', $1, $2, $3, $4, $5, $6) ON CONFLICT (book, name)
DO UPDATE SET ({_NOTE}) = row({", ".join(f"excluded.{each}" for each in _FIELDS)})
"""
LOOK = f"""
WITH server AS MATERIALIZED (
    SELECT concat_ws('-', system_identifier::text, left(pg_walfile_name(pg_current_wal_lsn()), 8),
        current_setting('port')) AS machine
    FROM pg_control_system()
), tables AS MATERIALIZED (
    SELECT oid, relname::text AS name, relpersistence, pg_relation_filenode(oid) AS file,
        obj_description(oid, 'pg_class') AS comment
    FROM pg_class WHERE oid IN (to_regclass('{SEQUENCES}'), to_regclass('{RING}'), to_regclass('{NOTES}'))
)
SELECT pg_backend_pid() = $2 AS direct, machine, current_setting('server_version') AS version,
    extract(epoch FROM clock_timestamp())::float AS now,
    extract(epoch FROM pg_postmaster_start_time())::float AS started,
    concat_ws('.', (SELECT oid FROM pg_database WHERE datname = current_database()), (SELECT string_agg(
        concat_ws('.', oid, file), '.' ORDER BY name) FROM tables WHERE name <> '{SEQUENCES}'), body) AS births,
    current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    array(SELECT name FROM tables WHERE relpersistence <> 'p') AS unlogged,
    array(SELECT name FROM tables WHERE name <> '{SEQUENCES}' AND comment <> '{LAYOUT}') AS foreign,
    array(SELECT attname || ' ' || format_type(atttypid, atttypmod) FROM pg_attribute
        WHERE attrelid = to_regclass('{SEQUENCES}') AND attnum > 0 AND NOT attisdropped) AS columns,
    body, ring_offset, stamp, r.text,
    (SELECT json_agg(json_build_array({_ROW})) FROM {NOTES} WHERE book = 'heartbeats' AND $1)::text AS heartbeats,
    (SELECT json_agg(json_build_array({_ROW})) FROM {NOTES} WHERE book = 'lives' AND name = machine)::text AS lives,
    (SELECT high FROM {NOTES} WHERE book = 'counts' AND name = 'floors') AS floors
FROM server LEFT JOIN {RING} r ON r.one = 1
"""
"""$1: whether the heartbeats are wanted. $2: the process that the server named at the login. The timeline in `machine`
is another one after a promotion."""

# --- counters --------------------------------------------------------------------------------------------------------

_END = f"CASE bits {' '.join(f'WHEN {bits} THEN {end}' for bits, end in ENDS.items())} END"


def _changing(new: str, condition: str = "true") -> tuple[str, str]:
    """Return the statement that changes the row of the sequence $1, and the same statement passing a locked row over.

    new: the new id. condition: whether it can be given. Both may use `id`, its end `ends`, and `base`, the larger of
    the id and $2. $3: an id that the caller has drawn, or 0; a row below it stays. The result: the new id, how many
    rows were locked, their id and bits, whether they are below $3, and whether there is such a row.
    """
    waits, passes = (
        f"""
WITH held AS MATERIALIZED (
    SELECT id, bits, greatest(id, $2::bigint) AS base, {_END} AS ends FROM {SEQUENCES} WHERE sequence = $1
    FOR NO KEY UPDATE {locked}
), done AS (
    UPDATE {SEQUENCES} s SET id = {new} FROM held h
    WHERE s.sequence = $1 AND h.id >= $3::bigint AND h.id >= 0 AND ends IS NOT NULL AND {condition} RETURNING s.id
)
SELECT (SELECT max(id) FROM done), count(*), min(id), min(bits), min(id) < $3::bigint,
    EXISTS (SELECT FROM {SEQUENCES} WHERE sequence = $1)
FROM held"""
        for locked in ("", "SKIP LOCKED")
    )
    return waits, passes


_STEP = "1 + mod(mod($6::bigint - 1 - base, $7::bigint) + $7, $7) + $4::bigint"
DRAW = _changing(f"base + {_STEP}", f"{_STEP} <= least(ends, $5::bigint) - base")
"""$4: by how much the last id is above the first one. $5: no id is above it. $6, $7: offset and increment. Nothing here
can overflow."""
RAISE = _changing("greatest(h.id, least(ends, $2))")
LIST = f"""
SELECT s.sequence, s.id, s.bits, to_jsonb(s) ->> 'birth' AS birth, s.tableoid::text AS table,
    pg_relation_filenode(s.tableoid)::text AS file
FROM {SEQUENCES} s
"""
LIST_NAMED = LIST + """WHERE lower(s.sequence COLLATE "C") = ANY($1::text[])"""


def make(name: str, bits: int, above: int) -> str:
    """Return the two statements that make a sequence, in one transaction.

    The second one sees what the session that had the lock before has made.
    """
    return f"""{_LOCK}
INSERT INTO {SEQUENCES} (sequence, id, bits) SELECT '{name}', {min(above, ENDS[bits])}, {bits} WHERE NOT EXISTS
    (SELECT FROM {SEQUENCES} WHERE lower(sequence COLLATE "C") = lower('{name}' COLLATE "C")) ON CONFLICT DO NOTHING"""


# --- the notebook ----------------------------------------------------------------------------------------------------

READ = f"SELECT {_ROW} FROM {NOTES} WHERE book = $1 AND name = ANY($2::text[])"
PAGE = f"SELECT {_ROW} FROM {NOTES} WHERE book = $1 AND name > $2 ORDER BY name LIMIT $3"
HAS_OLD_KINDS = "SELECT 1 WHERE to_regclass('_kinds') IS NOT NULL"
OLD_KINDS = "SELECT 1 FROM _kinds WHERE decided AND kind <> 'ticket' LIMIT 1"
"""Finds sequences of other kinds in the table where releases before 1.0 kept them."""
READ_RING = f"SELECT body, ring_offset, stamp, text FROM {RING} WHERE one = 1"
WRITE_RING = f"""
UPDATE {RING} SET ring_offset = $1, stamp = $2, text = $3
WHERE one = 1 AND body = $4 AND ring_offset = $5 AND stamp = $6 AND text = $7 RETURNING one
"""
_UNDER_RING = f"WITH ring AS MATERIALIZED (SELECT stamp FROM {RING} WHERE one = 1 FOR SHARE)"
"""A change of the ring row waits for this lock, and this lock for a change; after that it reads the newest stamp."""
MARK = f"""{_UNDER_RING}, done AS (
    UPDATE {NOTES} n SET high = greatest(n.high, $3), issued = greatest(n.issued, $4), sure = n.sure OR $5
    FROM ring WHERE ring.stamp = $6 AND n.book = 'marks' AND n.name = $1 AND n.tenure = $2 RETURNING 1
)
SELECT (SELECT stamp FROM ring), EXISTS (TABLE done)
"""


def _given(first: int) -> str:
    """Return a note that is given by parameters from this one on. All five are null where there is none."""
    return ", ".join(f"${number}::{kind}" for number, kind in enumerate(_FIELDS.values(), first))


_WHERE = f"""($13::text IS NULL OR ring.stamp = $13) AND n.book = $1 AND n.name = $2
        AND ({", ".join(f"n.{each}" for each in _FIELDS)}) IS NOT DISTINCT FROM ({_given(3)})"""
WRITE = f"""{_UNDER_RING}, inserted AS (
    INSERT INTO {NOTES} (book, {_ROW}) SELECT $1, $2, {_given(8)} FROM ring
    WHERE $3::bigint IS NULL AND ($13::text IS NULL OR ring.stamp = $13) ON CONFLICT (book, name) DO NOTHING RETURNING 1
), replaced AS (
    UPDATE {NOTES} n SET ({_NOTE}) = row({_given(8)}) FROM ring WHERE $8::bigint IS NOT NULL AND {_WHERE} RETURNING 1
), removed AS (
    DELETE FROM {NOTES} n USING ring WHERE $8::bigint IS NULL AND {_WHERE} RETURNING 1
)
SELECT (SELECT stamp FROM ring), EXISTS (TABLE inserted UNION ALL TABLE replaced UNION ALL TABLE removed)
"""
"""$1, $2: book and name of the row. Then the note that has to be there, the note to write, and the stamp or null."""
