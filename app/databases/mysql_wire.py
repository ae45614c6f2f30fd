"""One packet out, one OK packet in: the least that can stand between a draw and its id.

Every ticket waits for this, and the driver reads each answer through a stream: some twenty calls and seven objects for
eleven bytes. So a draw's OK packet is taken here as it arrives. Everything else goes on to the driver's stream, errors
and what arrives in pieces included.
"""

import asyncio
from collections.abc import Callable
from functools import lru_cache

_COM_QUERY = b"\x03"
_FIRST_AND_OK = b"\x01\x00"
_MORE_RESULTS_EXIST = 0x08
_WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}


@lru_cache(maxsize=4096)
def query(statement: str) -> bytes:
    """The packet that sends a statement."""
    body = _COM_QUERY + statement.encode("ascii")
    return len(body).to_bytes(3, "little") + b"\x00" + body


def id_in_ok(answer: bytes) -> int | None:
    """The id that a statement drew, 0 where it drew none; None where `answer` is anything but one whole OK packet.

    Length (3 bytes), number, zero, rows, id, status (2), warnings (2), words for people. Rows and id are
    "length-encoded": below 251 one byte, else a byte that tells the width. Source: MySQL's documentation of its
    protocol, "OK_Packet".
    """
    size = len(answer)
    if size < 11 or int.from_bytes(answer[:3], "little") + 4 != size or answer[3:5] != _FIRST_AND_OK or answer[5] > 250:
        return None
    lead = answer[6]
    if lead < 251:
        return None if answer[7] & _MORE_RESULTS_EXIST else lead
    width = _WIDTHS.get(lead)
    if width is None or size < 11 + width or answer[7 + width] & _MORE_RESULTS_EXIST:
        return None
    return int.from_bytes(answer[7 : 7 + width], "little")


class Wire(asyncio.Protocol):
    """Between a connection's socket and the driver's stream. One draw at a time."""

    def __init__(self, transport: asyncio.Transport, stream: asyncio.Protocol, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._stream = stream
        self._loop = loop
        self._done: Callable[[int | None], None] | None = None
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def draw(self, packet: bytes, seconds: float, done: Callable[[int | None], None]) -> None:
        """Send a statement that draws; `done` gets its id.

        Or None: the driver has the answer, or the end of it, or nothing came in so many seconds. It is called once, and
        not before this has returned.
        """
        loop = self._loop
        self._done = done
        self._until = loop.time() + seconds
        if self._timer is None:  # one for as many draws as there are until it goes off
            self._timer = loop.call_later(seconds, self._look_at_the_time)
        if self._transport.is_closing():
            loop.call_soon(self._leave_it_to_the_driver)
        else:
            self._transport.write(packet)

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
        if done is not None:
            done(None)

    def data_received(self, data: bytes) -> None:
        done = self._done
        if done is not None:
            id_ = id_in_ok(data)
            if id_ is not None:
                self._done = None
                done(id_)
                return
        self._stream.data_received(data)
        self._leave_it_to_the_driver()

    def eof_received(self) -> bool | None:
        answer = self._stream.eof_received()
        self._leave_it_to_the_driver()
        return answer

    def connection_lost(self, exc: Exception | None) -> None:
        self._stream.connection_lost(exc)
        self._leave_it_to_the_driver()
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        self._stream.pause_writing()

    def resume_writing(self) -> None:
        self._stream.resume_writing()
