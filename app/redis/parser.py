"""Commands out of bytes. Nothing is kept of what a client announces: only of what it has sent, within limits.

hiredis takes the memory that an array announces at once: 8 GB for the twelve bytes `*1000000000`.
"""

import re
import shlex

LARGEST = 16_384
"""Bytes of one command."""
LARGEST_OF_STRANGERS = 4_096
"""The same before a client has shown the token that it needs: enough for AUTH and HELLO."""
MOST_ARGUMENTS = 512
LONGEST_LINE = 1_024
"""Bytes of an inline command. Taking one apart costs far more than an array does."""
LONGEST_NUMBER = 32
"""Bytes of a line that announces how much follows."""
MOST_IN_ROW = 128

Command = list[bytes]

_NUMBER = re.compile(rb"0|-?[1-9][0-9]*")
_ROW = re.compile(
    rb"(\*2\r\n\$4\r\n(?i:INCR)\r\n\$([1-9][0-9]?)\r\n([A-Za-z0-9_]+)\r\n)(?:\1){0,%d}" % (MOST_IN_ROW - 1)
)


class ProtocolError(Exception):
    """Nothing that follows can be understood."""


class Incoming:
    """The bytes of one connection that no command has been made of yet. largest: how many a command may have."""

    def __init__(self) -> None:
        self.largest = LARGEST
        self._data, self._at, self._missing, self._size = b"", 0, 0, 0
        self._words: Command = []

    def __len__(self) -> int:
        return len(self._data) - self._at

    @property
    def is_partial(self) -> bool:
        """Whether a command has begun and not come to its end."""
        return bool(self._missing) or self._at < len(self._data)

    def add(self, data: bytes) -> None:
        """More bytes have come."""
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0

    def clear(self) -> None:
        """Forget everything that has come."""
        self._data, self._at, self._missing, self._words = b"", 0, 0, []

    def row(self) -> tuple[bytes, int] | None:
        """Take what comes next if it is the same INCR, one or many times; return its sequence, and how many times."""
        found = None if self._missing else _ROW.match(self._data, self._at)
        if found is None or int(found[2]) != len(found[3]):
            return None
        self._at = found.end()
        return found[3], (self._at - found.start()) // len(found[1])

    def take(self) -> Command | None:
        """Return the next command, which is empty for an empty line; None if more bytes are needed.

        Raises ProtocolError.
        """
        if not self._missing:
            if self._at == len(self._data):
                return None
            if self._data[self._at] != ord("*"):
                return self._line()
            count = self._number("multibulk", MOST_ARGUMENTS)
            if count is None:
                return None
            self._missing, self._size, self._words = max(count, 0), 0, []
        while self._missing:
            word = self._argument()
            if word is None:
                return None
            self._words.append(word)
            self._missing -= 1
        words, self._words = self._words, []
        return words

    def _argument(self) -> bytes | None:
        data, begin = self._data, self._at
        if begin < len(data) and data[begin] != ord("$"):
            raise ProtocolError("expected '$'")
        size = self._number("bulk", self.largest - self._size)
        if size is None:
            return None
        start, end = self._at, self._at + size
        if size < 0 or data[end : end + 2] not in (b"\r\n", b"\r", b""):
            raise ProtocolError("invalid bulk length")
        if len(data) < end + 2:
            self._at = begin
            return None
        self._size, self._at = self._size + size, end + 2
        return data[start:end]

    def _number(self, what: str, largest: int) -> int | None:
        """Return the number that a line announces, and pass over the line; None if it has not come whole."""
        end = self._data.find(b"\r\n", self._at, self._at + LONGEST_NUMBER)
        if end < 0 and len(self) < LONGEST_NUMBER:
            return None
        digits = self._data[self._at + 1 : max(end, 0)]
        if not _NUMBER.fullmatch(digits) or int(digits) > largest:
            raise ProtocolError(f"invalid {what} length")
        self._at = end + 2
        return int(digits)

    def _line(self) -> Command | None:
        """Take a command that was typed; its words may be quoted as in a shell."""
        end = self._data.find(b"\n", self._at, self._at + LONGEST_LINE)
        if end < 0:
            if len(self) >= LONGEST_LINE:
                raise ProtocolError("too big inline request")
            return None
        line, self._at = self._data[self._at : end], end + 1
        if b'"' not in line and b"'" not in line:
            return line.split()
        try:
            return [word.encode("latin-1") for word in shlex.split(line.decode("latin-1"))]
        except ValueError as error:
            raise ProtocolError("unbalanced quotes in request") from error
