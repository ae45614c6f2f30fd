"""Commands out of bytes. hiredis parses; what it cannot bound is bounded before it sees a byte.

An announced array or bulk string is memory that hiredis takes, or waits for, at once: it would hold 8 GB for the twelve
bytes `*1000000000`. So it gets whole commands only, each within the limits. One parser serves all connections: it keeps
nothing between two calls. It would keep an error for ever, so it gets nothing that it refuses.
"""

import re

import hiredis

LARGEST_BULK = 65_536
"""Bytes of one argument."""
LARGEST_COMMAND = 131_072
"""Bytes of one command."""
MOST_ARGUMENTS = 4_096
LONGEST_LINE = 4_096
"""Bytes of a command that is typed as a line: to parse it takes far longer than an array."""
LONGEST_NUMBER = 32
"""Bytes of a line that announces how much follows."""
STRANGERS_BULK = 4_096
STRANGERS_ARGUMENTS = 10
"""As above, before a client has shown the token that it needs: enough for AUTH and HELLO."""
AT_ONCE = 128
"""How many commands, or arguments of a larger one, are parsed at once."""

Command = list[bytes]


def _small_commands() -> "re.Pattern[bytes]":
    """Matches whole commands of up to 8 arguments of up to 99 bytes, every length in them being right."""

    def of(length: int) -> bytes:
        return rb"\r\n.{%d}\r\n" % length

    def beginning_with(digit: int) -> bytes:
        longer = [b"%d" % second + of(10 * digit + second) for second in range(10)] if digit else []
        return b"%d(?:%b)" % (digit, b"|".join([of(digit), *longer]))

    bulk = rb"\$(?:%b)" % b"|".join(map(beginning_with, range(10)))
    of_one_number = b"|".join(rb"%d\r\n(?:%b){%d}" % (count, bulk, count) for count in range(1, 9))
    return re.compile(rb"(?:\*(?:%b)){1,%d}" % (of_one_number, AT_ONCE), re.DOTALL)


