"""Replies as bytes, in RESP2 and RESP3, and errors as Redis words them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app import errors

OK = b"+OK\r\n"
_WORDS: Mapping[type[errors.TicketError], str] = {
    errors.Unauthenticated: "NOAUTH",
    errors.Exhausted: "EXHAUSTED",
    errors.Unavailable: "TRYAGAIN",
    errors.DatabaseError: "TRYAGAIN",
}


def word_of(reason: errors.TicketError) -> str:
    """Return the first word of the reply for an error."""
    return next((_WORDS[kind] for kind in type(reason).__mro__ if kind in _WORDS), "ERR")


def error(word: str, text: str) -> bytes:
    """Return an error: one line of bounded length, whatever is in the text."""
    line = "".join([char if char.isprintable() else "?" for char in text[:500]])
    return f"-{word} {line}\r\n".encode(errors="replace")


def refusal(sequence: str, reason: errors.TicketError) -> bytes:
    """Return the reply to a command that gets no tickets of a sequence."""
    if isinstance(reason, errors.UnknownSequence):
        return error("ERR", f"no such sequence {sequence}; PUT /sequence/{sequence} over HTTP makes it")
    is_inner = isinstance(reason, errors.DatabaseError)  # its message may be an operator's affair only
    return error(word_of(reason), "no ticket database can draw now" if is_inner else str(reason))


def shown(argument: bytes) -> str:
    """Return a client's words as an error repeats them."""
    return argument[:128].decode(errors="replace")


def bulk(data: bytes | str) -> bytes:
    """Return a bulk string."""
    data = data.encode() if isinstance(data, str) else data
    return b"$%d\r\n%b\r\n" % (len(data), data)


def array(parts: Sequence[bytes | str]) -> bytes:
    """Return an array of bulk strings. A command is one, too."""
    return b"*%d\r\n" % len(parts) + b"".join(map(bulk, parts))


def mapping(parts: Mapping[str, bytes], version: int) -> bytes:
    """Return a map of replies; RESP2 has none, so it is an array there."""
    start = b"%%%d\r\n" % len(parts) if version == 3 else b"*%d\r\n" % (2 * len(parts))
    return start + b"".join([bulk(key) + value for key, value in parts.items()])


def singles(ids: Sequence[int | str]) -> bytes:
    """Return a reply for each id: an integer, or a bulk string if the id is longer than 63 bits."""
    return b":%d\r\n" * len(ids) % tuple(ids) if type(ids[0]) is int else b"".join(map(bulk, map(str, ids)))


OF: Mapping[str, Callable[[Any], bytes]] = {
    "INCR": singles,
    "TICKET.TAKE": lambda ids: array([str(each) for each in ids]),
    "TICKET.BLOCK": lambda block: b"*3\r\n" + singles(block),
}
"""What makes a command's reply of its ids."""
