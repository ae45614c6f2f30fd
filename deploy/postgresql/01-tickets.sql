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
-- PUT /sequence/albums. `id` is the last ticket, 0 for none; `bits` is 32, 53 or 64. `born` tells a row that was deleted
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
    born uuid NOT NULL DEFAULT gen_random_uuid()
) WITH (fillfactor = 50);

-- The server's own tables begin with `_`.
CREATE TABLE IF NOT EXISTS _ring (
    one smallint PRIMARY KEY CHECK (one = 1), number bigint, record text
);
CREATE TABLE IF NOT EXISTS _high_water (
    sequence text NOT NULL, offset_of integer NOT NULL, increment_of integer NOT NULL, mark bigint NOT NULL,
    issued bigint NOT NULL, token text NOT NULL, changed bigint NOT NULL,
    PRIMARY KEY (sequence, offset_of, increment_of)
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS _kinds (
    folded text PRIMARY KEY, sequence text NOT NULL, kind text NOT NULL, parameters text NOT NULL,
    decided boolean NOT NULL, claimed_by text NOT NULL
);
CREATE TABLE IF NOT EXISTS _servers (
    instance text PRIMARY KEY, entry text NOT NULL, seen double precision NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS _probe (one smallint PRIMARY KEY CHECK (one = 1), seen double precision NOT NULL);

INSERT INTO ticket_sequences (sequence, bits) VALUES
    ('Tickets64', 64), ('Tickets32', 32), ('photos', 64), ('accounts', 64), ('groups', 64), ('offline_tasks', 64)
ON CONFLICT DO NOTHING;

-- No more than a ticket server needs: it never renames a sequence, nor deletes one.
SELECT current_schema() AS schema \gset
GRANT USAGE ON SCHEMA :"schema" TO :"account";
GRANT SELECT, INSERT, UPDATE (id) ON ticket_sequences TO :"account";
GRANT SELECT, INSERT, UPDATE ON _ring, _high_water, _probe TO :"account";
GRANT SELECT, INSERT, UPDATE, DELETE ON _kinds, _servers TO :"account";