_SMALL = _small_commands()
"""The commands that clients send for tickets. The parser bounds many of them in one go."""
_NUMBER = re.compile(rb"0|-?[1-9][0-9]*")
"""How much follows, as Redis and hiredis write and read it: both refuse `01` and `-0`."""
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}
_WORD = re.compile(rb'(?:"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'|([^\s"\']+))(?:\s+|$)', re.DOTALL)
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)


class ProtocolError(Exception):
    """Nothing that follows can be understood."""


class Incoming:
    """The bytes of one connection that no command has been made of yet.

    `trusted`: whether the larger limits hold for it.
    """

    def __init__(self) -> None:
        self.data = b""
        self.trusted = False
        self._begin = 0
        self._at = 0
        self._left = 0
        """Of a command that has not come whole: where to go on, and how many arguments are to come."""

    def __len__(self) -> int:
        return len(self.data) - self._begin

    def add(self, data: bytes) -> None:
        """More bytes have come."""
        if self._begin < len(self.data):
            self.data = self.data[self._begin :] + data
            self._at -= self._begin
        else:
            self.data, self._at = data, 0
        self._begin = 0

    def clear(self) -> None:
        """Nothing of it is wanted."""
        self.data, self._begin, self._at, self._left = b"", 0, 0, 0

    def take(self) -> list[Command] | None:
        """The next commands, which are none where what was taken is a part of one; None where nothing can be taken
        until more has come. Raises ProtocolError."""
        if not self._left:
            small = _SMALL.match(self.data, self._begin)
            if small is not None:
                self._begin = self._at = small.end()
                return _parsed(small[0])
        return self._take_one()

    def _take_one(self) -> list[Command] | None:
        if self._begin == len(self.data):
            return None
        if self.data[self._begin] != ord("*"):
            return self._take_line()
        if not self._left:
            count = self._number(self._begin, b"*")
            if count is None:
                return None
            if count <= 0:  # an empty command; Redis answers nothing
                self._begin = self._at
                return []
            self._left = count
        return self._take_large()

    def _take_large(self) -> list[Command] | None:
        """The command whose arguments are being passed over, when all of them have come."""
        if not self._take_arguments():
            self._check_size(len(self.data))
            return None
        if self._left:
            return []
        whole, self._begin = self.data[self._begin : self._at], self._at
        return _parsed(whole)

    def _take_arguments(self) -> bool:
        """Pass over the next arguments that have come; false where the next one has not. `_at` is behind them."""
        data = self.data
        for _ in range(min(self._left, AT_ONCE)):
            at = self._at
            size = self._number(at, b"$")
            if size is None:
                return False
            end = self._at + size + 2
            self._check_size(end)
            if len(data) < end:
                self._at = at
                return False
            if data[end - 2 : end] != b"\r\n":
                raise ProtocolError("expected CRLF after a bulk string")
            self._at = end
            self._left -= 1
        return True

    def _check_size(self, end: int) -> None:
        if end - self._begin > LARGEST_COMMAND:
            raise ProtocolError("too big command")

    def _number(self, begin: int, sign: bytes) -> int | None:
        """The number that a line announces, and `_at` at the line's end; None if the line has not come whole."""
        data, is_array = self.data, sign == b"*"
        if begin == len(data):
            return None
        if data[begin : begin + 1] != sign:
            shown = chr(data[begin]) if 32 <= data[begin] < 127 else "?"
            raise ProtocolError(f"expected '$', got '{shown}'")
        end = data.find(b"\r\n", begin, begin + LONGEST_NUMBER)
        if end < 0:
            if len(data) - begin >= LONGEST_NUMBER:
                raise ProtocolError(f"too big {'mbulk' if is_array else 'bulk'} count string")
            return None
        digits = data[begin + 1 : end]
        number = int(digits) if _NUMBER.fullmatch(digits) else None
        if is_array:
            if number is None or number > MOST_ARGUMENTS:
                raise ProtocolError("invalid multibulk length")
            if number > STRANGERS_ARGUMENTS and not self.trusted:
                raise ProtocolError("unauthenticated multibulk length")
        else:
            if number is None or not 0 <= number <= LARGEST_BULK:
                raise ProtocolError("invalid bulk length")
            if number > STRANGERS_BULK and not self.trusted:
                raise ProtocolError("unauthenticated bulk length")
        self._at = end + 2
        return number

    def _take_line(self) -> list[Command] | None:
        """A command that was typed."""
        data, begin = self.data, self._begin
        end = data.find(b"\n", max(begin, self._at))
        if (end if end >= 0 else len(data)) - begin > LONGEST_LINE:
            raise ProtocolError("too big inline request")
        if end < 0:
            self._at = len(data)
            return None
        self._begin = self._at = end + 1
        words = split_line(data[begin:end])
        return [words] if words else []


def split_line(line: bytes) -> Command:
    """The words of a line, which may be quoted as in a shell. Raises ProtocolError."""
    if b'"' not in line and b"'" not in line:
        return line.split()
    words: Command = []
    at, line = 0, line.strip()
    while at < len(line):
        word = _WORD.match(line, at)
        if word is None:
            raise ProtocolError("unbalanced quotes in request")
        double, single, plain = word.groups()
        if double is not None:
            words.append(_ESCAPE.sub(_unescaped, double))
        elif single is not None:
            words.append(single.replace(b"\\'", b"'"))
        else:
            words.append(plain)
        at = word.end()
    return words


def _unescaped(match: "re.Match[bytes]") -> bytes:
    char: bytes = match[1]
    return bytes([int(char[1:], 16)]) if len(char) == 3 else _ESCAPED.get(char, char)


class Parser:
    """hiredis. Its reader repeats the first error that it has met for whatever it is fed, so it is replaced then."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()

    def commands(self, whole: bytes) -> list[Command]:
        """The commands in these bytes, which hold nothing else. Raises ProtocolError."""
        take = self._reader.gets
        commands: list[Command] = []
        try:
            self._reader.feed(whole)
            while command := take():
                commands.append(command)
        except hiredis.HiredisError as error:
            self._reader = hiredis.Reader()
            raise ProtocolError("the command cannot be read") from error
        return commands


_parsed = Parser().commands
