"""What `http/fast` does with clients that pipeline, send too much or too little, do not read, or leave."""

import asyncio
from time import monotonic

import pytest

from app.http.fast import LARGEST_HEAD
from tests.unit.http.fast_bench import Bench, Client, get, serving, until

PHOTOS, LIVEZ = get("/ticket/photos"), get("/livez")
CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


async def refused(bench: Bench, client: Client, status: int) -> None:
    """Expect a problem, and the end of the connection."""
    answer = await client.answer()
    assert (answer[0], answer[2]["code"], answer[1]["connection"]) == (status, "bad-request", "close")
    assert await client.rest() == b""
    (protocol,) = bench.protocols  # closed at once, it could lose the answer
    taken = bench.desk.taken
    protocol.data_received(PHOTOS)
    bench.http.sweep(monotonic() + 3)
    await until(lambda: not bench.protocols)
    assert bench.desk.taken == taken


# --- order ------------------------------------------------------------------------------------------------------------


async def test_while_a_ticket_is_drawn_nothing_else_of_its_connection_is() -> None:
    async with serving() as bench:
        client = await bench.client()
        assert (await client.ask(PHOTOS))[2]["id"] == 1
        (protocol,) = bench.protocols
        bench.desk.is_held = True
        for data in (PHOTOS * 3, PHOTOS, PHOTOS):  # queued, unread, and known
            protocol.data_received(data)
        for number in range(2, 7):
            assert bench.desk.taken == number
            bench.desk.release()
            assert (await client.answer())[2]["id"] == number
        bench.desk.is_held = False
        block = get("/block/photos?size=2", "X: 0123456789abc")
        assert len(block) == 64
        protocol.data_received(block * 40)  # pieces of whole requests, with a turn of the loop between two of them
        protocol.data_received(PHOTOS)
        assert ["size" in (await client.answer())[2] for _ in range(41)] == [True] * 40 + [False]


async def test_a_megabyte_of_the_shortest_requests_is_not_parsed_ahead() -> None:
    async with serving() as bench:
        client = await bench.client()
        bench.app.gate.clear()
        client.send(b"GET / HTTP/1.1\r\n\r\n" * 60_000)
        await until(lambda: bench.app.got and bench.protocols[0].flow.read_paused)
        await asyncio.sleep(0.05)
        (protocol,) = bench.protocols
        assert len(protocol._unread) < 600_000
        assert len(bench.app.got) == 1
        bench.app.gate.set()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 4096])
async def test_requests_are_told_apart_however_their_bytes_are_cut(size: int) -> None:
    body = b"\r\n\r\n{}" * 40
    post = get("/a", f"Content-Length: {len(body)}", method="POST") + body
    chunked = CHUNKED + b"%x\r\n%b\r\n0\r\nA: b\r\n\r\n" % (len(body), body)
    data = PHOTOS + post + PHOTOS + b"\r\n\r\n" + chunked + post + PHOTOS
    async with serving() as bench:
        client = await bench.client()
        await until(lambda: bench.protocols)
        for at in range(0, len(data), size):
            bench.protocols[0].data_received(data[at : at + size])
        told = [(await client.answer())[2] for _ in range(6)]
        assert [each.get("id") or each["size"] for each in told] == [1, len(body), 2, len(body), len(body), 3]


# --- what is no HTTP, or too large ------------------------------------------------------------------------------------


LARGE = (
    *(b"GET /ticket/", b"GET / HTTP/1.1\r\nX: ", b"X-No: ", b"GET / HTTP/1.1\r\n"),
    *(CHUNKED + b"1;a=", CHUNKED + b"0\r\n"),
)


@pytest.mark.parametrize("begin", LARGE)
async def test_a_head_or_what_is_between_the_chunks_of_a_body_is_too_large(begin: bytes) -> None:
    async with serving() as bench:
        client = await bench.client()
        filling = b"a" * (LARGEST_HEAD + 2000) if begin[-1:] != b"\n" else b"A: b\r\n" * 5000
        client.send(b"\r\n" * 20_000 + begin + filling)  # empty lines before a request are passed over
        await refused(bench, client, 400 if begin.startswith(b"X") else 431)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /ticket/photos\r\n\r\n",
        b"GET /ticket/photos HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /ticket/photos HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"GET /ticket/photos HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /ticket/photos HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"POST /ticket/photos HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
        b"GET /ticket/photos HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\n\r\n",
        b"CONNECT a:443 HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_answered_behind_what_came_before(data: bytes) -> None:
    async with serving() as bench:
        client = await bench.client()
        assert (await client.ask(PHOTOS))[2]["id"] == 1
        bench.desk.is_held = True
        client.send(PHOTOS + data + PHOTOS)
        await until(lambda: bench.desk.held)
        bench.desk.release()
        assert (await client.answer())[2]["id"] == 2
        await refused(bench, client, 400)
        assert bench.desk.taken == 2


# --- clients that are slow, do not read, or leave ---------------------------------------------------------------------


