"""What is taken of an answer before the driver sees it, and what is left to the driver."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest
from pymysql.connections import MysqlPacket
from pymysql.protocol import OKPacketWrapper

from app.databases.mysql.line.wire import Wire, id_in_ok, query


def number(value: int) -> bytes:
    """A length-encoded integer."""
    if value < 251:
        return bytes([value])
    for lead, width in ((0xFC, 2), (0xFD, 3), (0xFE, 8)):
        if value < 256**width:
            return bytes([lead]) + value.to_bytes(width, "little")
    raise ValueError(value)


def packet(payload: bytes, sequence: int = 1) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([sequence]) + payload


def ok(id_: int, *, rows: int = 2, status: int = 2, words: bytes = b"", sequence: int = 1) -> bytes:
    payload = b"\x00" + number(rows) + number(id_) + status.to_bytes(2, "little") + b"\x00\x00" + words
    return packet(payload, sequence)


def oks(*ids: int) -> bytes:
    """The answer to as many statements."""
    last = len(ids)
    return b"".join(ok(id_, status=2 | 8 * (place < last), sequence=place) for place, id_ in enumerate(ids, 1))


IDS = [0, 1, 250, 251, 255, 65_535, 65_536, 2**24 - 1, 2**24, 2**32, 2**63 - 1, 2**64 - 1]


@pytest.mark.parametrize("id_", IDS)
@pytest.mark.parametrize("words", [b"", b"(Records: 2  Duplicates: 2  Warnings: 0"])
def test_the_id_is_the_one_that_the_driver_reads(id_: int, words: bytes) -> None:
    answer = ok(id_, words=words)
    driver = OKPacketWrapper(MysqlPacket(answer[4:], "utf8"))
    assert id_in_ok(answer) == driver.insert_id == id_


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x07",
        ok(5)[:-1],
        ok(5) + b"\x00",
        ok(5) + ok(6),
        ok(5, status=2 | 8),
        ok(2**40, status=2 | 8),
        ok(5, rows=251),
        packet(b"\x00\x02\xfb" + bytes(8)),
        packet(b"\x00\x02\xff" + bytes(8)),
        packet(b"\x00\x02\xfe" + bytes(4)),
        packet(b"\x00\x02\xfd" + bytes(5)),
        packet(b"\xff\x51\x04#23000Deadlock"),
        packet(b"\x01" + bytes(8)),
        packet(ok(5)[4:], sequence=2),
        packet(ok(5)[4:], sequence=0),
    ],
)
def test_anything_but_one_whole_ok_packet_is_left_to_the_driver(answer: bytes) -> None:
    assert id_in_ok(answer) is None


def test_no_byte_of_an_ok_packet_can_be_missing() -> None:
    for id_ in IDS:
        whole = ok(id_)
        assert [id_in_ok(whole[:size]) for size in range(len(whole))] == [None] * len(whole)


def test_a_query_is_one_packet() -> None:
    assert query("SELECT 1") == b"\x09\x00\x00\x00\x03SELECT 1"


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closing


class Stream(asyncio.Protocol):
    """Keeps what it is told, as the driver's stream would."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def data_received(self, data: bytes) -> None:
        self.told.append(data)

    def eof_received(self) -> bool:
        self.told.append("end")
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append(exc)

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


