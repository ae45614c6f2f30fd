-- The tables of a PostgreSQL ticket database, for an account that may create nothing, and the first sequences.
--
--   psql -d tickets -v account=ticketd -f 01-tickets.sql
--
-- Run it as the owner of the tables, once the account exists (`CREATE ROLE ticketd LOGIN PASSWORD …`); without
-- `-v account=…` the account is `tickets`. It may be run again and changes nothing that is there. The tables go into the
-- first schema of the search path, and the account has to find the same schema first. PostgreSQL 13 or later.
--
-- An account that may create tables in that schema needs no script: the server makes the same tables.
--
-- One more object type is one more row: `INSERT INTO ticket_sequences (sequence) VALUES ('albums')`, or
-- PUT /sequence/albums. `id` is the last ticket, 0 for none; `bits` is 32, 53 or 64. `birth` tells a row that was deleted
-- and inserted again from the one before. The fill factor leaves room on each page for the versions that draws make.

\if :{?account}
\else
\set account tickets
\endif

SET client_min_messages = warning;

CREATE TABLE IF NOT EXISTS ticket_sequences (
    sequence text PRIMARY KEY,
    id bigint NOT NULL DEFAULT 0,
    bits smallint NOT NULL DEFAULT 64,
    birth text NOT NULL DEFAULT gen_random_uuid()::text
) WITH (fillfactor = 50);
-- For a table that was made without it.
ALTER TABLE ticket_sequences ADD COLUMN IF NOT EXISTS birth text NOT NULL DEFAULT gen_random_uuid()::text;
-- Names are found without case.
CREATE INDEX IF NOT EXISTS ticket_sequences_lower_idx ON ticket_sequences (lower(sequence COLLATE "C"));

-- The server's own tables begin with `_`. The comment is their layout. A server writes the first row of the ring itself.
SELECT to_regclass('_ticket_ring') IS NULL AS is_new \gset
\if :is_new
CREATE TABLE _ticket_ring (
    one smallint PRIMARY KEY CHECK (one = 1), body text NOT NULL, ring_offset integer NOT NULL, stamp text NOT NULL,
    text text NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE _ticket_ring IS 'ticketd layout 1';
CREATE TABLE _ticket_notes (
    book text COLLATE "C", name text COLLATE "C", high bigint NOT NULL, issued bigint NOT NULL, tenure text,
    sure boolean NOT NULL, text text NOT NULL, PRIMARY KEY (book, name)
) WITH (fillfactor = 50);
COMMENT ON TABLE _ticket_notes IS 'ticketd layout 1';
\endif

INSERT INTO ticket_sequences (sequence, bits) VALUES
    ('Tickets64', 64), ('Tickets32', 32), ('photos', 64), ('accounts', 64), ('groups', 64), ('offline_tasks', 64)
ON CONFLICT DO NOTHING;

-- No more than a ticket server needs: it never renames a sequence, nor deletes one.
SELECT current_schema() AS schema \gset
GRANT USAGE ON SCHEMA :"schema" TO :"account";
GRANT SELECT, INSERT, UPDATE (id) ON ticket_sequences TO :"account";
GRANT SELECT, INSERT, UPDATE ON _ticket_ring TO :"account";
GRANT SELECT, INSERT, UPDATE, DELETE ON _ticket_notes TO :"account";
