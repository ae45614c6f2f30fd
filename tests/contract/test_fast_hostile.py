"""What `http/fast` does with clients that pipeline, send too much or too little, do not read, or leave."""

import asyncio
from time import monotonic

import pytest

from app.http.fast import LARGEST_HEAD
from tests.contract.fast_bench import Bench, Client, get
from tests.contract.http_bench import until

PHOTOS, LIVEZ = get("/ticket/photos"), get("/livez")
CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


async def refused(fast: Bench, client: Client, status: int) -> None:
    """Expect a problem, and the end of the connection."""
    answer = await client.answer()
    assert (answer[0], answer[2]["code"], answer[1]["connection"]) == (status, "bad-request", "close")
    assert await client.rest() == b""
    (protocol,) = fast.protocols  # closed at once, it could lose the answer
    taken = fast.desk.taken
    protocol.data_received(PHOTOS)
    fast.http.sweep(monotonic() + 3)
    await until(lambda: not fast.protocols)
    assert fast.desk.taken == taken


async def test_while_a_ticket_is_drawn_nothing_else_of_its_connection_is(fast: Bench, client: Client) -> None:
    assert (await client.ask(PHOTOS))[2]["id"] == 1
    (protocol,) = fast.protocols
    fast.desk.is_held = True
    for data in (PHOTOS * 3, PHOTOS, PHOTOS):  # queued, unread, and known
        protocol.data_received(data)
    for number in range(2, 7):
        assert fast.desk.taken == number
        fast.desk.release()
        assert (await client.answer())[2]["id"] == number
    fast.desk.is_held = False
    block = get("/block/photos?size=2", "X: 0123456789abc")
    assert len(block) == 64
    protocol.data_received(block * 40)  # pieces of whole requests, with a turn of the loop between two of them
    protocol.data_received(PHOTOS)
    assert ["size" in (await client.answer())[2] for _ in range(41)] == [True] * 40 + [False]


async def test_a_megabyte_of_the_shortest_requests_is_not_parsed_ahead(fast: Bench, client: Client) -> None:
    fast.app.gate.clear()
    client.send(b"GET / HTTP/1.1\r\n\r\n" * 60_000)
    await until(lambda: fast.app.got and fast.protocols[0].flow.read_paused)
    await asyncio.sleep(0.05)
    (protocol,) = fast.protocols
    assert len(protocol._unread) < 600_000
    assert len(fast.app.got) == 1
    fast.app.gate.set()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 4096])
async def test_requests_are_told_apart_however_their_bytes_are_cut(fast: Bench, client: Client, size: int) -> None:
    body = b"\r\n\r\n{}" * 40
    post = get("/a", f"Content-Length: {len(body)}", method="POST") + body
    chunked = CHUNKED + b"%x\r\n%b\r\n0\r\nA: b\r\n\r\n" % (len(body), body)
    data = PHOTOS + post + PHOTOS + b"\r\n\r\n" + chunked + post + PHOTOS
    await until(lambda: fast.protocols)
    for at in range(0, len(data), size):
        fast.protocols[0].data_received(data[at : at + size])
    told = [(await client.answer())[2] for _ in range(6)]
    assert [each.get("id") or each["size"] for each in told] == [1, len(body), 2, len(body), len(body), 3]


HEADS = b"GET /ticket/", b"GET / HTTP/1.1\r\nX: ", b"X-No: ", b"GET / HTTP/1.1\r\n"


@pytest.mark.parametrize("begin", [*HEADS, CHUNKED + b"1;a=", CHUNKED + b"0\r\n"])
async def test_a_head_or_what_is_between_chunks_is_too_large(fast: Bench, client: Client, begin: bytes) -> None:
    filling = b"a" * (LARGEST_HEAD + 2000) if begin[-1:] != b"\n" else b"A: b\r\n" * 5000
    client.send(b"\r\n" * 20_000 + begin + filling)  # empty lines before a request are passed over
    await refused(fast, client, 400 if begin.startswith(b"X") else 431)


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
async def test_what_is_no_http_is_answered_behind_what_came_before(fast: Bench, client: Client, data: bytes) -> None:
    assert (await client.ask(PHOTOS))[2]["id"] == 1
    fast.desk.is_held = True
    client.send(PHOTOS + data + PHOTOS)
    await until(lambda: fast.desk.held)
    fast.desk.release()
    assert (await client.answer())[2]["id"] == 2
    await refused(fast, client, 400)
    assert fast.desk.taken == 2


