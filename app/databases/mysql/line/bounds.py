"""How large an answer may be, by what was asked for.

A server that is none of ours, or whoever stands between, may send without end, and what it says of the size of a packet
is 16 MiB at its first four bytes. So nothing is collected that no statement of ours could be answered with.
"""

from typing import NamedTuple

READ_COST = 256
"""What each read of the driver's costs beside its bytes: about what the objects made of it take. There are two for a
packet, its head and its body."""
_ROW = 2 * READ_COST + 384
"""What a row of a listing may cost: names have 64 letters, a mark's token 128."""
_LONGEST_PACKET = 16 * 1024
"""Of a row, the description of a column, an error: the longest is a ring record of 8,000 letters."""


class Bound(NamedTuple):
    """The most bytes that one packet of an answer may hold, and the most that its rows may cost together."""

    packet: int
    rows: int


HEAD = 64 * 1024
"""What may come before the rows, or instead of them: the descriptions of their columns, OK, an error. And what a server
may say until somebody is logged in."""
SMALL = Bound(_LONGEST_PACKET, HEAD)
"""Of an answer of a few rows, or none."""
DEFINITION = Bound(4 * 1024 * 1024, 4 * 1024 * 1024 + HEAD)
"""Of a table's definition, which may have thousands of columns and partitions."""

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
