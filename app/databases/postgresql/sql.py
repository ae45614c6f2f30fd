"""Every statement that a session sends to PostgreSQL, and the settings of a session.

A change is one statement about one row, with its own condition and its own result. Several go in one packet, which is
one transaction, in the order of the rows' names, so that two sessions never wait for each other. A statement that
waited for a row goes on with the newest version of the row (READ COMMITTED).
"""

# ruff: noqa: S608 - the statements are put together from constants of this file alone

from collections.abc import Callable
from functools import partial

from app.databases.session import EMPTIED, ENDS
from app.errors import SequenceBusy, SequenceError, SequenceExhausted, SequenceMissing

SEQUENCES, RING, NOTES = "ticket_sequences", "_ticket_ring", "_ticket_notes"
SET_UP = "run deploy/postgresql/01-tickets.sql there, as the tables' owner"
_COLUMNS = "bits smallint, id bigint, sequence text"
"""What a table of sequences needs. It may have other columns."""
_LAYOUT = "ticketd layout 1"
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
    COMMENT ON TABLE {RING} IS '{_LAYOUT}';
END IF;
IF to_regclass('{NOTES}') IS NULL THEN
    CREATE TABLE {NOTES} (book text COLLATE "C", name text COLLATE "C", high bigint NOT NULL, issued bigint NOT NULL,
        tenure text, sure boolean NOT NULL, text text NOT NULL, PRIMARY KEY (book, name)) WITH (fillfactor = 50);
    COMMENT ON TABLE {NOTES} IS '{_LAYOUT}';
END IF;
END $$;
INSERT INTO {RING} VALUES (1, '{{word}}', 0, '', '') ON CONFLICT (one) DO NOTHING
"""
"""The fill factors leave room on each page for the new versions of its rows."""


def settings(seconds: float) -> dict[str, str]:
    """Return the settings that a session logs in with. They hold against those of the user and of the database.

    seconds: the database timeout. The planner uses indexes even where a table has no statistics. The keepalives end a
    session whose network was cut in the middle of a statement, so that it holds no lock for long.
    """
    milliseconds = max(3, int(seconds * 1000))
    return {
        **{"default_transaction_isolation": "read committed", "enable_seqscan": "off", "jit": "off"},
        **{"statement_timeout": f"{milliseconds}", "lock_timeout": f"{milliseconds // 3}"},
        "idle_in_transaction_session_timeout": f"{2 * milliseconds}",
        **{"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "3", "tcp_keepalives_count": "3"},
        **{"client_min_messages": "error", "plan_cache_mode": "force_generic_plan"},
    }


BEGIN = """
SELECT set_config('search_path', coalesce(quote_ident(current_schema()), ''), false),
    set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), false)
