-- Ids of the kind `instagram` inside one PostgreSQL database, shard {shard}. Printed by `ticketd sql instagram`.
-- Run this with psql as the role that will own it; it may be run again. PostgreSQL 9.6 or later.
--
--     SELECT {schema}.next_id();
--     CREATE TABLE {schema}.likes (id bigint PRIMARY KEY DEFAULT {schema}.next_id(), photo bigint NOT NULL);
--     GRANT USAGE ON SCHEMA {schema} TO app;        -- this is all that another role needs
--
-- An id: 41 bits of milliseconds since {since}, 13 of the shard, 10 of a counter.
-- `ticketd decode --kind instagram --epoch {epoch} ID` reads it.
--
-- How it differs from the article's function, which puts nextval modulo 1,024 beside the clock:
--   * Time and counter are one number, the tick, which the sequence keeps. An id has the clock's tick or the tick after
--     the last one, whichever is larger. So no id comes twice and each is above the last, whatever the clock does.
--   * Every commit waits for a log record of its id. nextval alone may write none, since PostgreSQL logs values ahead.
--   * It fails where the article's function turns negative: at {end}, with 2200H or 22003.
-- What it costs: a lock for some microseconds for each id, and one flush for each transaction, even for a SELECT alone.
-- What it does not cover:
--   * Two databases with one shard number, for example a copy beside its original, make the same ids.
--   * An id counts once its transaction has committed. Do not use it elsewhere before that. A rollback leaves a gap.
--   * With synchronous_commit or fsync off, after a failover to a standby that lagged, and after a restored backup, the
--     sequence may stand lower. The clock makes up for that, if it does not stand behind the last id that was given.
--   * setval, nextval and ALTER SEQUENCE by hand, which only the owner may do, and logical replication, which does not
--     carry sequences. The function runs with the owner's rights.

BEGIN;
CREATE SCHEMA IF NOT EXISTS {schema};

DO $check$
BEGIN
    IF to_regclass('{schema}.tick') IS NOT NULL
        AND obj_description(to_regclass('{schema}.tick'), 'pg_class') IS DISTINCT FROM '{comment}' THEN
        RAISE EXCEPTION '{schema}.tick was made for another shard or epoch, or by something else'
            USING HINT = 'Take another schema. Ids of another shard or epoch may be those of another database.';
    END IF;
END
$check$;

-- A sequence, not a row: a transaction locks a row until its end, and a rollback gives the row's ids out again.
-- The last tick: (milliseconds since the epoch) * 1024 + counter. 2^50 - 1 makes the largest positive bigint.
CREATE SEQUENCE IF NOT EXISTS {schema}.tick AS bigint MINVALUE 1 MAXVALUE {last_tick} CACHE 1 NO CYCLE;
COMMENT ON SEQUENCE {schema}.tick IS '{comment}';

CREATE OR REPLACE FUNCTION {schema}.next_id() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $next_id$
DECLARE tick bigint; present bigint;
BEGIN
    -- setval must not meet another session's nextval, so both run under a lock. The inner block, which has the lock, is
    -- always rolled back: by the RAISE, or by anything else that ends it. Values of a sequence are never rolled back.
    BEGIN
        PERFORM pg_advisory_xact_lock('pg_class'::regclass::oid::integer, '{schema}.tick'::regclass::oid::integer);
        present := (floor(extract(epoch FROM clock_timestamp())::numeric * 1000)::bigint - {epoch}) * 1024;
        tick := nextval('{schema}.tick');
        IF tick < present THEN tick := setval('{schema}.tick', present); END IF;
        RAISE SQLSTATE 'TICKD';
    EXCEPTION WHEN SQLSTATE 'TICKD' THEN NULL;
    END;
    -- a log record of this transaction, behind that of the sequence: the commit waits until both are on disk
    PERFORM pg_logical_emit_message(true, 'ticketd', '');
    RETURN ((tick >> 10) << 23) | ({shard}::bigint << 10) | (tick & 1023);
END
$next_id$;

COMMENT ON FUNCTION {schema}.next_id() IS '{comment}';
COMMIT;
