"""Handing out tickets: the rules, and where each of them stands.

A *lane* is one sequence on one ticket database, as one server draws it; servers that draw from it side by side share
its rows in the notebooks. A lane trusts what it knows only while its database's life and the ring's number are those
that it was opened under. Otherwise it goes above everything that is known of it; and what is known of it is kept on
every ticket database. A database that was restarted, restored, emptied or replaced has another life, so this one rule
covers all of them.

Words: the *life* of a database changes whenever its data may have gone back unseen. The *birth* of a counter changes
when its table is made anew. A *tenure* is a life, a birth and a random word: what a lane was opened under. A *limit* is
the largest id that a lane may issue. *Issued*, in a row, is a number that a counter has to have reached if the lane is
to be adopted. A *floor* is a number at or below which no offset gives an id any more. A database is *in sight* of a
server if its last look reached it and found it in the ring, and nothing has failed since. A lane is *sure* if all
databases of the ring were in sight when it was opened. It is *unprotected* while it is not sure, or while no other
database is in sight.

1. Draw over a connection of the lane's life, from the counter of its birth, one statement of a lane at a time. Drop
   what is not above the lane's highest, or comes after the lane has closed (`lane`).
2. Issue an id at or below the limit, and only while every database was looked at not long ago, whether it answered or
   not. The limit rises by a mark on every database in sight. A database that comes into sight ends all limits (`marks`,
   `lane`).
3. Say which lanes are unprotected. A lane that can become sure closes (`lane`, `sight.keeps`).
4. Open a lane: adopt it if every row is of one tenure of this life and birth. Else raise the counter above every limit
   and floor, and replace the rows, each only if it still is what was read (`opening`).
5. Make databases level when one comes into sight, and again three seconds later: each row takes the largest limit, and
   loses its tenure if that has another one. Until then the next database must not go back (`level`).
6. Agree on the ring record before anything is drawn: which body of data is in use at which offset. A new body is taken
   in with the next number, written last on itself (`agreement` decides, the probe writes).
7. Look at each database again and again, and write a heartbeat: which lives this server uses. As long as that heartbeat
   moves, no other server uses another life of the same data, or other data at that offset (`probe`, `heartbeats`).
8. Set a limit ahead by ten seconds of the lane's rate, never more than a sixteenth of what is left (`step`, `stamps`).
9. Bump: write a floor on every database, then its number, then raise the counters. Answer once every live server has
   read the floor (`floors`).
10. While the ring is being changed to another increment, nobody draws and no mark is taken (`sight.stamp`).

Why no ticket comes twice: a server issues an id only at or below a limit that stood on every database in sight. The
server that draws from other data at that offset begins above the largest limit that any database has. A server that was
left behind cannot raise its limit, because the tenure, or the ring's number, is another one by then.
"""
