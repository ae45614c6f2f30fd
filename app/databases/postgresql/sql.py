"""Every statement that a session sends to PostgreSQL, and the tables that it makes.

A statement about several rows first locks these rows in the order of their names, so that two sessions never wait for
each other. A statement that waited for a row goes on with the newest version of the row (READ COMMITTED).
"""

# ruff: noqa: S608 - the statements are put together from constants of this file alone

from app.databases.session import LARGEST_ID

SEQUENCES, RING, NOTES = "ticket_sequences", "_ticket_ring", "_ticket_notes"
COLUMNS = {"sequence text", "id bigint", "bits smallint"}
"""What a table of sequences needs. It may have other columns."""
ENDS = {32: (1 << 32) - 1, 53: (1 << 53) - 1, 64: LARGEST_ID}
"""The largest id of a sequence, by its `bits`."""
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

    The planner has to use indexes: without statistics of a table it may read the whole table. The keepalives end a
    session whose network was cut in the middle of a statement, so that it holds no lock for long.
    """
    milliseconds = max(3, int(seconds * 1000))
    return {
        "default_transaction_isolation": "read committed",
        "statement_timeout": f"{milliseconds}",
        "lock_timeout": f"{milliseconds // 3}",
        "idle_in_transaction_session_timeout": f"{2 * milliseconds}",
        **{"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "3", "tcp_keepalives_count": "3"},
        **{"client_min_messages": "error", "plan_cache_mode": "force_generic_plan", "jit": "off"},
        **dict.fromkeys(("enable_seqscan", "enable_hashjoin", "enable_mergejoin"), "off"),
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
    (extract(epoch FROM pg_postmaster_start_time()) * 1000)::bigint AS started,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now,
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

_END = f"CASE s.bits {' '.join(f'WHEN {bits} THEN {end}' for bits, end in ENDS.items())} END"
_SERVED = f"s.id >= 0 AND s.bits IN ({', '.join(map(str, ENDS))})"
_RESULTS = f"""
SELECT sequence, last, 'done' AS result, NULL::bigint AS id, NULL::smallint AS bits FROM done UNION ALL
SELECT w.sequence, NULL, CASE WHEN s.sequence IS NULL THEN 'missing' WHEN ({_SERVED}) IS NOT TRUE THEN 'unusable'
    WHEN w.sequence IN (SELECT sequence FROM held WHERE emptied) THEN 'emptied'
    WHEN w.sequence IN (SELECT sequence FROM held) THEN 'exhausted' ELSE 'busy' END, s.id, s.bits
FROM wanted w LEFT JOIN {SEQUENCES} s USING (sequence) WHERE w.sequence NOT IN (SELECT sequence FROM done)
"""


def _given(first: int, *kinds: str) -> str:
    """Return the rows of a statement, given as columns from parameter `first` on. They are arrays of text, because the
    driver would ask the server on each connection what an array of numbers is."""
    return f"unnest({', '.join(f'${number}::text[]::{kind}[]' for number, kind in enumerate(kinds, first))})"


def _locking(statement: str) -> tuple[str, str]:
    """Return the statement that waits for locked rows, and the same statement passing them over."""
    return statement.format(locked=""), statement.format(locked="SKIP LOCKED")


DRAW = _locking(f"""
WITH wanted AS (
    SELECT * FROM {_given(1, *["text", *["bigint"] * 4])} AS w(sequence, span, above, ceiling, drawn)
), held AS MATERIALIZED (
    SELECT s.sequence, span, greatest(s.id, above) AS base, least(ceiling, {_END}) AS ceiling, s.id < drawn AS emptied
    FROM wanted JOIN {SEQUENCES} s USING (sequence) WHERE {_SERVED}
    ORDER BY s.sequence FOR NO KEY UPDATE OF s {{locked}}
), ahead AS (
    SELECT sequence, base, ceiling, 1 + mod(mod($6 - 1 - base, $7::bigint) + $7, $7) + span AS step
    FROM held WHERE NOT emptied
), done AS (
    UPDATE {SEQUENCES} s SET id = base + step FROM ahead a WHERE s.sequence = a.sequence AND step <= ceiling - base
    RETURNING s.sequence, s.id AS last
){_RESULTS}""")
"""`span`: by how much the last id is above the first one. `drawn`: an id that the caller has drawn, or 0. $6, $7:
offset and increment. Nothing here can overflow."""
RAISE = _locking(f"""
WITH wanted AS (SELECT * FROM {_given(1, "text", "bigint")} AS w(sequence, floor)), held AS MATERIALIZED (
    SELECT s.sequence, least(floor, {_END}) AS last, false AS emptied
    FROM wanted JOIN {SEQUENCES} s USING (sequence) WHERE {_SERVED}
    ORDER BY s.sequence FOR NO KEY UPDATE OF s {{locked}}
), raised AS (
    UPDATE {SEQUENCES} s SET id = h.last FROM held h WHERE s.sequence = h.sequence AND s.id < h.last
), done AS (SELECT sequence, last FROM held){_RESULTS}""")
LIST = f"""
SELECT s.sequence, s.id, s.bits, to_jsonb(s) ->> 'birth' AS birth, s.tableoid::text AS table,
    pg_relation_filenode(s.tableoid)::text AS file
