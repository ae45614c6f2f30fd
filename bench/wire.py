"""As much of MySQL's protocol as it takes to draw a ticket: text queries, OK, error and result packets."""

import struct
from dataclasses import dataclass

_OK, _ERROR = 0x00, 0xFF


def query(sql: str) -> bytes:
    """The packet of a text query, ready to be sent."""
    body = b"\x03" + sql.encode("ascii")
    return struct.pack("<I", len(body))[:3] + b"\x00" + body


def split(data: bytes) -> list[bytes] | None:
    """The payloads of these packets, or None while the last is incomplete."""
    payloads = []
    at, end = 0, len(data)
    while at < end:
        if end - at < 4:
            return None
        after = at + 4 + (data[at] | data[at + 1] << 8 | data[at + 2] << 16)
        if after > end:
            return None
        payloads.append(data[at + 4 : after])
        at = after
    return payloads


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one query: an error's code or 0, and the id that was drawn or read, or 0."""

    error: int
    number: int


def answer_to_replace(data: bytes) -> Answer | None:
    """An OK packet, with the id that the statement drew, or an error. None while incomplete."""
    payloads = split(data)
    if not payloads:
        return None
    first = payloads[0]
    if first[0] == _ERROR:
        return Answer(int.from_bytes(first[1:3], "little"), 0)
    if first[0] != _OK:
        raise ValueError(f"neither OK nor an error: {first[:20]!r}")
    _affected, at = _number(first, 1)
    return Answer(0, _number(first, at)[0])


def answer_to_select(data: bytes) -> Answer | None:
    """One row of one column, a number: column count, definition, EOF, row, EOF. None while incomplete."""
    payloads = split(data)
    if not payloads:
        return None
    if payloads[0][0] == _ERROR:
        return Answer(int.from_bytes(payloads[0][1:3], "little"), 0)
    if len(payloads) < 5:
        return None
    row = payloads[3]
    return Answer(0, int(row[1 : 1 + row[0]]))


def _number(payload: bytes, at: int) -> tuple[int, int]:
    """A length-encoded integer, and where it ends."""
    first = payload[at]
    if first < 0xFB:
        return first, at + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(payload[at + 1 : at + 1 + size], "little"), at + 1 + size
