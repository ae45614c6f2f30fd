"""Names, widths and ceilings of sequences.

`validated` is the only gate between a request and an SQL identifier: a name that has passed it holds ASCII letters,
digits and `_` alone and starts with a letter, so it cannot name one of the server's own tables (they begin with `_`).

Inner sequences are the server's own: a table whose name is `_` and digits, with marks like any other. A release that
does not know of them takes their tables for none of its business.
"""

import hashlib
import re
from enum import IntEnum

from app.common.errors import InvalidRequest

NAME_PATTERN = r"[A-Za-z][A-Za-z0-9_]{0,63}"
_NAME = re.compile(NAME_PATTERN)
_INNER_NAME = re.compile(r"_[0-9]{1,40}")
_INNER_MARK = re.compile(r"_[0-9a-z_]{1,40}")
_COUNTER_BYTES = 12
_LEASE = "_worker_"
_BUMP = "_bump_"

TICKET_LIMIT = 2**63 - 1
"""No ticket is ever larger, whatever its column holds: it has to fit a signed 64-bit integer everywhere."""


class Width(IntEnum):
    """How wide a sequence is, in bits: as its id column, INT or BIGINT, or as the integers that JavaScript can hold."""

    INT = 32
    JAVASCRIPT = 53
    BIGINT = 64


def is_name(text: str) -> bool:
    """Whether `text` can name a sequence."""
    return _NAME.fullmatch(text) is not None


def validated(name: str) -> str:
    """Return `name` if it can name a sequence; raise InvalidRequest, saying what is required, if it cannot."""
    if not is_name(name):
        raise InvalidRequest("a sequence's name is 1 to 64 letters, digits and underscores, a letter first")
    return name


def folded(name: str) -> str:
    """The name as a database has it that folds names to lower case; one with other letters is left for `validated`."""
    return name.lower() if name.isascii() else name


def is_inner_name(text: str) -> bool:
    """Whether `text` can name an inner sequence."""
    return _INNER_NAME.fullmatch(text) is not None


def is_table_name(text: str) -> bool:
    """Whether `text` can name the table of a sequence, somebody's or the server's own."""
    return is_name(text) or is_inner_name(text)


def is_inner_mark(text: str) -> bool:
    """Whether `text` can name what only servers that know inner sequences keep a mark of: one of those, or a lease."""
    return _INNER_MARK.fullmatch(text) is not None


def counter_table(sequence: str) -> str:
    """The inner sequence that holds the counter of this sequence, for kinds that count apart from their ids.

    It does not contain the sequence's name. Names that differ, by case too, have counters that differ.
    """
    digest = hashlib.sha256(sequence.encode()).digest()[:_COUNTER_BYTES]
    return f"_{int.from_bytes(digest)}"


def lease_name(worker: int) -> str:
    """The name that the lease's mark of a worker number has in place of a sequence."""
    return f"{_LEASE}{worker}"


def number_leased(name: str) -> int | None:
    """The worker number of a lease's name; None where it is the name of anything else."""
    return int(name.removeprefix(_LEASE)) if name.startswith(_LEASE) else None


def bump_name(sequence: str) -> str:
    """The name, in place of a sequence, of the mark that records how far this sequence was bumped."""
    return f"{_BUMP}{counter_table(sequence).lstrip('_')}"


def is_bump_name(name: str) -> bool:
    """Whether a mark of this name records how far a sequence was bumped."""
    return name.startswith(_BUMP)


def ceiling_of(width: Width, *, unsigned: bool) -> int:
    """The largest ticket that a sequence of this width can have, in a column that is `unsigned` or not."""
    bits = int(width) if unsigned or width is Width.JAVASCRIPT else int(width) - 1
    return min((1 << bits) - 1, TICKET_LIMIT)
