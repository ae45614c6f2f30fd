"""What `http/fast` does with clients that pipeline, send too much or too little, do not read, or leave."""

import asyncio
from time import monotonic

import pytest

from app.http.fast import LARGEST_HEAD
from tests.unit.http.fast_bench import Bench, Client, get, serving


async def refused(bench: Bench, client: Client, status: int) -> None:
    """Expect a problem, and the end of the connection."""
    answer = await client.answer()
    assert (answer[0], answer[2]["code"], answer[1]["connection"]) == (status, "bad-request", "close")
    assert await client.rest() == b""
    client.writer.close()
    await bench.until(lambda: not bench.protocols)


async def test_what_is_pipelined_is_answered_in_order() -> None:
    async with serving() as bench:
        client = await bench.client()
        bench.app.gate.clear()
        client.send((get("/ticket/photos") + get("/livez") + get("/ticket/photos", method="POST")) * 40)
        assert (await client.answer())[2]["id"] == 1
        bench.app.gate.set()
        told = [(await client.answer())[2] for _ in range(119)]
        assert [each["id"] for each in told[2::3]] == list(range(2, 41))
        assert {each["app"] for each in told[0::3]} == {"/livez"}
        assert {each["app"] for each in told[1::3]} == {"/ticket/photos"}


async def test_tickets_that_are_drawn_later_keep_their_order_too() -> None:
    async with serving() as bench:
        client = await bench.client()
        bench.desk.is_held = True
        client.send(get("/ticket/photos") * 5 + get("/livez"))
        for number in range(1, 6):
            await bench.until(lambda: bench.desk.held)
            assert bench.desk.taken == number
            bench.desk.release()
            assert (await client.answer())[2]["id"] == number
        assert "app" in (await client.answer())[2]


async def test_a_megabyte_of_the_shortest_requests_is_not_parsed_ahead() -> None:
    async with serving() as bench:
        client = await bench.client()
        bench.desk.is_held = True
        client.send(b"GET / HTTP/1.1\r\n\r\n" * 60_000)
        bench.app.gate.clear()
        await bench.until(lambda: bench.app.got and bench.protocols[0].flow.read_paused)
        await asyncio.sleep(0.05)
        (protocol,) = bench.protocols
        assert len(protocol.pipeline) < 60
        assert len(protocol._unread) < 600_000
        assert len(bench.app.got) == 1
        bench.app.gate.set()


async def test_empty_lines_are_passed_over() -> None:
    async with serving() as bench:
        client = await bench.client()
        client.send(b"\r\n" * 20_000 + get("/ticket/photos"))
        assert (await client.answer())[2]["id"] == 1


@pytest.mark.parametrize("begin", [b"GET /ticket/", b"GET / HTTP/1.1\r\nX: ", b"X-No: ", b"GET / HTTP/1.1\r\n"])
async def test_a_head_that_is_too_large(begin: bytes) -> None:
    async with serving() as bench:
        client = await bench.client()
        filling = b"a" * (LARGEST_HEAD + 2000) if begin[-1:] != b"\n" else b"A: b\r\n" * 5000
        client.send(begin + filling)
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
        bench.desk.is_held = True
        client.send(get("/ticket/photos") + data + get("/ticket/photos"))
        await bench.until(lambda: bench.desk.held)
        bench.desk.release()
        assert (await client.answer())[2]["id"] == 1
        await refused(bench, client, 400)
        assert bench.desk.taken == 1


