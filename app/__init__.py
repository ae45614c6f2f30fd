"""The ticket server: unique ids from two or more ticket databases.

The way of a ticket
===================

    http/tickets/protocol   one HTTP connection. Requests for tickets stay here; `http/uvicorn_adapter` passes every
                            other request on to FastAPI (`http/api`, `http/pages`).
    http/tickets/endpoint   what the request says: a sequence, a count, text or JSON, a token.
    redis/                  the same for the Redis protocol. `parser` turns bytes into commands, `connection` keeps the
                            replies in order, `commands` defines each command, `requests` formats its answer, and
                            `gathering` joins commands that arrive together into one request.
    tickets/desk/           `front_desk` counts and times each request, and refuses it while the server drains. `issuer`
                            takes the sequence's turn from the ring and asks one lane after another.
    tickets/reserve/        where TICKETS_RESERVE_SECONDS is set: tickets drawn ahead, which `issuer` hands out first.
    tickets/lanes/          a lane is one sequence on one database. While its statement is under way, requests queue;
                            the next statement draws for all of them.
    databases/mysql/draws/  puts the draws of several lanes on few connections. `databases/networked` and
                            `databases/sqlite` do the same for PostgreSQL and for the embedded pair.

The answer takes the same way back. `lanes/id_guard` drops every id that breaks a rule (offset, floor, ceiling).
`marks/ledger` commits a high-water mark above the id on every other database that is up. Then the lane answers the
requests in the order in which they came, the front desk counts them, and the endpoint writes the bytes. If a client has
gone away, its ticket becomes a gap.

The whole way is plain calls: the last byte of the request sends the statement, and the database's reply writes the
answer. A task takes part only where a step has to wait, for example while a lane opens or a mark is written.

The rooms of app/tickets
========================

    ring/        the ticket databases in turn order, their states, and what an error of a database does to these
    agreement/   which ring the databases record, which of them join it, and how it changes
    requests/    a request for tickets, and the observer that counts and traces draws
    lanes/       how one sequence is drawn on one database
    marks/       the high-water marks that `never twice` rests on
    reserve/     tickets drawn ahead
    sources/     the ids of other kinds than `ticket`: clocks, leased worker numbers, instance numbers
    sequences/   which sequences there are, and how they are made and bumped
    watch/       the probes that keep each database's state true
    desk/        how a request finds its ticket
    domain       puts the rooms together

Each room imports only rooms below it; `pyproject.toml` has the order, and `make check` holds the code against it.

The states of a database
========================

Before any database is up, the server and the databases that answer agree on the ring (`agreement`): its number, its
increment and its offsets, as each database records them. A server whose settings contradict the record draws nothing.
Every write of a mark names the ring's number, so a database refuses a server that draws in another ring.

    down          the state at the start, and after an error that concerns the whole database. The server draws nothing
                  from it. `watch/prober` probes it at once and then every TICKETS_PROBE_INTERVAL with a
                  committed write.
    up            a probe succeeded, and the server has asked every other database for its marks or has failed to reach
                  it in one attempt.
    quarantined   the database answers, but its offset, increment, identity, version or TLS is wrong, or it drew an id
                  of the wrong residue. The state ends when a new connection finds it right; after a wrong residue,
                  when a new draw is right.

A lane has states of its own (`lanes/state`): closed, open, suspended, exhausted, retired. They say nothing about the
database.

A lane opens before its first draw under an incarnation of its database (`marks/lane_opening`). The server reads the
marks that the other databases keep, then the table's position. If the database may have gone back, the server
advances the table past the marks, draws one ticket as a check, drops it, and supersedes the marks' token.
`marks/ledger` explains why that is enough.

Connections
===========

A `MySQLDatabase` owns all its connections: one for probes and for questions about marks and tables, and as many for
draws as statements are under way, up to a limit. The database drops a connection at any exception, timeout or
cancellation, because the state of such a connection is in doubt. Every wait has a deadline:
TICKETS_DATABASE_TIMEOUT for one attempt on one database, TICKETS_REQUEST_TIMEOUT for the request.

The rooms of app/, each above the rooms that it imports
=======================================================

    commands/       the command line: `serve`, `grow`, `doctor`, `take` and the others
    server          the life of a server: listen, serve, drain, stop
    service         builds everything from the settings
    token_rotation  reads tokens again when the server is told to
    doctor/         examines ticket databases and reports what would break a guarantee
    settings        what can be set, and where it is read from
    http/           the front for HTTP: tickets and blocks, FastAPI for the other requests, access, problems, pages
    redis/          the front for the Redis protocol: the commands that Redis clients send
    clients/        what both fronts share: the limit on connections, tokens, denied attempts
    operations/     what operators see and do: reports, metrics, rates, traces
    tickets/        the domain, as above; it knows neither HTTP nor metrics
    databases/      the protocol of a ticket database; `notebook` makes it from ten methods for an engine that keeps
                    rows, `networked` with connections and a queue of draws for one that is reached over a network;
                    `engines` lists the engines, each an `Engine` with a folder
        mysql/      MySQL and MariaDB; the only room that imports their driver
        postgresql/ PostgreSQL; the only room that imports its driver
        sqlite/     the embedded pair
    kinds/          the kinds of sequence: what an id is made of and how it is read; no I/O, no clock
    common/         errors, the log, names and widths; the standard library alone
"""
