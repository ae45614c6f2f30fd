"""The ticket server: it hands out ids that never come twice, from two or more ticket databases.

The way of a ticket is plain calls, in this order:

1. `http/fast` and `http/cycle` read a request for a ticket, without FastAPI, or know its bytes already;
   `redis/connection` does so for the Redis protocol. Ids that are there already are given at once.
2. `tickets/desk` takes the request, finds the sequence, and answers what runs out of time.
3. `tickets/issuer` gathers the requests of one turn of the event loop, and chooses a lane: a ticket database, in turn,
   or another one after a failure.
4. `tickets/lane` draws with one statement for all that wait, and issues what may be issued.
5. `databases/database` sends the statement over a connection of the lane's life.
6. The engine's session (`databases/mysql`, `postgresql`, `redis`, `sqlite`) draws, and the ids go back the same way.

A lane trusts what it knows only while its database's life and the ring's number are those that it was opened under.
`tickets/opening` opens it, `tickets/marks` keeps what is known of it on every database, and `tickets/probe` finds out
what is in sight: `tickets/agreement` decides on the ring, `tickets/level` makes databases level that come into sight.

Rooms, each importing only those below it: `commands`, the command line; `server`, the process, and `doctor`, the
check-up; `http` and `redis`, the doors; `operations`, what operators see; `service`, the one wiring; `access`,
`settings`, `connections` and `log`; `tickets`, the rules; `databases`, the engines; `kinds`, what an id is
made of; `errors`.
"""
