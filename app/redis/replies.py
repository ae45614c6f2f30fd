"""Replies as bytes, in RESP2 and RESP3, and errors as Redis words them."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from app.common import errors
from app.tickets.requests.request import Ids

OK = b"+OK\r\n"
QUEUED = b"+QUEUED\r\n"
EMPTY_ARRAY = b"*0\r\n"
LONGEST_ERROR = 500
"""Characters. An error may repeat what was sent, so it is cut here."""

CODES: dict[type[errors.TicketError], str] = {
    errors.SequenceExhausted: "EXHAUSTED",
    errors.Unavailable: "TRYAGAIN",
    errors.TicketDatabaseError: "TRYAGAIN",
}
"""The first word of the reply for each of our errors; ERR for all others."""


def error(code: str, text: str) -> bytes:
    """An error: one line, whatever is in the text."""
    line = "".join([char if char.isprintable() else "?" for char in text[:LONGEST_ERROR]])
    return f"-{code} {line}\r\n".encode(errors="replace")


def refusal(sequence: str, reason: errors.TicketError) -> bytes:
    """The reply to a command that gets no tickets of the sequence."""
    if isinstance(reason, errors.UnknownSequence):
        return error("ERR", f"no such sequence {sequence}; PUT /sequence/{sequence} over HTTP makes it")
    code = next((CODES[kind] for kind in type(reason).__mro__ if kind in CODES), "ERR")
    if isinstance(reason, errors.TicketDatabaseError):
        return error(code, "the ticket databases cannot do it now")
    return error(code, str(reason))


def shown(argument: bytes, longest: int = 128) -> str:
    """The client's words as an error repeats them."""
    return argument[:longest].decode(errors="replace")


def bulk(data: bytes | str) -> bytes:
    """A bulk string."""
    data = data.encode() if isinstance(data, str) else data
    return b"$%d\r\n%b\r\n" % (len(data), data)


def integer(number: int) -> bytes:
    """An integer."""
    return b":%d\r\n" % number


def array(parts: Sequence[bytes]) -> bytes:
    """An array of replies."""
    return b"*%d\r\n%b" % (len(parts), b"".join(parts))


def mapping(parts: Mapping[str, bytes], version: int) -> bytes:
    """A map of replies; in RESP2, which has none, an array."""
    start = b"%%%d\r\n" % len(parts) if version == 3 else b"*%d\r\n" % (2 * len(parts))
    return start + b"".join([bulk(key) + value for key, value in parts.items()])


def null(version: int) -> bytes:
    """Nothing."""
    return b"_\r\n" if version == 3 else b"$-1\r\n"


def single_tickets(ids: Ids) -> bytes:
    """A reply for each id: an integer, or a bulk string where it is longer than 63 bits."""
    if type(ids[0]) is int:
        return _integers(len(ids)) % tuple(ids)
    return b"".join([bulk(str(id_)) for id_ in ids])


def ticket_list(ids: Ids) -> bytes:
    """An array of ids as bulk strings."""
    parts = [f"${len(text)}\r\n{text}\r\n" for text in map(str, ids)]
    return f"*{len(parts)}\r\n{''.join(parts)}".encode()  # encoded once: nothing interrupts a list of a thousand


@lru_cache(maxsize=1024)
def _integers(count: int) -> bytes:
    return b":%d\r\n" * count
