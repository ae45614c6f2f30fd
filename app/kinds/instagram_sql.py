"""`instagram` inside PostgreSQL: the PL/pgSQL of one shard, as `ticketd sql instagram` prints it."""

import re
from collections.abc import Mapping

from app.common.errors import InvalidRequest
from app.kinds.instagram import Instagram
from app.kinds.notation import time_text

_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}", re.ASCII)

_SQL = """\
-- Ids of the kind `instagram` inside one PostgreSQL database, shard {shard}. Printed by `ticketd sql instagram`.
-- Run it with psql as the role that is to own it; it may be run again. PostgreSQL 9.6 or later.
--
--     SELECT {schema}.next_id();
--     CREATE TABLE {schema}.likes (id bigint PRIMARY KEY DEFAULT {schema}.next_id(), photo bigint NOT NULL);
--     GRANT USAGE ON SCHEMA {schema} TO app;        -- this is all that another role needs
--
-- An id: 41 bits of milliseconds since {since}, 13 of the shard, 10 of a counter.
-- `ticketd decode --kind instagram --epoch {epoch} ID` reads it.
--
-- How it differs from the article's function, which puts nextval modulo 1,024 beside the clock:
--   * Time and counter are one number, the tick, and the sequence keeps it. An id has the clock's tick, or the one after
--     the last, whichever is larger. So no id comes twice and each is above the one before, also when the clock is set
--     back, when more than 1,024 are drawn in a millisecond (they go on into the next one), and when a session stands
--     still between nextval and the clock.
--   * nextval alone is not durable: a value that one session takes from what another has logged writes nothing, and after
--     a crash it comes again. Here every id writes a record of its own, so that the commit waits for the disk.
--   * It fails where the article's turns negative: at {end}, with 2200H or 22003.
--
-- What it costs: a lock for some microseconds for each id, never until the end of the transaction; a small record in the
-- log (logical decoding shows it as a message with the prefix `ticketd`); one flush for each transaction, also for a SELECT
-- alone. A rollback gives no id back: it leaves a gap.
--
-- What it does not cover:
--   * Two databases with one shard number make the same ids. Numbers are yours to give; so are those of copies.
--   * An id counts once its transaction has committed. Do not use one elsewhere before that.
--   * With synchronous_commit or fsync off, after a failover to a standby that had not received everything, and after an
--     older backup is restored, the sequence may stand lower. The clock makes up for that, unless it stands behind the
--     last id that was given: see to it that a new host's clock is right before it takes writes.
--   * While the clock stands behind the last id, ids go on by one tick each: their time is ahead of the clock's. One that
--     was set a year ahead by mistake leaves the ids a year ahead.
--   * setval, nextval and ALTER SEQUENCE by hand. Only the owner may: the function runs with the owner's rights. Logical
--     replication does not carry sequences.

BEGIN;

CREATE SCHEMA IF NOT EXISTS {schema};

DO $check$
BEGIN
    IF to_regclass('{schema}.tick') IS NOT NULL
        AND obj_description(to_regclass('{schema}.tick'), 'pg_class') IS DISTINCT FROM '{comment}'
    THEN
        RAISE EXCEPTION '{schema}.tick was made for another shard or epoch, or by something else'
            USING HINT = 'Take another schema. Ids of another shard or epoch may be those of another database.';
    END IF;
END
$check$;

-- The last tick: (milliseconds since the epoch) * 1024 + counter. 2^50 - 1 makes the largest positive bigint.
CREATE SEQUENCE IF NOT EXISTS {schema}.tick AS bigint MINVALUE 1 MAXVALUE {last_tick} CACHE 1 NO CYCLE;
COMMENT ON SEQUENCE {schema}.tick IS '{comment}';

CREATE OR REPLACE FUNCTION {schema}.next_id() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $next_id$
DECLARE
    tick bigint;
    present bigint;
BEGIN
    -- setval must not meet another session's nextval, so both stand under a lock. It belongs to the inner block, which is
    -- always rolled back: by the RAISE, or by whatever else ends it, a cancelled statement too. Sequences do not roll back.
    BEGIN
        PERFORM pg_advisory_xact_lock('pg_class'::regclass::oid::integer, '{schema}.tick'::regclass::oid::integer);
        present := (floor(extract(epoch FROM clock_timestamp())::numeric * 1000)::bigint - {epoch}) * 1024;
        tick := nextval('{schema}.tick');
        IF tick < present THEN
            tick := setval('{schema}.tick', present);
        END IF;
        RAISE SQLSTATE 'TICKD';
    EXCEPTION WHEN SQLSTATE 'TICKD' THEN
        NULL;
    END;
    -- A record of this transaction's own behind the sequence's: its commit waits until both are on disk.
    PERFORM pg_logical_emit_message(true, 'ticketd', '');
    RETURN ((tick >> 10) << 23) | ({shard}::bigint << 10) | (tick & 1023);
END
$next_id$;

COMMENT ON FUNCTION {schema}.next_id() IS '{comment}';

COMMIT;"""


def instagram_sql(schema: str, shard: int, parameters: Mapping[str, int]) -> str:
    """The SQL that makes `schema.next_id()` for this shard. InvalidRequest: a schema or shard that cannot be."""
    if not _SCHEMA.fullmatch(schema):
        raise InvalidRequest(
            "a schema's name is 1 to 63 lower-case letters, digits and underscores, no digit first and not pg_"
        )
    kind = Instagram()
    shard = kind.shard_of(parameters, None, shard)
    ends_at = kind.ends_at(parameters)
    assert ends_at is not None
    return _SQL.format(
        schema=schema,
        shard=shard,
        epoch=parameters["epoch"],
        since=time_text(parameters["epoch"]),
        end=time_text(ends_at),
        last_tick=kind.last_tick(parameters),
        comment=f"ticketd: instagram, shard {shard}, epoch {parameters['epoch']}",
    )