FROM {SEQUENCES} s
"""
LIST_NAMED = LIST + """WHERE lower(s.sequence COLLATE "C") = ANY($1::text[])"""
MAKE = f"""{_LOCK}
INSERT INTO {SEQUENCES} (sequence, id, bits) SELECT '{{name}}', {{last}}, {{bits}} WHERE NOT EXISTS
    (SELECT FROM {SEQUENCES} WHERE lower(sequence COLLATE "C") = lower('{{name}}' COLLATE "C")) ON CONFLICT DO NOTHING
"""
"""Two statements in one transaction. The second one sees what the session that had the lock before has made."""

# --- the notebook ----------------------------------------------------------------------------------------------------

READ = f"SELECT {_ROW} FROM {NOTES} WHERE book = $1 AND name = ANY($2::text[])"
PAGE = f"SELECT {_ROW} FROM {NOTES} WHERE book = $1 AND name > $2 ORDER BY name LIMIT $3"
HAS_OLD_KINDS = "SELECT to_regclass('_kinds') IS NOT NULL"
OLD_KINDS = "SELECT 1 FROM _kinds WHERE decided AND kind <> 'ticket' LIMIT 1"
"""What finds a kind of sequence in the table where releases before 1.0 kept them."""
READ_RING = f"SELECT body, ring_offset, stamp, text FROM {RING} WHERE one = 1"
WRITE_RING = f"""
UPDATE {RING} SET ring_offset = $1, stamp = $2, text = $3
WHERE one = 1 AND body = $4 AND ring_offset = $5 AND stamp = $6 AND text = $7 RETURNING one
"""
_LOCKED_RING = f"ring AS MATERIALIZED (SELECT stamp FROM {RING} WHERE one = 1 FOR SHARE)"
"""A change of the ring row waits for this lock, and this lock for a change; after that it reads the newest stamp."""
MARK = f"""
WITH {_LOCKED_RING}, held AS MATERIALIZED (
    SELECT g.* FROM ring, {_given(1, "text", "text", "bigint", "bigint", "boolean")}
        AS g(name, tenure, high, issued, sure) JOIN {NOTES} n ON n.book = 'marks' AND n.name = g.name
    WHERE ring.stamp = $6 AND n.tenure = g.tenure ORDER BY n.name FOR NO KEY UPDATE OF n
), raised AS (
    UPDATE {NOTES} n SET high = greatest(n.high, h.high), issued = greatest(n.issued, h.issued), sure = n.sure OR h.sure
    FROM held h WHERE n.book = 'marks' AND n.name = h.name RETURNING n.name
)
SELECT (SELECT stamp FROM ring) AS stamp, array(SELECT name FROM raised) AS done
"""
_OLD = ", ".join(f"old_{each}" for each in _FIELDS)
WRITE = f"""
WITH {_LOCKED_RING}, given AS MATERIALIZED (
    SELECT g.* FROM ring, {_given(2, "text", "text", "boolean", *_FIELDS.values(), "boolean", *_FIELDS.values())}
        AS g(book, name, was, {_OLD}, stays, {_NOTE}) WHERE $1::text IS NULL OR ring.stamp = $1
), held AS MATERIALIZED (
    SELECT g.* FROM given g JOIN {NOTES} n USING (book, name)
    WHERE g.was AND {" AND ".join(f"n.{each} IS NOT DISTINCT FROM g.old_{each}" for each in _FIELDS)}
    ORDER BY n.book, n.name FOR UPDATE OF n
), inserted AS (
    INSERT INTO {NOTES} (book, {_ROW}) SELECT book, {_ROW} FROM given WHERE stays AND NOT was
    ORDER BY book COLLATE "C", name COLLATE "C" ON CONFLICT (book, name) DO NOTHING RETURNING book, name
), replaced AS (
    UPDATE {NOTES} n SET ({_NOTE}) = row({", ".join(f"h.{each}" for each in _FIELDS)})
    FROM held h WHERE h.stays AND n.book = h.book AND n.name = h.name RETURNING n.book, n.name
), removed AS (
    DELETE FROM {NOTES} n USING held h
    WHERE NOT h.stays AND n.book = h.book AND n.name = h.name RETURNING n.book, n.name
)
SELECT (SELECT stamp FROM ring) AS stamp, array(SELECT book || ' ' || name FROM (TABLE inserted UNION ALL
    TABLE replaced UNION ALL TABLE removed) AS done) AS done
"""
