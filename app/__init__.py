"""The ticket server: unique ids from two or more ticket databases.

The way of a ticket
===================

    http/ticket_protocol  one client connection. Requests for tickets stay here; all others go on to uvicorn's own
                          protocol and FastAPI (http/uvicorn_adapter, http/routes).
    http/ticket_endpoint  what the request says: a sequence, a count, text or JSON, a token.
    redis/                the same for the Redis protocol: `parser` makes commands of bytes, `connection` keeps replies
                          in order, `commands` says what each command does, `requests` how an answer reads; `gathering`
                          makes one request of the commands that come together.
    tickets/front_desk    takes it for every protocol in front: counted, timed, refused while the server drains.
    tickets/issuer        takes the sequence's turn from the ring, has one lane after the other asked. Where tickets are
                          drawn ahead (TICKETS_RESERVE_SECONDS), `tickets/reserve` gives them first, at once, and has
                          lanes asked for refills; until when it may is in `tickets/reserve_window`, and how many
                          there are to be in `tickets/reserve_demand`.
    tickets/lane          one sequence on one database: the requests that wait (lane_queue), the statement under way.
                          While it runs, requests queue; the next statement draws for all of them at once.
    databases/mysql/draws puts the draws of several lanes on few connections, each an OK packet on the `wire`;
                          databases/sqlite does the same on the embedded pair.

and back: the lane has `tickets/id_guard` check what came (offset, floor, ceiling; what breaks a rule is dropped) and
`tickets/ledger` make sure that the mark above it is committed on every other database that is up. Then it answers the
requests, first come, first served; the front desk counts, the endpoint writes. A request that has gone away leaves a
gap.

All of it is calls: the request's last byte sends the statement, and the OK packet writes the answer. Where a step has
to wait (a sequence to be looked up, a lane that opens, a mark, a connection, an error), a task does that and goes on
with the same step.

A lane opens before its first draw under an incarnation of its database (`lane_opening`): it reads the marks that the
other databases keep, and then the table's position. Where the database may have gone back it is advanced past the
marks, one draw is checked and dropped, and the marks' token is superseded. How that holds is written in `ledger`.

The states of a database
========================

Before any of them is up, the databases that answer and this server agree on the ring: the number, increment and offsets
that each database records (`ring_record`). A server whose settings contradict the record draws nothing, and every
reservation of a mark names the number, so that the databases refuse a server of another ring.

    down          at the start, and after any error that is not one sequence's own. Nothing is drawn. `prober` probes it
                  at once and then every TICKETS_PROBE_INTERVAL: a write to a table of the server's own, committed.
    up            a probe succeeded, and every other database has been asked for its marks (or has failed one attempt).
    quarantined   it answers, but is not what it should be: offset, increment, identity, version, TLS, or an id of the
                  wrong residue. Ends when a new connection (and for a residue, a new draw) finds it right.

One sequence on one database (a lane) can be closed, open, suspended (table locked, damaged, gone back; the probe loop
tries it again and drops what it draws), exhausted or retired: the table is in `lane_state`. That says nothing about
the database.

Who owns which connection
=========================

A `MySQLDatabase` owns all its connections: one for probes and the ledger's and catalog's questions, and as many for
draws as statements are in flight, up to a limit. They are opened outside any lock, prepared once (session variables,
checks), and dropped at any exception, timeout or cancellation: a connection whose state is in doubt is never used
again. A statement belongs to its lane, so that a client that goes away cancels nothing. Every wait has a
deadline: TICKETS_DATABASE_TIMEOUT for one attempt on one database, TICKETS_REQUEST_TIMEOUT for the request.

The rooms
=========

`make check` holds the imports against this: each room imports only those below it.

    commands/       ticketd and its commands: serve, doctor, grow, decode and sql; take, bump, create, list and show ask
                    a running server
    server          the process: uvicorn, signals, the order of the end
    service         the composition root: builds everything, owns start and stop
    token_rotation  the tokens' files, read again when they change
    doctor/         the check-up of the ticket databases
    settings        what can be set, and where it is read from
    http/           the front for HTTP: tickets and blocks, FastAPI for the rest, access, problem details, pages
    redis/          the front for the Redis protocol: commands as any Redis client sends them
    clients/        what all fronts share: how many connections there may be, tokens, attempts that are denied
    operations/     what operators see and do: reports, metrics, rates, traces, however many sequences there are
    tickets/        the domain: the front desk, lanes, the ring, marks, sequences, probes; never HTTP, never metrics
    databases/      the protocol of a ticket database; `engines` lists what can stand behind it
        mysql/      MySQL and MariaDB, whole; the only room that imports their driver
        sqlite/     the embedded pair, whole
    kinds/          the kinds of sequence: what an id is made of, made and read; no I/O, no clock
    common/         errors, the log, names and widths, patience; the standard library alone
"""