async def test_a_request_that_does_not_end_ends_the_connection() -> None:
    async with serving() as bench:
        now = monotonic()
        for begin in (
            b"GET /tick",
            get("/ticket/photos")[:-2],
            b"POST /ticket/photos HTTP/1.1\r\nContent-Length: 9\r\n\r\n{",
            b"POST /ticket/photos HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        ):
            client = await bench.client()
            client.send(begin)
            await bench.until(lambda: bench.protocols and not bench.protocols[0]._is_between)
            bench.http.sweep(now + 5)
            assert len(bench.protocols) == 1
            bench.http.sweep(monotonic() + 11)
            assert await client.rest() == b""
            await bench.until(lambda: not bench.protocols)


async def test_an_idle_connection_is_kept_for_620_s() -> None:
    async with serving() as bench:
        client, other = await bench.client(), await bench.client()
        assert (await client.ask(get("/ticket/photos")))[0] == 200
        await bench.until(lambda: len(bench.protocols) == 2)
        bench.http.sweep(monotonic() + 615)
        assert (await client.ask(get("/ticket/photos")))[0] == 200
        bench.http.sweep(monotonic() + 621)
        assert (await client.rest(), await other.rest()) == (b"", b"")


async def test_a_client_that_leaves_abandons_its_draw() -> None:
    async with serving() as bench:
        bench.desk.is_held = True
        gone, other = await bench.client(), await bench.client()
        gone.send(get("/ticket/photos") + get("/livez"))
        await bench.until(lambda: len(bench.desk.held) == 1)
        other.send(get("/ticket/photos"))
        await bench.until(lambda: len(bench.desk.held) == 2)
        gone.writer.transport.abort()
        await bench.until(lambda: bench.desk.held[0].is_over)
        bench.desk.release()
        assert (await other.answer())[2]["id"] == 1
        assert (bench.tally.in_flight, bench.connections.count, bench.app.got) == (0, 1, [])


async def test_a_client_that_does_not_read_is_not_answered_further() -> None:
    async with serving() as bench:
        client = await bench.client()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        request = get("/ticket/photos?count=1000")
        client.send(request * 20_000)
        await bench.until(lambda: bench.protocols and bench.protocols[0].flow.write_paused)
        await asyncio.sleep(0.05)
        (protocol,) = bench.protocols
        assert protocol.transport.get_write_buffer_size() < 400_000
        taken = bench.desk.taken
        assert taken < 2_000
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(taken + 5):
            assert (await client.answer())[2]["count"] == 1000
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await bench.until(lambda: protocol.flow.write_paused)
        bench.http.sweep(monotonic() + 11)
        await bench.until(lambda: not bench.protocols)


async def test_a_client_may_ask_for_the_end_and_http_1_0_has_it() -> None:
    async with serving() as bench:
        for request in (get("/ticket/photos", "Connection: close"), get("/livez", version="1.0")):
            client = await bench.client()
            status, fields, _ = await client.ask(request + get("/ticket/photos"))
            assert (status, fields["connection"]) == (200, "close")
            assert await client.rest() == b""
        assert bench.desk.taken == 1


async def test_a_connection_that_drains_ends_before_what_is_no_http() -> None:
    async with serving() as bench:
        client = await bench.client()
        bench.desk.is_held = True
        client.send(get("/ticket/photos") + b"no HTTP" + get("/ticket/photos"))
        await bench.until(lambda: bench.desk.held)
        bench.http.begin_drain()
        bench.desk.release()
        assert (await client.answer())[1]["connection"] == "close"
        assert await client.rest() == b""


async def test_draining_ends_each_connection_behind_its_answer() -> None:
    async with serving() as bench:
        clients = [await bench.client() for _ in range(4)]
        assert (await clients[0].ask(get("/ticket/photos")))[0] == 200
        bench.desk.is_held = True
        clients[1].send(get("/ticket/photos"))
        bench.app.gate.clear()
        clients[2].send(get("/livez"))
        await bench.until(lambda: bench.desk.held and bench.app.got)
        bench.http.begin_drain()
        bench.desk.release()
        bench.desk.is_held = False
        bench.app.gate.set()
        clients[0].send(get("/ticket/photos"))
        clients[3].send(get("/livez"))
        for client in clients:
            assert (await client.answer())[1]["connection"] == "close"
            assert await client.rest() == b""


async def test_beyond_the_limit_a_connection_has_one_answer() -> None:
    async with serving(most=1) as bench:
        assert (await (await bench.client()).ask(get("/ticket/photos")))[0] == 200
        for path in ("/livez", "/readyz", "/healthz", "/metrics"):
            client = await bench.client()
            status, fields, told = await client.ask(get(path))
            assert (status, fields["connection"], told["app"]) == (200, "close", path)
            assert await client.rest() == b""
        client = await bench.client()
        status, fields, told = await client.ask(get("/ticket/photos"))
        assert (status, told["code"], fields["connection"]) == (503, "too-many-connections", "close")
        assert "retry-after" in fields
        waiting = [await bench.client() for _ in range(32)]
        await bench.until(lambda: bench.connections.count == 33)
        client = await bench.client()
        assert await client.rest() == b""
        bench.http.sweep(monotonic() + 11)
        for each in waiting:
            assert await each.rest() == b""
        await bench.until(lambda: bench.connections.count == 1)
