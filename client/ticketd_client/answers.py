"""What servers answer, read with suspicion: what breaks a rule is no answer.

A ticket that is handed out twice costs more than one that nobody gets. So an answer that cannot be right is refused
whole, by name, and another URL is asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Union

Ticket = Union[int, str]
"""An id: a string where it is longer than 63 bits."""

LARGEST_ID = 2**63 - 1
LARGEST_BLOCK = 10_000
LARGEST_COUNT = 1_000
LARGEST_INCREMENT = 65_535
"""A database's `auto_increment_increment` is 16 bits wide, and a block spans no more than that."""

_LONG_ID = re.compile(r"[0-9A-Za-z-]{24,36}")


class AttemptFailed(Exception):
    """One URL did not do it: it is down, slow, lies, or says "later". Another one may.

    `retry_after`: seconds for which it wants to be left alone.
    """

    def __init__(self, says: str, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(says)
        self.says = says
        self.status = status
        self.retry_after = retry_after


class Block(NamedTuple):
    """The tickets `first + i * step`, for i below `size`."""

    first: int
    step: int
    size: int

    @property
    def last(self) -> int:
        return self.first + (self.size - 1) * self.step

    @property
    def ids(self) -> range:
        return range(self.first, self.last + 1, self.step)


def quoted(text: object, longest: int = 60) -> str:
    """Something that came from a server, for a message: on one line, printable, cut."""
    return shown(repr(text), longest)


def shown(text: str, longest: int = 300) -> str:
    """A server's own words: on one line, printable, cut."""
    line = " ".join(text.split())
    line = "".join(sign if sign.isprintable() else "?" for sign in line)
    return line if len(line) <= longest else line[:longest] + "…"


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body. Raises AttemptFailed."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):  # a number of 5,000 digits is a ValueError, too
        raise AttemptFailed("did not answer with JSON") from None
    if not isinstance(found, dict):
        raise AttemptFailed("did not answer with a JSON object")
    return found


def read_block(answer: dict[str, Any], sequence: str, size: int) -> Block:
    """The block of an answer over HTTP. Raises AttemptFailed."""
    _of_this(answer, sequence)
    first = answer.get("first")
    if type(first) is not int:
        raise AttemptFailed(f"gave a block that begins with {quoted(first)}")
    if answer.get("first_str") != str(first):
        raise AttemptFailed(f"gave a block whose first is {quoted(first)} and whose first_str {_str(answer, 'first')}")
    return block_of(first, answer.get("step"), answer.get("size"), size)


def block_of(first: object, step: object, size: object, wanted: int) -> Block:
    """A block of these numbers, if it can be one. Raises AttemptFailed."""
    if type(size) is not int or size != wanted:
        raise AttemptFailed(f"gave a block of {quoted(size)} where {wanted} were asked for")
    if type(step) is not int or step < 1 or step * size > LARGEST_INCREMENT:
        raise AttemptFailed(f"gave a block of {size} with a step of {quoted(step)}")
    if type(first) is not int or first < 1:
        raise AttemptFailed(f"gave a block that begins with {quoted(first)}")
    block = Block(first, step, size)
    if block.last > LARGEST_ID:
        raise AttemptFailed("gave a block with ids above 2^63 - 1")
    return block


def read_ticket(answer: dict[str, Any], sequence: str) -> list[Ticket]:
    """The one ticket of an answer over HTTP, in a list. Raises AttemptFailed."""
    if "id" not in answer:
        raise AttemptFailed("did not answer with 1 tickets")
    _of_this(answer, sequence)
    return tickets_of([answer["id"]], [answer.get("id_str")], 1)


def read_tickets(answer: dict[str, Any], sequence: str, count: int) -> list[Ticket]:
    """The tickets of an answer over HTTP. Raises AttemptFailed."""
    ids, strings = answer.get("ids"), answer.get("ids_str")
    if not isinstance(ids, list) or not isinstance(strings, list) or answer.get("count") != count:
        raise AttemptFailed(f"did not answer with {count} tickets")
    _of_this(answer, sequence)
    return tickets_of(ids, strings, count)


def read_sequence(answer: dict[str, Any], sequence: str) -> dict[str, Any]:
    """The description of a sequence. Its server may have folded the name to lower case. Raises AttemptFailed."""
    name = answer.get("sequence")
    if not isinstance(name, str) or name.lower() != sequence.lower():
        raise AttemptFailed(f"answered for the sequence {quoted(name)}")
    return answer


def tickets_of(ids: Sequence[object], strings: Sequence[object], count: int) -> list[Ticket]:
    """These as tickets, if they can be. Raises AttemptFailed."""
    if len(ids) != count or len(strings) != count:
        raise AttemptFailed(f"did not answer with {count} tickets")
    found: list[Ticket] = []
    for given, string in zip(ids, strings):
        if type(given) is int and 0 <= given <= LARGEST_ID:
            ticket: Ticket = given
        elif isinstance(given, str) and _LONG_ID.fullmatch(given):
            ticket = given
        else:
            raise AttemptFailed(f"gave {quoted(given)} for a ticket")
        if string != str(ticket):
            raise AttemptFailed(f"gave a ticket that is {quoted(given)} and, as a string, {quoted(string)}")
        found.append(ticket)
    if len(set(found)) != count:
        raise AttemptFailed("gave a ticket twice in one answer")
    return found


def _of_this(answer: dict[str, Any], sequence: str) -> None:
    """Raises AttemptFailed where the answer is of another sequence. Databases that fold names answer in lower case."""
    name = answer.get("sequence")
    if name not in (sequence, sequence.lower()):
        raise AttemptFailed(f"answered for the sequence {quoted(name)}")


def _str(answer: dict[str, Any], key: str) -> str:
    return quoted(answer.get(f"{key}_str"))
