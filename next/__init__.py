"""The core of release 1.0: what hands out tickets, without the doors through which people reach it.

The way of a ticket is plain calls, in this order:

1. `tickets/desk` takes a request for a sequence and gathers the requests of one turn of the event loop.
2. `tickets/issuer` chooses a lane: a ticket database, in turn, or another one after a failure.
3. `tickets/lane` draws with one statement for all that wait, and issues what may be issued.
4. `databases/database` sends the statement over a connection of the lane's life.
5. The engine's session (`databases/mysql`, `postgresql`, `sqlite`) draws, and the ids go back the same way.

A lane trusts what it knows only while its database's life and the ring's number are those that it was opened under.
`tickets/opening` opens it, `tickets/marks` keeps what is known of it on every database, and `tickets/probe` finds out
what is in sight: `tickets/agreement` decides on the ring, `tickets/level` makes databases level that come into sight.

Rooms, each importing only those below it: `commands`, `service` (the one wiring), `settings`, `tickets`, `databases`,
`kinds`, `errors`.
"""
