"""A wire on a real socket: when what comes wakes this process."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence

import pytest

from app.databases.mysql.line.wire import Wire
from tests.unit.databases.test_mysql_wire import Stream, Transport, oks, packet

DEADLINE = 20.0
ERROR = packet(b"\xff\x51\x04#40001Deadlock found when t", 2)
WIDE = 2**40
"""An id whose packet is eight bytes longer than the shortest."""


class CountingWire(Wire):
    """How often it was woken, in `pieces`."""

    def __init__(self, transport: asyncio.Transport, stream: asyncio.Protocol, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(transport, stream, loop)
        self.pieces: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        super().data_received(data)


class Driver(Stream):
    """Says when it has been told something."""

    def __init__(self) -> None:
        super().__init__()
        self.has_heard = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.has_heard.set()


class Line:
    """A wire, the database's end of its socket, and what its draw came to."""

    def __init__(self, wire: CountingWire, stream: Driver, peer: socket.socket) -> None:
        self.wire, self.stream, self.peer = wire, stream, peer
        self._loop = asyncio.get_running_loop()

    async def draw(self, pieces: Sequence[bytes], answers: int) -> list[int] | None:
        """What is drawn where the answer comes in these pieces, a moment after each other."""
        drawn: asyncio.Future[Sequence[int] | None] = self._loop.create_future()
        self.wire.pieces.clear()
        self.wire.draw(b"draw", answers, 2 * DEADLINE, drawn.set_result)
        for piece in pieces:
            await asyncio.sleep(0.002)
            self.peer.send(piece)
        async with asyncio.timeout(DEADLINE):
            ids = await drawn
        return None if ids is None else list(ids)


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    ours = socket.create_connection(listener.getsockname())
    peer, _ = listener.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = Driver()
    transport, _ = await loop.create_connection(lambda: stream, sock=ours)
    wire = CountingWire(transport, stream, loop)
    transport.set_protocol(wire)
    yield Line(wire, stream, peer)
    transport.close()
    peer.close()
    listener.close()


@pytest.mark.parametrize("ids", [(0, 7, 9, 0), (0, WIDE, WIDE + 62, 0), (0, 7, 0, 9, 0, 11, 0), (0, *range(64), 0)])
async def test_however_the_answers_are_cut_all_are_taken_as_soon_as_they_have_come(
    line: Line, ids: Sequence[int]
) -> None:
    whole = oks(*ids)
    for cut in {*range(1, min(len(whole), 100), 3), *range(len(whole) - 20, len(whole))}:
        assert await line.draw([whole[:cut], whole[cut:]], len(ids)) == list(ids)
    assert line.stream.told == []


async def test_the_answers_to_a_few_statements_come_together(line: Line) -> None:
    ids = 0, 7, 9, 0
    apart = [packet(oks(*ids)[begin + 4 : begin + 11], number) for number, begin in enumerate(range(0, 44, 11), 1)]
    assert await line.draw(apart, 4) == list(ids)
    assert len(line.wire.pieces) == 1


@pytest.mark.parametrize("answers", [2, 4, 8, 66])
async def test_an_error_in_place_of_the_second_is_handed_on_at_once(line: Line, answers: int) -> None:
    first = oks(0, 7)[:11]
    assert await line.draw([first, ERROR], answers) is None
    assert b"".join(line.wire.pieces) == first + ERROR


async def test_after_several_answers_a_single_byte_reaches_the_driver(line: Line) -> None:
    assert await line.draw([oks(0, WIDE, WIDE, 0)], 4) == [0, WIDE, WIDE, 0]
    assert await line.draw([oks(0, 7)[:11], ERROR], 8) is None
    line.stream.told.clear()
    line.stream.has_heard.clear()
    line.peer.send(b"\x01")
    async with asyncio.timeout(DEADLINE):
        await line.stream.has_heard.wait()
    assert line.stream.told == [b"\x01"]


class Secured(Transport):
    """Says that it is on a socket, whose options are kept, and whether in TLS."""

    def __init__(self, *, in_tls: bool) -> None:
        super().__init__()
        self.options: list[tuple[int, int, int]] = []
        self._info = {"socket": self, "ssl_object": object() if in_tls else None}

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._info.get(name, default)

    def setsockopt(self, *option: int) -> None:
        self.options.append((option[0], option[1], option[2]))


@pytest.mark.parametrize("in_tls", [False, True])
async def test_in_tls_each_answer_wakes_this_process(in_tls: bool) -> None:
    """A record that came in two pieces may have fewer bytes left than the answer in it."""
    transport = Secured(in_tls=in_tls)
    wire = Wire(transport, Stream(), asyncio.get_running_loop())
    wire.draw(b"draw", 4, DEADLINE, lambda ids: None)
    wire.data_received(oks(0, 7, 9, 0))
    assert [size for _, _, size in transport.options] == ([] if in_tls else [44, 1])
    wire.connection_lost(None)