"""
"""Fix the schema, and have commits wait for the disk unless they do so already."""
SERVER = f"""
server AS MATERIALIZED (
    SELECT concat_ws('-', system_identifier::text, left(pg_walfile_name(pg_current_wal_lsn()), 8),
        current_setting('port')) AS machine, extract(epoch FROM clock_timestamp())::float AS now,
        'PostgreSQL ' || current_setting('server_version') AS version
    FROM pg_control_system()
), tables AS MATERIALIZED (
    SELECT oid, relname::text AS name, relpersistence, pg_relation_filenode(oid) AS file,
        obj_description(oid, 'pg_class') AS comment
    FROM pg_class WHERE oid IN (to_regclass('{SEQUENCES}'), to_regclass('{RING}'), to_regclass('{NOTES}'))
), warned AS MATERIALIZED (
    SELECT words FROM (VALUES
        ('fsync', 'fsync is off, so a crash of the machine loses tickets: set it on in postgresql.conf'),
        ('full_page_writes', 'full_page_writes is off, so a power cut may leave a page half written: set it on')
    ) harm(setting, words) WHERE current_setting(setting) = 'off'
    UNION ALL SELECT name || ' is UNLOGGED, so a crash empties it: ALTER TABLE ' || name || ' SET LOGGED'
    FROM tables WHERE relpersistence <> 'p'
)"""
"""The timeline in `machine` is another one after a promotion. A standby has none, and fails."""
_FIELDS = {"high": "bigint", "issued": "bigint", "tenure": "text", "sure": "boolean", "text": "text"}
_NOTE, _ROW = ", ".join(_FIELDS), ", ".join(["name", *_FIELDS])
BEAT = f"""
INSERT INTO {NOTES} (book, {_ROW}) VALUES ('heartbeats', $1, $2, $3, $4, $5, $6) ON CONFLICT (book, name)
DO UPDATE SET ({_NOTE}) = row({", ".join(f"excluded.{each}" for each in _FIELDS)})
"""
LOOK = f"""WITH {SERVER}
SELECT machine, extract(epoch FROM pg_postmaster_start_time())::float AS started,
    concat_ws('.', (SELECT oid FROM pg_database WHERE datname = current_database()), (SELECT string_agg(
        concat_ws('.', oid, file), '.' ORDER BY name) FROM tables WHERE name <> '{SEQUENCES}'), body) AS births,
    now, version, array(SELECT words FROM warned) AS warnings, body, ring_offset, stamp, r.text,
    pg_backend_pid() AS process, (SELECT count(*) FROM tables) AS tables, array(
        SELECT format($$has a table %s of another release: its comment is not '{_LAYOUT}'$$, name) FROM tables
            WHERE name <> '{SEQUENCES}' AND comment <> '{_LAYOUT}'
        UNION ALL SELECT $$has a table {SEQUENCES} without the columns {_COLUMNS}: move it away and {SET_UP}$$
            FROM tables WHERE name = '{SEQUENCES}' AND NOT string_to_array('{_COLUMNS}', ', ') <@ array(
                SELECT attname || ' ' || format_type(atttypid, atttypmod) FROM pg_attribute
                WHERE attrelid = oid AND attnum > 0 AND NOT attisdropped)) AS refused,
    (SELECT json_agg(json_build_array({_ROW})) FROM {NOTES} WHERE book = 'heartbeats')::text AS heartbeats,
    (SELECT json_agg(json_build_array({_ROW})) FROM {NOTES} WHERE book = 'lives' AND name = machine)::text AS lives,
    (SELECT high FROM {NOTES} WHERE book = 'counts' AND name = 'floors') AS floors
FROM server LEFT JOIN {RING} r ON r.one = 1
"""
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
SELECT stamp, EXISTS (TABLE done) FROM ring
"""
_OLD, _NEW = (", ".join(f"${at}::{kind}" for at, kind in enumerate(_FIELDS.values(), first)) for first in (3, 8))
_WHERE = f"""($13::text IS NULL OR ring.stamp = $13) AND n.book = $1 AND n.name = $2
        AND ({", ".join(f"n.{each}" for each in _FIELDS)}) IS NOT DISTINCT FROM ({_OLD})"""
WRITE = f"""{_UNDER_RING}, inserted AS (
    INSERT INTO {NOTES} (book, {_ROW}) SELECT $1, $2, {_NEW} FROM ring
    WHERE $3::bigint IS NULL AND ($13::text IS NULL OR ring.stamp = $13) ON CONFLICT (book, name) DO NOTHING RETURNING 1
), replaced AS (
    UPDATE {NOTES} n SET ({_NOTE}) = row({_NEW}) FROM ring WHERE $8::bigint IS NOT NULL AND {_WHERE} RETURNING 1
), removed AS (
    DELETE FROM {NOTES} n USING ring WHERE $8::bigint IS NULL AND {_WHERE} RETURNING 1
)
SELECT stamp, EXISTS (TABLE inserted UNION ALL TABLE replaced UNION ALL TABLE removed) FROM ring
"""
"""$1, $2: book and name of the row. $3 to $7: the note that has to be there, all null where none has to. $8 to $12: the
note to write, or null. $13: the stamp that the ring row has to have, or null."""

_END = f"CASE bits {' '.join(f'WHEN {bits} THEN {end}' for bits, end in ENDS.items())} END"
_WRONG = f"""CASE WHEN {_END} IS NULL OR id IS NULL OR id < 0
        THEN format('its id is %s and its bits are %s: expected 0 or more, and 32, 53 or 64', id, bits) END"""
