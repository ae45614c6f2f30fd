"""Requests that are passed on to the application: it is given what was sent, at its own pace."""

import asyncio
import json
from itertools import pairwise

import pytest

from app.http.tickets.protocol import AHEAD_BYTES
from app.http.tickets.reading import PIECE
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.http.http_bench import OTHER, PHOTOS, Bench, Client, chunked, echoed, ids, now, request, statuses

LARGE = bytes(range(256)) * 400
BODIES = {"none": b"", "one byte": b"x", "a line": b"\r\n", "a request": PHOTOS, "100 kB": LARGE}


async def send_in_pieces(client: Client, data: bytes, size: int) -> bytes:
    """Send it as a socket would: nothing while reading is paused."""
    for begin in range(0, len(data), size):
        for _ in range(1_000):
            if client.transport.reading:
                break
            await asyncio.sleep(0)
        assert client.transport.reading
        client.send(data[begin : begin + size])
        await asyncio.sleep(0)
    await settled()
    return client.take()


@pytest.mark.parametrize("size", [1_000_000, 1_460, 333])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@virtual_time
async def test_the_application_is_given_what_was_sent(bench: Bench, body: bytes, size: int) -> None:
    client = bench.connect()
    target = "/other/%70ath//x?a=1&b=%20&c"
    headers = ["X-Case: Value", "x-many: 1", "x-many: 2", "x-empty: ", "x-high: \u00fc"]
    chunks = [body[begin : begin + 30_000] for begin in range(0, len(body), 30_000)]
    alone = request(target, *headers, method="PUT", body=body)
    in_chunks = chunked(target, *chunks, headers=tuple(headers))
    for data, method in ((alone, "PUT"), (in_chunks, "POST"), (alone, "PUT"), (request(target, *headers), "GET")):
        given = echoed(await send_in_pieces(client, data, size))
        assert given[:4] == [method, "/other/%70ath//x", "a=1&b=%20&c", "1.1"]
        lines = data.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        fields = [line.partition(": ") for line in lines]
        assert given[4] == [[name.lower(), value.encode().decode("latin-1")] for name, _, value in fields]
        assert given[5].encode("latin-1") == (b"" if method == "GET" else body)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND"])
@virtual_time
async def test_any_method_is_passed_on(bench: Bench, method: str) -> None:
    client = bench.connect()
    answer = await client.ask(request("/other", method=method))
    assert statuses(answer) == [200]
    if method == "HEAD":
        assert answer.endswith(b"\r\n\r\n")
    else:
        assert echoed(answer)[0] == method
    assert statuses(await client.ask(OTHER)) == [200]


TARGETS = {
    "http://tickets/other": "/other",
    "http://tickets": None,
    "*": "*",
    "//ticket/photos": "//ticket/photos",
    "/ticket": "/ticket",
    "/ticket%2Fphotos": None,
    "/%20": "/%20",
    "/%ff": "/%ff",
    "/%": "/%",
    "/x#y": "/x",
    "/x?y#z": "/x",
    "x:80": None,
    "other": None,
    "?x": None,
    "http:///x": None,
    "/caf\u00e9": None,
    "/x\ty": None,
    "/\x7f": None,
}


@pytest.mark.parametrize(("target", "path"), TARGETS.items(), ids=map(repr, TARGETS))
@virtual_time
async def test_a_target_is_passed_on_as_it_is_or_refused(
    bench: Bench, caplog: pytest.LogCaptureFixture, target: str, path: str | None
) -> None:
    client = bench.connect()
    bench.issuer.on_issue = bench.issuer.answer
    answers = await client.ask(request(target).replace(b"\xc3\xa9", b"\xe9") + PHOTOS)
    if target == "/ticket%2Fphotos":  # a name is whatever stands behind the decoded path
        assert ids(answers) == [1, 3]
    elif path is None:
        assert statuses(answers) == [400]
        assert b"application/problem+json" in answers
        assert client.transport.ended
        assert (bench.issuer.asked, bench.app.begun) == ([], [])
    else:
        assert statuses(answers) == [200, 200]
        assert json.loads(answers.split(b"\r\n\r\n")[1].partition(b"HTTP")[0])[1] == path
    assert caplog.records == []


