"""How large an answer to each kind of statement may be.

A foreign server, or an attacker on the way, may send without end, and the first four bytes of a packet may announce
16 MiB. So the server collects only as much as an answer to its own statement can have.
"""

from typing import NamedTuple

READ_COST = 256
"""The cost of each read of the driver beside its bytes: about what the objects made of it take. There are two for a
packet, its head and its body."""
_ROW = 2 * READ_COST + 384
"""The most that a row of a listing costs: names have 64 letters, a mark's token 128."""
_LONGEST_PACKET = 16 * 1024
"""Bytes of a packet with a row, a column's description or an error: the longest is a ring record of 8,000 letters."""


class Bound(NamedTuple):
    """The most bytes that one packet of an answer may hold, and the most that its rows may cost together."""

    packet: int
    rows: int


HEAD = 64 * 1024
"""What may come before the rows, or instead of them: the descriptions of their columns, OK, an error. And what a server
may say until the login is done."""
SMALL = Bound(_LONGEST_PACKET, HEAD)
"""The bound of an answer of a few rows, or none."""
DEFINITION = Bound(4 * 1024 * 1024, 4 * 1024 * 1024 + HEAD)
"""The bound of a table's definition, which may have thousands of columns and partitions."""

MOST_TABLES = 50_000
"""A database that lists more of them cannot be used."""
MOST_MARKS = 2 * MOST_TABLES
MOST_CONNECTIONS = 10_000
MOST_SERVERS = 10_000
"""Lives of ticket servers that ended without a word, of the last day, included."""
MOST_BODIES = 1_000
"""Rows of a ring record: one for each offset that was ever listed, and three more."""
MOST_USES = 2_000
"""Announcements that stand: of each ticket server, one for each database that it draws from."""
MOST_KEYS = 65
"""Of one table: MySQL allows for 64 beside the primary one."""


LARGEST_STATEMENT = 256 * 1024
"""Bytes: no statement that is sent, and none of several that are sent together, is larger. The largest ones supersede
200 marks of the longest names and tokens."""


def listing(rows: int) -> Bound:
    """Of so many rows at most."""
    return Bound(SMALL.packet, SMALL.rows + rows * _ROW)