async def test_a_request_that_does_not_end_ends_the_connection(fast: Bench) -> None:
    now, post = monotonic(), b"POST /ticket/photos HTTP/1.1\r\n"
    bodies = post + b"Content-Length: 9\r\n\r\n{", post + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"
    for begin in (b"GET /tick", PHOTOS[:-2], *bodies):
        client = await fast.client()
        client.send(begin)
        await until(lambda: fast.protocols and fast.protocols[0]._part)
        for later, is_open in ((now + 5, True), (monotonic() + 11, False)):
            fast.http.sweep(later)
            assert fast.protocols[0].transport.is_closing() is not is_open
        assert await client.rest() == b""
        await until(lambda: not fast.protocols)


async def test_an_idle_connection_is_kept_for_620_s(fast: Bench, client: Client) -> None:
    other = await fast.client()
    assert (await client.ask(PHOTOS))[0] == 200
    await until(lambda: len(fast.protocols) == 2)
    fast.http.sweep(monotonic() + 615)
    assert (await client.ask(PHOTOS))[0] == 200
    fast.http.sweep(monotonic() + 621)
    assert (await client.rest(), await other.rest()) == (b"", b"")


async def test_a_client_that_leaves_abandons_its_draw(fast: Bench, client: Client) -> None:
    fast.desk.is_held = True
    gone = await fast.client()
    gone.send(PHOTOS + LIVEZ)
    await until(lambda: len(fast.desk.held) == 1)
    client.send(PHOTOS)
    await until(lambda: len(fast.desk.held) == 2)
    gone.writer.transport.abort()
    await until(lambda: fast.desk.held[0].is_over)
    fast.desk.release()
    assert (await client.answer())[2]["id"] == 1
    assert (fast.tally.in_flight, fast.tally.client_connections, fast.app.got) == (0, 1, [])


async def test_nothing_is_served_while_the_client_does_not_read(fast: Bench, client: Client) -> None:
    assert (await client.ask(PHOTOS))[0] == 200
    (protocol,) = fast.protocols
    for data in (PHOTOS, get("/ticket/photos?count=2"), LIVEZ):  # known, a ticket, and FastAPI's
        taken = fast.desk.taken, len(fast.app.got)
        protocol.pause_writing()
        protocol.data_received(data)
        await asyncio.sleep(0)
        assert (fast.desk.taken, len(fast.app.got)) == taken
        protocol.resume_writing()
        assert (await client.answer())[0] == 200
    fast.desk.is_held = True
    protocol.data_received(PHOTOS * 2)
    protocol.pause_writing()
    fast.desk.release()
    assert fast.desk.held == []  # the second stays in its queue
    fast.http.sweep(monotonic() + 11)
    await until(lambda: not fast.protocols)


async def test_a_client_may_ask_for_the_end_and_http_1_0_has_it(fast: Bench) -> None:
    for request in (get("/ticket/photos", "Connection: close"), get("/livez", version="1.0")):
        client = await fast.client()
        status, fields, _ = await client.ask(request + PHOTOS)
        assert (status, fields["connection"]) == (200, "close")
        assert await client.rest() == b""
    assert fast.desk.taken == 1


async def test_draining_ends_each_connection_behind_its_answer(fast: Bench) -> None:
    clients = [await fast.client() for _ in range(4)]
    assert (await clients[0].ask(PHOTOS))[0] == 200
    fast.desk.is_held = True
    clients[1].send(PHOTOS + b"no HTTP" + PHOTOS)
    fast.app.gate.clear()
    clients[2].send(LIVEZ)
    await until(lambda: fast.desk.held and fast.app.got)
    fast.http.begin_drain()
    fast.desk.release()
    fast.desk.is_held = False
    fast.app.gate.set()
    clients[0].send(PHOTOS)
    clients[3].send(LIVEZ)
    for client in clients:
        assert (await client.answer())[1]["connection"] == "close"
        assert await client.rest() == b""


async def test_beyond_the_limit_a_connection_has_one_answer(fast: Bench, client: Client) -> None:
    fast.connections.most = 1
    assert (await client.ask(PHOTOS))[0] == 200
    for path in ("/livez", "/readyz", "/healthz", "/metrics", "/ticket/photos"):
        other = await fast.client()
        status, fields, told = await other.ask(get(path))
        assert fields["connection"] == "close"
        if path == "/ticket/photos":
            assert (status, told["code"], fields["retry-after"]) == (503, "too-many-connections", "1")
        else:
            assert (status, told["app"]) == (200, path)
        assert await other.rest() == b""
    waiting = [await fast.client() for _ in range(32)]
    await until(lambda: fast.tally.client_connections == 33)
    assert await (await fast.client()).rest() == b""
    fast.http.sweep(monotonic() + 11)
    assert {await each.rest() for each in waiting} == {b""}
    await until(lambda: fast.tally.client_connections == 1)
