"""Commands out of bytes. Nothing is kept of what a client announces: only of what it has sent, within limits.

hiredis takes the memory that an array announces at once: 8 GB for the twelve bytes `*1000000000`.
"""

import re
from functools import lru_cache

LARGEST = 4_096  # bytes of one command
MOST_WORDS = 512
LONGEST_LINE = 1_024  # bytes of an inline command, or of a line that announces how much follows

Command = list[bytes]

_ROW = re.compile(rb"(\*2\r\n\$4\r\n(?i:INCR)\r\n\$([1-9][0-9]?)\r\n([A-Za-z0-9_]+)\r\n)(?:\1){0,127}")


class ProtocolError(Exception):
    """Nothing that follows can be understood."""


def _next_row(data: bytes, at: int) -> tuple[bytes, int, int] | None:
    found = _ROW.match(data, at)
    if found is None or int(found[2]) != len(found[3]):
        return None
    return found[3], len(found[0]) // len(found[1]), found.end()


@lru_cache(2_048)
def only_row(read: bytes) -> tuple[str, int] | None:
    """Return the sequence and the number of INCR if these bytes are a row and no more. Clients repeat themselves."""
    row = _next_row(read, 0)
    return (row[0].decode(), row[1]) if row and row[2] == len(read) else None


def next_command(data: bytes, at: int) -> tuple[Command, int, int] | None:
    """Return the next command, how many times it is there, and the end; None if more bytes are needed.

    The command is empty for an empty line. Raises ProtocolError.
    """
    row = _next_row(data, at)
    if row:
        return [b"INCR", row[0]], row[1], row[2]
    begin, found = at, _line(data, at)
    if found is None:
        return None
    line, at = found
    if not line.startswith(b"*"):
        return line.split(), 1, at
    command: Command = []
    for _ in range(_number(line, b"*", MOST_WORDS)):
        found = _line(data, at)
        if found is None:
            return None
        line, at = found
        end = at + _number(line, b"$", LARGEST - (at - begin))
        if data[end : end + 2] not in (b"\r\n", b"\r", b""):
            raise ProtocolError("invalid bulk length")
        if len(data) < end + 2:
            return None
        command.append(data[at:end])
        at = end + 2
    return command, 1, at


def _line(data: bytes, at: int) -> tuple[bytes, int] | None:
    end = data.find(b"\n", at, at + LONGEST_LINE)
    if end < 0 and len(data) - at >= LONGEST_LINE:
        raise ProtocolError("too long line")
    return None if end < 0 else (data[at:end].removesuffix(b"\r"), end + 1)


def _number(line: bytes, sign: bytes, most: int) -> int:
    digits = line[1:]
    if line[:1] != sign or not digits.isdigit() or int(digits) > most:
        raise ProtocolError(f"invalid {'multibulk' if sign == b'*' else 'bulk'} length")
    return int(digits)