# --- the client waits to be told to send the body ---------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"hello", LARGE], ids=["short", "large"])
@virtual_time
async def test_a_client_that_asks_first_is_told_to_go_on(bench: Bench, body: bytes) -> None:
    client = bench.connect()
    for data in (
        request("/other", "Expect: 100-continue", method="POST", body=body),
        chunked("/other", body, headers=("expect: 100-Continue",)),
    ):
        head = data.index(b"\r\n\r\n") + 4
        assert await client.ask(data[:head]) == b"HTTP/1.1 100 Continue\r\n\r\n"
        answer = await send_in_pieces(client, data[head:], 10_000)
        assert statuses(answer) == [200]
        assert echoed(answer)[5].encode("latin-1") == body
    early = request("/early", "expect: 100-continue", method="POST", body=body)
    assert statuses(await client.ask(early[: -len(body)])) == [413]


@pytest.mark.parametrize("size", [10_000, 500])
@pytest.mark.parametrize("kind", ["length", "chunks"])
@virtual_time
async def test_behind_an_early_answer_the_rest_of_the_body_is_read_and_the_next_request_served(
    bench: Bench, kind: str, size: int
) -> None:
    client = bench.connect()
    body = PHOTOS * 1_500
    if kind == "length":
        data = request("/early", method="PUT", body=body)
    else:
        data = chunked("/early", body[:60_000], body[60_000:])
    answers = b""
    for _ in range(2):
        answers += await send_in_pieces(client, data + OTHER, size)
        assert client.protocol.since is None
    assert statuses(answers) == [413, 200] * 2
    client.send(PHOTOS)
    bench.issuer.answer()
    assert ids(client.take()) == [1]
    assert bench.issuer.asked == ["photos"]


@virtual_time
async def test_a_request_whose_body_is_coming_after_its_answer_is_still_under_way(bench: Bench) -> None:
    client = bench.connect()
    began = now()
    data = request("/early", method="PUT", body=b"hello")
    assert statuses(await client.ask(data[:-2])) == [413]
    assert client.protocol.since == began
    await asyncio.sleep(5)
    client.send(data[-2:])
    assert (client.protocol.idle_since, client.protocol.since is None) == (began + 5, True)


# --- bodies and responses that are larger than what is read, or written, at a time -----------------------------------


@virtual_time
async def test_a_body_is_read_no_faster_than_the_application_reads_it(bench: Bench) -> None:
    client = bench.connect()
    client.send(request("/wait", method="POST", body=b"x" * 400_000)[:-400_000])
    sent = 0
    while client.transport.reading and sent < 400_000:
        client.send(b"x" * 5_000)
        sent += 5_000
        await asyncio.sleep(0)
    assert sent <= 2 * AHEAD_BYTES
    bench.app.gate.set()
    await settled()
    assert client.transport.reading
    answer = await send_in_pieces(client, b"x" * (400_000 - sent) + OTHER, 5_000)
    assert statuses(answer) == [200, 200]
    assert len(bench.app.seen[0][1]) == 400_000


@virtual_time
async def test_one_large_read_is_fed_no_faster_either(bench: Bench) -> None:
    client = bench.connect()
    body = b"x" * 250_000
    client.send(request("/wait", method="POST", body=body) + OTHER)
    await settled()
    assert not client.transport.reading
    bench.app.gate.set()
    for _ in range(20):
        await settled()
    assert statuses(client.take()) == [200, 200]
    assert bench.app.seen == [("/wait", body), ("/other", b"")]
    assert bench.app.largest <= AHEAD_BYTES + 2 * PIECE
    assert client.transport.reading


@virtual_time
async def test_a_response_is_written_no_faster_than_the_client_reads(bench: Bench) -> None:
    client = bench.connect()
    bench.app.chunks = 1_000
    client.transport.on_write = client.protocol.pause_writing
    await client.ask(request("/parts") + PHOTOS)
    assert len(client.transport.calls) <= 3
    assert not client.transport.ended
    client.transport.on_write = lambda: None
    client.protocol.resume_writing()
    for _ in range(1_500):
        await asyncio.sleep(0)
    assert client.take().endswith(b"0\r\n\r\n")
    bench.issuer.answer()
    assert ids(client.take()) == [1]


@virtual_time
async def test_a_response_in_parts_is_whole_and_in_its_place(bench: Bench) -> None:
    client = bench.connect()
    answers = await client.ask(request("/parts") + OTHER + request("/parts", method="HEAD") + OTHER)
    assert statuses(answers) == [200] * 4
    assert answers.count(b"6\r\npart 0\r\n6\r\npart 1\r\n6\r\npart 2\r\n0\r\n\r\n") == 1


def test_pieces_are_smaller_than_what_is_kept() -> None:
    assert all(smaller < larger for smaller, larger in pairwise([100, PIECE, AHEAD_BYTES]))