class Ends:
    """A wire with both its ends, and what its draws came to."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.transport, self.stream = Transport(), Stream()
        self.wire = Wire(self.transport, self.stream, loop)
        self.drawn: list[list[int] | None] = []
        self._heard = asyncio.Event()

    def draw(self, seconds: float = 1, answers: int = 1) -> None:
        self.wire.draw(b"draw", answers, seconds, self._hear)

    def _hear(self, ids: Sequence[int] | None) -> None:
        self.drawn.append(None if ids is None else list(ids))
        self._heard.set()

    async def hears(self, times: int) -> None:
        while len(self.drawn) < times:
            self._heard.clear()
            await self._heard.wait()


@pytest.fixture
def ends(loop: asyncio.AbstractEventLoop) -> Ends:
    return Ends(loop)


def test_a_draw_gets_its_id_and_the_driver_hears_nothing(ends: Ends) -> None:
    ends.draw()
    assert ends.transport.written == [b"draw"]
    ends.wire.data_received(ok(7))
    assert ends.drawn == [[7]]
    assert ends.stream.told == []


@pytest.mark.parametrize("answer", [packet(b"\xff\x51\x04#23000Deadlock"), ok(7) + ok(9), packet(bytes(2000))[:20]])
def test_what_is_not_understood_goes_to_the_driver_and_so_does_what_follows(ends: Ends, answer: bytes) -> None:
    ends.draw()
    ends.wire.data_received(answer)
    assert ends.drawn == [None]
    ends.wire.data_received(ok(11))
    assert ends.drawn == [None]
    assert ends.stream.told == [answer, ok(11)]


@pytest.mark.parametrize("ids", [(7,), (0, 7, 0), (0, *range(2**32, 2**32 + 64, 2), 0)])
def test_the_answers_to_several_statements_are_taken_however_they_come(ends: Ends, ids: tuple[int, ...]) -> None:
    whole = oks(*ids)
    for size in (1, 2, 5, 12, 64, len(whole)):
        ends.draw(answers=len(ids))
        for begin in range(0, len(whole), size):
            assert ends.drawn == []
            ends.wire.data_received(whole[begin : begin + size])
        assert ends.drawn == [list(ids)]
        ends.drawn.clear()
    assert ends.stream.told == []


@pytest.mark.parametrize(
    "wrong",
    [
        oks(0, 7) + packet(b"\xff\x51\x04#23000Deadlock", 3),
        oks(0, 7),  # the last of them says that no other follows
        oks(0, 7, 9, 11),  # the third says that another follows
        oks(0)[:7] + b"\x0a" + oks(0)[8:] + ok(7, status=10, sequence=3) + ok(9, sequence=3),
    ],
)
@pytest.mark.parametrize("size", [3, 11, 100])
def test_of_several_answers_that_are_not_all_ok_the_driver_gets_everything(ends: Ends, wrong: bytes, size: int) -> None:
    ends.draw(answers=3)
    for begin in range(0, len(wrong), size):
        ends.wire.data_received(wrong[begin : begin + size])
    assert ends.drawn == [None]
    assert b"".join(piece for piece in ends.stream.told if isinstance(piece, bytes)) == wrong


def test_what_follows_the_last_answer_in_the_same_piece_makes_all_of_it_the_drivers(ends: Ends) -> None:
    ends.draw(answers=2)
    ends.wire.data_received(oks(0, 7) + b"\x01")
    assert ends.drawn == [None]
    assert ends.stream.told == [oks(0, 7) + b"\x01"]


@pytest.mark.parametrize("end", ["eof", "lost", "time"])
def test_what_had_come_of_several_answers_goes_to_the_driver_before_the_end(
    ends: Ends, loop: asyncio.AbstractEventLoop, end: str
) -> None:
    async def late() -> None:
        ends.draw(0.01, answers=3)
        ends.wire.data_received(oks(0, 7, 9)[:25])
        assert ends.stream.told == []
        if end == "eof":
            ends.wire.eof_received()
        elif end == "lost":
            ends.wire.connection_lost(None)
        await ends.hears(1)

    loop.run_until_complete(asyncio.wait_for(late(), 20))
    assert ends.drawn == [None]
    then: dict[str, list[object]] = {"eof": ["end"], "lost": [None], "time": []}
    assert ends.stream.told == [oks(0, 7, 9)[:25], *then[end]]


def test_without_a_draw_everything_goes_to_the_driver(ends: Ends) -> None:
    ends.wire.data_received(ok(7))
    ends.wire.pause_writing()
    ends.wire.resume_writing()
    assert ends.wire.eof_received() is True
    assert ends.stream.told == [ok(7), "pause", "resume", "end"]


def test_a_lost_connection_sends_a_draw_to_the_driver(ends: Ends) -> None:
    ends.draw()
    ends.wire.connection_lost(None)
    assert ends.drawn == [None]
    assert ends.stream.told == [None]


def test_an_end_sends_a_draw_to_the_driver(ends: Ends) -> None:
    ends.draw()
    assert ends.wire.eof_received() is True
    assert ends.drawn == [None]


def test_on_a_closing_connection_nothing_is_sent(ends: Ends, loop: asyncio.AbstractEventLoop) -> None:
    ends.transport.closing = True
    ends.draw()
    assert ends.drawn == []  # never before `draw` has returned
    loop.run_until_complete(asyncio.sleep(0))
    assert ends.drawn == [None]
    assert ends.transport.written == []


def test_every_draw_has_its_own_time(ends: Ends, loop: asyncio.AbstractEventLoop) -> None:
    """The one timer is set for the first; the second may take as long, counted from its own beginning."""

    async def two() -> None:
        ends.draw(0.2)
        await asyncio.sleep(0.15)
        ends.wire.data_received(ok(7))
        began = loop.time()
        ends.draw(0.2)
        await ends.hears(2)
        assert 0.19 <= loop.time() - began < 5

    loop.run_until_complete(asyncio.wait_for(two(), 20))
    assert ends.drawn == [[7], None]


def test_an_answer_after_the_time_is_over_is_nobodys_id(ends: Ends, loop: asyncio.AbstractEventLoop) -> None:
    async def late() -> None:
        ends.draw(0.01)
        await ends.hears(1)
        ends.wire.data_received(ok(7))

    loop.run_until_complete(asyncio.wait_for(late(), 20))
    assert ends.drawn == [None]
    assert ends.stream.told == [ok(7)]
