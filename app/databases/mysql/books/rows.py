"""Values from a database's rows, checked against what they can be. ValueError or TypeError where one is not.

A damaged table, or a server that is none of ours, answers with anything. What is read here is compared with tickets,
handed to other databases and put into SQL again, so nothing gets through that this server could not have written.
These functions run inside `MySQLConnection.understand`, which translates what they raise.
"""

import math
import re
from typing import Any

from app.common.sequences import TICKET_LIMIT, is_inner_mark, is_name, is_table_name
from app.databases.protocol import RELEASE, place_named

LARGEST_ID = 2**64 - 1
"""An unsigned BIGINT goes on above the largest ticket."""
_TOKEN = re.compile(r"[0-9A-Za-z_.:+-]{1,128}")
_KIND = re.compile(r"[0-9a-z_]{1,32}")
_PARAMETERS = re.compile(r'[0-9A-Za-z_ {}:,"-]{2,2000}')
_WORD = re.compile(r"[0-9a-f]{1,64}|")
_LIFE = re.compile(r"[0-9A-Za-z_.:-]{0,64}")
_CLAIMANT = re.compile(r"[0-9a-f]{0,64}")
_MOMENT = re.compile(r"[0-9]{1,20}(\.[0-9]{1,9})?|None")


def whole(value: Any, least: int = 0, most: int = TICKET_LIMIT) -> int:
    """A whole number between these two."""
    number = int(value)
    if number != value or not least <= number <= most:
        raise ValueError(value)
    return number


def next_id(value: Any) -> int:
    """A live counter. An unsigned BIGINT's goes on above the largest ticket, and what is said of the sequence must
    not: one past that ticket says that there is none left."""
    return min(whole(value, 0, LARGEST_ID), TICKET_LIMIT + 1)


def largest_id(value: Any) -> int:
    """The largest id in a row, as far as it can be a ticket; 0 where there is none, or somebody's negative one."""
    return min(max(0, whole(value, -TICKET_LIMIT - 1, LARGEST_ID)), TICKET_LIMIT)


def sequence_name(value: Any) -> str:
    """The name of somebody's sequence."""
    if not isinstance(value, str) or not is_name(value):
        raise ValueError(value)
    return value


def kind_name(value: Any) -> str:
    """The name of a kind of sequence, of this release or another."""
    return _matching(_KIND, value)


def parameters_text(value: Any) -> str:
    """A kind's parameters as they are put into SQL: they hold nothing that ends a literal."""
    return _matching(_PARAMETERS, value)


def claimant(value: Any) -> str:
    """The server that claimed a name."""
    return _matching(_CLAIMANT, value)


def table_name(value: Any) -> str:
    """The name of a sequence's table, somebody's or the server's own."""
    if not isinstance(value, str) or not is_table_name(value):
        raise ValueError(value)
    return value


def mark_name(value: Any) -> str:
    """A name that a mark can have: of a sequence, a lease or a bump."""
    if not isinstance(value, str) or not (is_name(value) or is_inner_mark(value)):
        raise ValueError(value)
    return value


def clock_of(rows: tuple[tuple[Any, ...], ...]) -> float:
    """A database server's time in seconds since 1970, from the row of `session_sql.CLOCK`."""
    seconds = float(rows[0][0])
    if not math.isfinite(seconds):
        raise ValueError(seconds)
    return seconds


def layout_of(rows: tuple[tuple[Any, ...], ...]) -> int:
    """The version of the server's own tables; 0 where they have none yet."""
    return whole(rows[0][0], 1) if rows else 0


def token(value: Any) -> str:
    """A mark's token: it is put into SQL again, on other databases too, so it holds nothing that ends a literal."""
    return _matching(_TOKEN, value)


def word(value: Any) -> str:
    """The word of a body of data; empty where the database has none."""
    return _matching(_WORD, value)


def life(value: Any) -> str:
    """The incarnation under which a body of data was taken in; empty where it was not."""
    return _matching(_LIFE, value)


def place(value: Any) -> str:
    """A host and port; empty where none is named."""
    if not isinstance(value, str) or (value and place_named(value) != value):
        raise ValueError(value)
    return value


def release(value: Any) -> str:
    """The release of a ticket server."""
    return _matching(RELEASE, value)


def moment(value: Any) -> str:
    """When a table was made, in seconds since the epoch, as it becomes part of a token; None where the engine does not
    say."""
    return _matching(_MOMENT, str(value))


def _matching(pattern: re.Pattern[str], value: Any) -> str:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise ValueError(value)
    return value
