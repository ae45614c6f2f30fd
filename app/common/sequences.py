"""Names, widths and ceilings of sequences.

`validated` is the only gate between a request and an SQL identifier: a name that has passed it holds ASCII letters,
digits and `_` alone and starts with a letter, so it cannot name one of the server's own tables (they begin with `_`).
"""

import re
from enum import IntEnum

from app.common.errors import InvalidRequest

NAME_PATTERN = r"[A-Za-z][A-Za-z0-9_]{0,63}"
_NAME = re.compile(NAME_PATTERN)

TICKET_LIMIT = 2**63 - 1
"""No ticket is ever larger, whatever its column holds: it has to fit a signed 64-bit integer everywhere."""


class Width(IntEnum):
    """How wide a sequence's id column is: INT or BIGINT."""

    INT = 32
    BIGINT = 64


def is_name(text: str) -> bool:
    """Whether `text` can name a sequence."""
    return _NAME.fullmatch(text) is not None


def validated(name: str) -> str:
    """Return `name` if it can name a sequence; raise InvalidRequest, saying what is required, if it cannot."""
    if not is_name(name):
        raise InvalidRequest("a sequence's name is 1 to 64 letters, digits and underscores, a letter first")
    return name


def ceiling_of(width: Width, *, unsigned: bool) -> int:
    """The largest ticket that a column of this width can hold."""
    bits = int(width) if unsigned else int(width) - 1
    return min((1 << bits) - 1, TICKET_LIMIT)
