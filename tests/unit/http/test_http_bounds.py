"""What one client can take of the server: memory, and time in which nobody else is served."""

import asyncio
import gc
import inspect
import tracemalloc
from collections.abc import Callable

import pytest

from app.clients.turns import TURN_SECONDS
from app.common.errors import OutOfTime
from app.http.tickets.head import ClientRequest
from app.http.tickets.protocol import AHEAD_BYTES
from app.http.tickets.reading import MOST_FIELDS, PIECE
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.http.http_bench import OTHER, PHOTOS, REFUSED, Bench, Client, chunked, ids, request, statuses

SHORT = b"GET /ticket/a HTTP/1.1\r\n\r\n"
MOST_IN_A_PIECE = PIECE // len(SHORT) + 1
READ = 256 * 1024
"""The most that an event loop reads at a time."""


def heads() -> int:
    """How many parsed requests there are. By their types: other objects may pretend to be of a class."""
    return sum(issubclass(type(each), ClientRequest) for each in gc.get_objects())


async def turns(is_so: Callable[[], bool]) -> None:
    """Let the event loop turn until it is so."""
    for _ in range(20_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError


def send_until_paused(client: Client, data: bytes, size: int) -> int:
    """How many bytes the server took before it read no more, of data without an end."""
    taken = 0
    while client.transport.reading:
        client.send((data * (size // len(data) + 2))[taken % len(data) :][:size])
        taken += size
        assert taken < 10 * READ
    return taken


@pytest.mark.parametrize("first", [PHOTOS, request("/wait")], ids=["a ticket", "another"])
@pytest.mark.parametrize("size", [500, 20_000, READ])
@virtual_time
async def test_what_is_sent_ahead_is_kept_as_bytes_and_only_so_much(bench: Bench, first: bytes, size: int) -> None:
    client = bench.connect()
    before = heads()
    await client.ask(first)
    assert AHEAD_BYTES < send_until_paused(client, SHORT, size) <= AHEAD_BYTES + size
    await settled()
    assert heads() - before <= 1 + MOST_IN_A_PIECE
    assert client.transport.calls == []
    bench.issuer.on_issue = lambda: asyncio.get_running_loop().call_soon(bench.issuer.answer)
    if first is PHOTOS:
        bench.issuer.answer()
    bench.app.gate.set()
    for turn in range(15_000):
        if turn % 1_000 == 0:
            assert heads() - before <= 2 + MOST_IN_A_PIECE
        await asyncio.sleep(0)
    assert client.transport.reading
    found = ids(client.take())
    assert len(found) >= AHEAD_BYTES // len(SHORT)
    assert len(set(found)) == len(found)
    client.transport.abort()
    await settled()


@pytest.mark.parametrize("data", [SHORT, REFUSED, OTHER], ids=["tickets", "refused", "others"])
@virtual_time
async def test_to_a_client_that_reads_nothing_nothing_more_is_served(bench: Bench, data: bytes) -> None:
    client = bench.connect()
    before = heads()
    bench.issuer.on_issue = bench.issuer.answer
    client.transport.on_write = client.protocol.pause_writing
    client.send((data * (250_000 // len(data) + 1))[:250_000])
    await settled()
    assert len(statuses(client.take())) == 1
    assert not client.transport.reading
    assert heads() - before <= 1 + MOST_IN_A_PIECE
    for _ in range(5):
        client.protocol.resume_writing()
        await settled()
        assert len(statuses(client.take())) == 1
    client.transport.on_write = lambda: None
    client.protocol.resume_writing()
    await turns(lambda: client.transport.reading)
    client.transport.abort()
    await settled()


@virtual_time
async def test_a_new_side_of_the_application_begins_only_where_it_can_write(bench: Bench) -> None:
    client = bench.connect()
    bench.issuer.on_issue = bench.issuer.answer
    client.transport.on_write = client.protocol.pause_writing
    await client.ask(PHOTOS + OTHER)
    assert bench.app.begun == []
    client.protocol.resume_writing()
    assert statuses(await client.ask()) == [200]


@pytest.mark.parametrize("data", [SHORT, REFUSED], ids=["served", "refused"])
@virtual_time
async def test_no_callback_works_for_long(bench: Bench, data: bytes) -> None:
    client = bench.connect()
    bench.issuer.on_issue = bench.issuer.answer
    bench.working_time.piece = TURN_SECONDS / 50
    steps = []
    for begin in range(0, 5_000, 1_000):
        assert client.transport.reading
        client.send(data * 1_000)
        steps.append(len(statuses(client.take())))
        while sum(steps) < begin + 1_000:
            await asyncio.sleep(0)
            steps.append(len(statuses(client.take())))
    await settled()
    assert sum(steps) + len(statuses(client.take())) == 5_000
    assert max(steps) <= 51  # the last piece ends after the time is over


@virtual_time
async def test_many_reads_at_once_work_no_longer(bench: Bench) -> None:
    client = bench.connect()
    bench.working_time.piece = TURN_SECONDS / 50
    for _ in range(20):
        client.send(REFUSED * 100)
    client.take()
    most = 0
    while sum(bench.outcomes().values()) < 2_000:
        await asyncio.sleep(0)
        most = max(most, len(statuses(client.take())))
    assert most <= 51


@pytest.mark.parametrize("data", [SHORT, REFUSED], ids=["served", "refused"])
@virtual_time
async def test_a_thousand_answers_at_once_are_no_deeper_than_one(bench: Bench, data: bytes) -> None:
    client = bench.connect()
    depths = set()

    def note() -> None:
        frame, depth = inspect.currentframe(), 0
        while frame is not None:
            frame, depth = frame.f_back, depth + 1
        depths.add(depth)

    client.transport.on_write = note
    client.send(PHOTOS, data * 60)
    bench.issuer.on_issue = bench.issuer.answer
    bench.issuer.answer()
    await turns(lambda: len(statuses(client.transport.written)) == 61)
    assert max(depths) - min(depths) < 20


@virtual_time
async def test_a_thousand_refusals_in_a_row_keep_their_order(bench: Bench) -> None:
    client = bench.connect()
    client.send(PHOTOS, REFUSED * 1_000)
    bench.issuer.refuse(OutOfTime())
    client.send(PHOTOS)
    await turns(lambda: bool(bench.issuer.waiting))
    bench.issuer.answer()
    assert statuses(await client.ask()) == [503, *[422] * 1_000, 200]


@pytest.mark.parametrize("byte", [b"x", b"{", b" "])
@virtual_time
async def test_the_body_of_a_request_for_tickets_is_not_collected(bench: Bench, byte: bytes) -> None:
    client = bench.connect()
    client.send(request("/ticket/photos", "transfer-encoding: chunked", method="POST"))
    data = b"ffff\r\n" + byte * 0xFFFF + b"\r\n"
    tracemalloc.start()
    try:
        for _ in range(50):
            client.send(data)
            await turns(lambda: client.transport.reading)
        assert tracemalloc.get_traced_memory()[0] < 3 * len(data)
    finally:
        tracemalloc.stop()
    assert statuses(client.take()) == [413]
    assert statuses(await client.ask(b"0\r\n\r\n" + REFUSED)) == [422]
    assert bench.issuer.asked == []


@pytest.mark.parametrize("target", ["/ticket/photos", "/other"])
@virtual_time
async def test_many_headers_are_refused_however_short(bench: Bench, target: str) -> None:
    bench.issuer.on_issue = bench.issuer.answer
    fields = [f"x{number}: y" for number in range(MOST_FIELDS - 2)]
    assert statuses(await bench.connect().ask(request(target, *fields))) == [200]
    client = bench.connect()
    assert statuses(await client.ask(request(target, *fields, "one: more") + PHOTOS)) == [431]
    assert client.transport.ended


@virtual_time
async def test_many_trailers_are_refused_however_short(bench: Bench) -> None:
    trailers = b"a: b\r\n" * MOST_FIELDS
    client = bench.connect()
    assert statuses(await client.ask(chunked("/other", b"{}", trailers=trailers))) == [431]


@virtual_time
async def test_a_body_in_chunks_of_a_byte_is_handed_on_in_one_go(bench: Bench) -> None:
    client = bench.connect()
    bench.issuer.on_issue = bench.issuer.answer
    answer = await client.ask(chunked("/other", *[b"x"] * 100))
    assert statuses(answer) == [200]
    assert bench.app.seen == [("/other", b"x" * 100)]
    assert bench.app.largest > 50
