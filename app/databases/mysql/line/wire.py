"""A packet out, OK packets in: the least that can stand between a draw and its id.

Every ticket waits for this, and the driver reads each answer through a stream: some twenty calls and seven objects for
eleven bytes. So the OK packets of draws are taken here as they arrive. Everything else goes on to the driver's stream,
errors included, with all that came before them.
"""

import asyncio
import socket
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache

_COM_QUERY = b"\x03"
_OK = 0
_LONGEST_OK = 1_000
"""Bytes: it ends in a sentence for people."""
_SHORTEST_OK = 11
_WAKES_AT = 4 * _SHORTEST_OK
"""Bytes of several answers before which this process is not woken, so that it does not wait again after each. Few
enough for an error in place of the second: behind the first OK packet a sentence of 20 characters reaches them. A
shorter one is read when the time is over, or when the server hangs up."""
_WAKES_AGAIN_AT = 2 * _SHORTEST_OK
"""As above, once some have come: any error of nine characters."""
_MORE_RESULTS_EXIST = 0x08
_WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}


def query(statements: str) -> bytes:
    """The packet that sends statements."""
    body = _COM_QUERY + statements.encode("ascii")
    return len(body).to_bytes(3, "little") + b"\x00" + body


known_query = lru_cache(maxsize=4096)(query)
"""As above, for a statement that is sent again and again."""


def id_in_ok(answer: bytes, number: int = 1, *, more: bool = False) -> int | None:
    """The id that a statement drew, 0 where it drew none; None where `answer` is anything but one whole OK packet.

    `number`: which packet of the answer it has to be; `more`: whether it has to say that others follow.

    Length (3 bytes), number, zero, rows, id, status (2), warnings (2), words for people. Rows and id are
    "length-encoded": below 251 one byte, else a byte that tells the width. Source: MySQL's documentation of its
    protocol, "OK_Packet".
    """
    size = len(answer)
    if size < 11 or int.from_bytes(answer[:3], "little") + 4 != size:
        return None
    if answer[3] != number or answer[4] != _OK or answer[5] > 250:
        return None
    id_, after = answer[6], 7
    if id_ > 250:
        width = _WIDTHS.get(id_)
        if width is None or size < 11 + width:
            return None
        after += width
        id_ = int.from_bytes(answer[7:after], "little")
    return id_ if bool(answer[after] & _MORE_RESULTS_EXIST) is more else None


Done = Callable[[Sequence[int] | None], None]


class Wire(asyncio.Protocol):
    """Between a connection's socket and the driver's stream. One packet of statements at a time."""

    def __init__(self, transport: asyncio.Transport, stream: asyncio.Protocol, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        # in TLS nobody can tell how many bytes of the socket are still to come
        may_wait = sys.platform == "linux" and transport.get_extra_info("ssl_object") is None
        self._socket = transport.get_extra_info("socket") if may_wait else None
        self._stream = stream
        self._loop = loop
        self._done: Done | None = None
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._answers = 1
        self._ids: list[int] = []
        self._heard = b""
        self._understood = 0

    def draw(self, packet: bytes, answers: int, seconds: float, done: Done) -> None:
        """Send statements that answer with so many OK packets, 255 at most; `done` gets the ids in them.

        Or None: the driver has the answer, or the end of it, or not all came in so many seconds. It is called once, and
        not before this has returned.
        """
        loop = self._loop
        self._done = done
        self._answers = answers
        self._until = loop.time() + seconds
        if self._timer is None:  # one for as many as there are until it goes off
            self._timer = loop.call_later(seconds, self._look_at_the_time)
        if self._transport.is_closing():
            loop.call_soon(self._leave_it_to_the_driver)
        else:
            if answers > 1:
                self._wake_at(min(answers * _SHORTEST_OK, _WAKES_AT))
            self._transport.write(packet)

    def _wake_at(self, size: int) -> None:
        """Have what comes wait in the socket until it is so many bytes, which are sure to come."""
        if self._socket is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def _look_at_the_time(self) -> None:
        self._timer = None
        if self._done is None:
            return
        rest = self._until - self._loop.time()
        if rest > 0:
            self._timer = self._loop.call_later(rest, self._look_at_the_time)
        else:
            self._leave_it_to_the_driver()

    def _leave_it_to_the_driver(self) -> None:
        done, self._done = self._done, None
        if self._answers > 1 and not self._transport.is_closing():
            self._wake_at(1)
        self._pass_on()
        if done is not None:
            done(None)

    def _pass_on(self) -> None:
        heard, self._heard, self._ids, self._understood = self._heard, b"", [], 0
        if heard:
            self._stream.data_received(heard)

    def data_received(self, data: bytes) -> None:
        done = self._done
        if done is None:
            self._stream.data_received(data)
            return
        if self._answers == 1:
            id_ = id_in_ok(data)
            if id_ is not None:
                self._done = None
                done((id_,))
                return
        self._heard += data
        if not self._understands():
            self._leave_it_to_the_driver()
        elif len(self._ids) == self._answers:
            ids = self._ids
            self._done, self._heard, self._ids, self._understood = None, b"", [], 0
            self._wake_at(1)
            done(ids)
        else:
            rest = len(self._heard) - self._understood
            left = (self._answers - len(self._ids)) * _SHORTEST_OK - rest
            self._wake_at(max(min(left, _WAKES_AGAIN_AT), 1))

    def _understands(self) -> bool:
        """Take the packets that are whole by now; false where one is not what it should be, or is one too many."""
        heard, ids = self._heard, self._ids
        while (begin := self._understood) + 4 <= len(heard):
            length = int.from_bytes(heard[begin : begin + 3], "little")
            end = begin + 4 + length
            if end > len(heard) and length <= _LONGEST_OK:
                break
            number = len(ids) + 1
            id_ = id_in_ok(heard[begin:end], number, more=number < self._answers)
            if id_ is None or number > self._answers:
                return False
            ids.append(id_)
            self._understood = end
        return len(ids) < self._answers or self._understood == len(heard)

    def eof_received(self) -> bool | None:
        self._pass_on()
        answer = self._stream.eof_received()
        self._leave_it_to_the_driver()
        return answer

    def connection_lost(self, exc: Exception | None) -> None:
        self._pass_on()
        self._stream.connection_lost(exc)
        self._leave_it_to_the_driver()
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        self._stream.pause_writing()

    def resume_writing(self) -> None:
        self._stream.resume_writing()