_BIRTH = """left(encode(sha256(convert_to(concat_ws(' ', to_jsonb(s) ->> 'birth', s.tableoid,
        pg_relation_filenode(s.tableoid)), 'UTF8')), 'hex'), 16)"""
LIST = f"""
SELECT sequence, bits, {_END}, least(id, {_END}), {_BIRTH},
    array(SELECT '{SEQUENCES} has no column birth, so a row that is deleted and inserted again is not seen as another: '
        'ALTER TABLE {SEQUENCES} ADD COLUMN birth text NOT NULL DEFAULT gen_random_uuid()::text'
        WHERE NOT to_jsonb(s) ? 'birth'),
    CASE WHEN count(*) OVER (PARTITION BY lower(sequence COLLATE "C")) > 1
        THEN 'has several rows by this name, compared without case: delete all but one of them'
    WHEN sequence !~ '^[A-Za-z][A-Za-z0-9_]{{0,63}}$'
        THEN 'its name is not 1 to 64 letters, digits and _, a letter first' ELSE {_WRONG} END
FROM {SEQUENCES} s
"""
LIST_NAMED = LIST + """WHERE lower(s.sequence COLLATE "C") = ANY($1::text[])"""


def _changing(new: str, condition: str = "true", same: str = "true") -> tuple[str, str]:
    """Return the statement that changes the row of the sequence $1, and the same statement passing a locked row over.

    new: the new id. condition: whether it can be given. same: whether this is the row that the caller knows. $3: an id
    that the caller has drawn, or 0; a row below it stays. The result is the new id, or else a word of `REFUSALS` or
    what is wrong with the row.
    """
    statement = f"""
WITH done AS (
    UPDATE {SEQUENCES} s SET id = {new}
    WHERE sequence = $1 AND id >= greatest($3::bigint, 0) AND {same} AND {_END} IS NOT NULL AND {condition}{{}}
    RETURNING id
)
SELECT max(id), CASE WHEN max(id) IS NULL THEN coalesce((
    SELECT coalesce({_WRONG}, CASE WHEN id < $3 OR NOT {same} THEN 'emptied' WHEN {condition} THEN 'busy'
        ELSE 'exhausted' END)
    FROM {SEQUENCES} s WHERE sequence = $1 LIMIT 1), 'missing') END
FROM done"""
    lockable = f" AND EXISTS (SELECT FROM {SEQUENCES} WHERE sequence = $1 FOR NO KEY UPDATE SKIP LOCKED)"
    return statement.format(""), statement.format(lockable)


_BASE = "greatest(id, $2::bigint)"
_STEP = f"1 + mod(mod($6::bigint - 1 - {_BASE}, $7::bigint) + $7, $7) + ($4::bigint - 1) * $7"
DRAW = _changing(
    f"{_BASE} + {_STEP}", f"{_STEP} <= least({_END}, $5::bigint) - {_BASE}", f"($8::text = '' OR {_BIRTH} = $8)"
)
"""$2: the ids are above it. $4: how many. $5: no id is above it. $6, $7: offset and increment. $8: the row's birth, or
empty. The result is the last id. Nothing here can overflow."""
RAISE = _changing(f"greatest(id, least({_END}, $2::bigint))")
REFUSALS: dict[str, Callable[[], SequenceError]] = {
    "missing": SequenceMissing,
    "emptied": partial(SequenceMissing, EMPTIED),
    "busy": SequenceBusy,
    "exhausted": SequenceExhausted,
}


def make(name: str, bits: int, above: int) -> str:
    """Return two statements that make a sequence. The second sees what the session that had the lock before made."""
    assert name.isidentifier(), name
    return f"""{_LOCK}
INSERT INTO {SEQUENCES} (sequence, id, bits) SELECT '{name}', {min(above, ENDS[bits])}, {bits} WHERE NOT EXISTS
    (SELECT FROM {SEQUENCES} WHERE lower(sequence COLLATE "C") = lower('{name}' COLLATE "C")) ON CONFLICT DO NOTHING"""
