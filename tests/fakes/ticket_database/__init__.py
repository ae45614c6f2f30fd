"""Ticket databases in memory, with a MySQL server's arithmetic and every fault, by name.

`FakeServer` is the database: tables with counters, rows and columns that end, a ledger, an incarnation. Several ticket
servers share it. `FakeTicketDatabase` is what one ticket server holds of it: its connections, its latency, its timeout.

A statement goes out, is executed at one moment, and its answer comes back; all the faults act at one of these three
points. Once it is out it is the server's: it is executed though the client stands still, has given up or was killed,
and its answer lies there until the client's event loop looks. So all of this is for a `VirtualLoop`. Nothing here waits
for real time: with no latency set a statement lets other tasks run twice, and no more.
"""

from tests.fakes.ticket_database.client import FakeTicketDatabase
from tests.fakes.ticket_database.connections import TIMEOUT
from tests.fakes.ticket_database.failing import FailingDraws
from tests.fakes.ticket_database.rows import RowTicketDatabase, client_of
from tests.fakes.ticket_database.server import TRUE_TIME, FakeServer
from tests.fakes.ticket_database.tables import FakeState, FakeTable

__all__ = [
    "TIMEOUT",
    "TRUE_TIME",
    "FailingDraws",
    "FakeServer",
    "FakeState",
    "FakeTable",
    "FakeTicketDatabase",
    "RowTicketDatabase",
    "client_of",
]
