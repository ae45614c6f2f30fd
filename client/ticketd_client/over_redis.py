"""A ticket server over the Redis protocol, RESP2."""

from __future__ import annotations

import re
from typing import Union

from ticketd_client import answers
from ticketd_client.answers import AttemptFailed, Block, Ticket
from ticketd_client.connections import Connection, Connections, Reader
from ticketd_client.errors import (
    Answer,
    InvalidRequest,
    NoSuchSequence,
    NotAllowed,
    SequenceConflict,
    SequenceExhausted,
    TicketError,
)
from ticketd_client.servers import Server

REFUSALS: dict[str, type[TicketError]] = {
    "NOAUTH": NotAllowed,
    "WRONGPASS": NotAllowed,
    "NOPERM": NotAllowed,
    "EXHAUSTED": SequenceExhausted,
    "no such sequence": NoSuchSequence,
}
"""What an error begins with that every server would give, without the word ERR."""
NOT_NOW = "max number of clients", "unknown command", "LOADING"
"""Another server may do better; of these the second is no ticket server, and the third one that starts."""

LONGEST_BULK = 100
"""Bytes of a bulk string, at most. The longest id has 36."""
LONGEST_LINE = 16_384
"""Bytes of an error, at most, and of any other line."""

_WHOLE = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_LENGTH = re.compile(rb"0|[1-9][0-9]{0,4}")

_Reply = Union[int, bytes, str, None, "list[int | bytes | None]"]
"""An integer, a bulk string, a simple string, nothing, or an array of the first, second and fourth."""


class RedisServer(Server):
    """See Server."""

    administers = False

    def __init__(self, url: str, host: str, port: int, *, token: str | None) -> None:
        self.url = url
        self.token = token
        self._connections = Connections((host, port), greet=self._greet if token else None)

    def take(self, sequence: str, count: int | None, key: int | None, deadline: float) -> list[Ticket]:
        """See Server."""
        if count is None and key is None:
            ids = [_ticket(self._ask(deadline, 1, "INCR", sequence))]
        else:
            wanted = count or 1
            with_key = () if key is None else ("KEY", key)
            found = self._ask(deadline, wanted, "TICKET.TAKE", sequence, "COUNT", wanted, *with_key)
            if not isinstance(found, list):
                raise AttemptFailed(f"did not answer with {wanted} tickets")
            ids = [_ticket(each) for each in found]
        return answers.tickets_of(ids, [str(each) for each in ids], count or 1)

    def take_block(self, sequence: str, size: int, deadline: float) -> Block:
        """See Server."""
        otherwise = InvalidRequest if size > 1 else SequenceConflict  # a block of one is never too large
        found = self._ask(deadline, 3, "TICKET.BLOCK", sequence, size, otherwise=otherwise)
        if not isinstance(found, list) or len(found) != 3:
            raise AttemptFailed("did not answer with a block")
        return answers.block_of(found[0], found[1], found[2], size)

    def look(self, deadline: float) -> None:
        """See Server."""
        self._ask(deadline, 0, "PING")

    def forget_connections(self) -> None:
        """See Server."""
        self._connections.forget()

    def close(self) -> None:
        """See Server."""
        self._connections.close()

    def _ask(self, deadline: float, most: int, *words: object, otherwise: type[TicketError] = InvalidRequest) -> _Reply:
        """What it answers, an array of `most` elements at most.

        `otherwise`: what to raise for an error that has no name of its own.
        """
        found = self._connections.exchange(lambda connection: _exchange(connection, deadline, most, words), deadline)
        if isinstance(found, _Error):
            raise self._error_of(found.says, otherwise)
        return found

    def _greet(self, connection: Connection, deadline: float) -> None:
        found, _ = _exchange(connection, deadline, 0, ("AUTH", self.token))
        if isinstance(found, _Error):
            raise self._error_of(found.says, NotAllowed)

    def _error_of(self, text: str, otherwise: type[TicketError]) -> Exception:
        text = text[4:] if text.startswith("ERR ") else text
        says = self.hide(answers.shown(text) or "an error")
        if text.startswith("TRYAGAIN"):
            return AttemptFailed(says, retry_after=1.0)  # as over HTTP
        if text.startswith(NOT_NOW):
            return AttemptFailed(says)
        kind = next((kind for begins, kind in REFUSALS.items() if text.startswith(begins)), otherwise)
        kind = SequenceConflict if "no blocks" in text else kind
        return kind(f"{self.url}: {says}", [Answer(self.url, says)])


class _Error:
    """What the server refused with."""

    def __init__(self, says: str) -> None:
        self.says = says


def _exchange(
    connection: Connection, deadline: float, most: int, words: tuple[object, ...]
) -> tuple[_Reply | _Error, bool]:
    """One command and its answer. Raises OSError, AttemptFailed."""
    parts = [str(word).encode() for word in words]
    request = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
    room = LONGEST_LINE + most * (LONGEST_BULK + 10)
    reader = connection.ask(request, deadline, room)
    reply = _read(reader, most)
    return reply, reader.is_empty()


def _read(reader: Reader, most: int) -> _Reply | _Error:
    sign, rest = _line(reader)
    if sign == b"-":
        return _Error(rest.decode("utf-8", "replace"))
    if sign == b"+":
        return rest.decode("utf-8", "replace")
    if sign != b"*":
        return _element(reader, sign, rest)
    if not _LENGTH.fullmatch(rest) or int(rest) > most:
        raise AttemptFailed(f"gave an array of {answers.quoted(rest)} elements")
    return [_element(reader, *_line(reader)) for _ in range(int(rest))]


def _element(reader: Reader, sign: bytes, rest: bytes) -> int | bytes | None:
    """An integer or a bulk string."""
    if sign == b":" and _WHOLE.fullmatch(rest):
        return int(rest)
    if sign == b"$" and rest == b"-1":
        return None
    if sign != b"$" or not _LENGTH.fullmatch(rest):
        raise _malformed()
    length = int(rest)
    if length > LONGEST_BULK:
        raise AttemptFailed(f"gave a string of {length} bytes")
    found = reader.read(length + 2)
    if len(found) < length + 2:
        raise _cut_off()
    if found[length:] != b"\r\n":
        raise _malformed()
    return found[:length]


def _line(reader: Reader) -> tuple[bytes, bytes]:
    """The next line: its first byte, and the rest without its end."""
    line = reader.readline(LONGEST_LINE)
    if not line:
        raise ConnectionResetError("Remote end closed connection without response")
    if not line.endswith(b"\n") and len(line) < LONGEST_LINE:
        raise _cut_off()
    if not line.endswith(b"\r\n"):
        raise _malformed()
    return line[:1], line[1:-2]


def _malformed() -> AttemptFailed:
    return AttemptFailed("did not answer in the Redis protocol")


def _cut_off() -> AttemptFailed:
    return AttemptFailed("gave an answer that is cut off")


def _ticket(value: object) -> object:
    """An integer, or a bulk string: a number of up to 19 digits, or an id of more than 63 bits."""
    if isinstance(value, str):
        raise AttemptFailed(f"gave {answers.quoted(value)} for a ticket")
    if isinstance(value, bytes):
        text = value.decode("latin-1")
        return int(text) if len(text) <= 19 and text.isascii() and text.isdigit() and str(int(text)) == text else text
    return value