async def test_a_request_that_does_not_end_ends_the_connection() -> None:
    async with serving() as bench:
        now = monotonic()
        post = b"POST /ticket/photos HTTP/1.1\r\n"
        bodies = post + b"Content-Length: 9\r\n\r\n{", post + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"
        for begin in (b"GET /tick", PHOTOS[:-2], *bodies):
            client = await bench.client()
            client.send(begin)
            await until(lambda: bench.protocols and bench.protocols[0]._part)
            bench.http.sweep(now + 5)
            assert len(bench.protocols) == 1
            bench.http.sweep(monotonic() + 11)
            assert await client.rest() == b""
            await until(lambda: not bench.protocols)


async def test_an_idle_connection_is_kept_for_620_s() -> None:
    async with serving() as bench:
        client, other = await bench.client(), await bench.client()
        assert (await client.ask(PHOTOS))[0] == 200
        await until(lambda: len(bench.protocols) == 2)
        bench.http.sweep(monotonic() + 615)
        assert (await client.ask(PHOTOS))[0] == 200
        bench.http.sweep(monotonic() + 621)
        assert (await client.rest(), await other.rest()) == (b"", b"")


async def test_a_client_that_leaves_abandons_its_draw() -> None:
    async with serving() as bench:
        bench.desk.is_held = True
        gone, other = await bench.client(), await bench.client()
        gone.send(PHOTOS + LIVEZ)
        await until(lambda: len(bench.desk.held) == 1)
        other.send(PHOTOS)
        await until(lambda: len(bench.desk.held) == 2)
        gone.writer.transport.abort()
        await until(lambda: bench.desk.held[0].is_over)
        bench.desk.release()
        assert (await other.answer())[2]["id"] == 1
        assert (bench.tally.in_flight, bench.tally.client_connections, bench.app.got) == (0, 1, [])


async def test_nothing_is_served_while_the_client_does_not_read() -> None:
    async with serving() as bench:
        client = await bench.client()
        assert (await client.ask(PHOTOS))[0] == 200
        (protocol,) = bench.protocols
        for data in (PHOTOS, get("/ticket/photos?count=2"), LIVEZ):  # known, a ticket, and FastAPI's
            taken = bench.desk.taken, len(bench.app.got)
            protocol.pause_writing()
            protocol.data_received(data)
            await asyncio.sleep(0)
            assert (bench.desk.taken, len(bench.app.got)) == taken
            protocol.resume_writing()
            assert (await client.answer())[0] == 200
        bench.desk.is_held = True
        protocol.data_received(PHOTOS * 2)
        protocol.pause_writing()
        bench.desk.release()
        assert bench.desk.held == []  # the second stays in its queue
        bench.http.sweep(monotonic() + 11)
        await until(lambda: not bench.protocols)


# --- ends of connections ----------------------------------------------------------------------------------------------


async def test_a_client_may_ask_for_the_end_and_http_1_0_has_it() -> None:
    async with serving() as bench:
        for request in (get("/ticket/photos", "Connection: close"), get("/livez", version="1.0")):
            client = await bench.client()
            status, fields, _ = await client.ask(request + PHOTOS)
            assert (status, fields["connection"]) == (200, "close")
            assert await client.rest() == b""
        assert bench.desk.taken == 1


async def test_draining_ends_each_connection_behind_its_answer() -> None:
    async with serving() as bench:
        clients = [await bench.client() for _ in range(4)]
        assert (await clients[0].ask(PHOTOS))[0] == 200
        bench.desk.is_held = True
        clients[1].send(PHOTOS + b"no HTTP" + PHOTOS)
        bench.app.gate.clear()
        clients[2].send(LIVEZ)
        await until(lambda: bench.desk.held and bench.app.got)
        bench.http.begin_drain()
        bench.desk.release()
        bench.desk.is_held = False
        bench.app.gate.set()
        clients[0].send(PHOTOS)
        clients[3].send(LIVEZ)
        for client in clients:
            assert (await client.answer())[1]["connection"] == "close"
            assert await client.rest() == b""


async def test_beyond_the_limit_a_connection_has_one_answer() -> None:
    async with serving(most=1) as bench:
        assert (await (await bench.client()).ask(PHOTOS))[0] == 200
        for path in ("/livez", "/readyz", "/healthz", "/metrics", "/ticket/photos"):
            client = await bench.client()
            status, fields, told = await client.ask(get(path))
            assert fields["connection"] == "close"
            if path == "/ticket/photos":
                assert (status, told["code"], fields["retry-after"]) == (503, "too-many-connections", "1")
            else:
                assert (status, told["app"]) == (200, path)
            assert await client.rest() == b""
        waiting = [await bench.client() for _ in range(32)]
        await until(lambda: bench.tally.client_connections == 33)
        assert await (await bench.client()).rest() == b""
        bench.http.sweep(monotonic() + 11)
        for each in waiting:
            assert await each.rest() == b""
        await until(lambda: bench.tally.client_connections == 1)
