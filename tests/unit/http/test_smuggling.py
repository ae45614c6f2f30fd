"""Bytes that two readers could read differently: refused, or read in one way, and never by two parsers differently."""

import pytest

from app.http.tickets.reading import HEAD_BYTES
from tests.fakes.virtual_time import virtual_time
from tests.unit.http.http_bench import ALBUMS, OTHER, PHOTOS, POST, Bench, chunked, echoed, ids, request, statuses

HEAD = "{method} {target} HTTP/1.1\r\nhost: tickets\r\n"
CHUNKED = "transfer-encoding: chunked\r\n"
HIDDEN = "GET /ticket/hidden HTTP/1.1\r\n\r\n"

REFUSED = {
    "both lengths": "content-length: 5\r\n" + CHUNKED + "\r\n0\r\n\r\n",
    "both lengths, the other way round": CHUNKED + "content-length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": "content-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
    "the same length twice": "content-length: 5\r\ncontent-length: 5\r\n\r\nhello",
    "two lengths in one": "content-length: 5, 5\r\n\r\nhello",
    "a length with a sign": "content-length: +5\r\n\r\nhello",
    "a length in hexadecimal": "content-length: 0x5\r\n\r\nhello",
    "a length that is empty": "content-length:\r\n\r\n" + HIDDEN,
    "a length that is too large": "content-length: 99999999999999999999\r\n\r\n" + HIDDEN,
    "a space before the colon": "content-length : 5\r\n\r\nhello",
    "a space before a name": "x: y\r\n content-length: 5\r\n\r\nhello",
    "a folded header": "x: y\r\n\tz\r\n\r\n",
    "a folded encoding": "transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a bare line feed in the head": "x: y\ncontent-length: 5\r\n\r\nhello",
    "a bare line feed at its end": "x: y\r\n\n" + HIDDEN,
    "a bare carriage return": "x: y\rcontent-length: 5\r\n\r\nhello",
    "NUL in a value": "x: \x00\r\n\r\n",
    "NUL in a name": "x\x00: y\r\n\r\n",
    "a control character": "x: \x0b\r\n\r\n",
    "no colon": "x\r\n\r\n",
    "no name": ": y\r\n\r\n",
    "an encoding that is none": "transfer-encoding: gzip\r\n\r\n" + HIDDEN,
    "an encoding almost chunked": "transfer-encoding: xchunked\r\n\r\n" + HIDDEN,
    "an encoding in quotes": 'transfer-encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "an encoding that is empty": "transfer-encoding:\r\n\r\n" + HIDDEN,
    "an empty encoding and a length": "content-length: 5\r\ntransfer-encoding:\r\n\r\nhello",
    "chunked twice": CHUNKED + CHUNKED + "\r\n0\r\n\r\n",
    "chunked, then another": CHUNKED + "transfer-encoding: identity\r\n\r\n0\r\n\r\n",
    "chunked in the wrong place": "transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "a size that is none": CHUNKED + "\r\nx\r\nhello\r\n0\r\n\r\n",
    "a size with a sign": CHUNKED + "\r\n+5\r\nhello\r\n0\r\n\r\n",
    "a size with a prefix": CHUNKED + "\r\n0x5\r\nhello\r\n0\r\n\r\n",
    "a size that is negative": CHUNKED + "\r\n-1\r\nhello\r\n0\r\n\r\n",
    "a size that is too large": CHUNKED + "\r\nffffffffffffffff1\r\nhello\r\n0\r\n\r\n",
    "a size that is too small": CHUNKED + "\r\n3\r\nhello\r\n0\r\n\r\n",
    "a size that is one too large": CHUNKED + "\r\n6\r\nhello\r\n0\r\n\r\n",
    "a space behind a size": CHUNKED + "\r\n5 \r\nhello\r\n0\r\n\r\n",
    "no line end behind a size": CHUNKED + "\r\n5\nhello\r\n0\r\n\r\n",
    "no line end behind a chunk": CHUNKED + "\r\n5\r\nhello0\r\n\r\n",
    "a line end in an extension": CHUNKED + '\r\n5;x="y\nz"\r\nhello\r\n0\r\n\r\n',
    "a trailer with a space": CHUNKED + "\r\n0\r\nx : y\r\n\r\n",
    "a trailer with a length": CHUNKED + "\r\n0\r\ncontent-length: 5\r\n\r\n",
    "a trailer that encodes": CHUNKED + "\r\n0\r\ntransfer-encoding: chunked\r\n\r\n",
    "a trailer that closes": CHUNKED + "\r\n0\r\nconnection: close\r\n\r\n",
}


@pytest.mark.parametrize("apart", [False, True], ids=["in one piece", "byte by byte"])
@pytest.mark.parametrize("target", ["/ticket/photos", "/other", "/wait"])
@pytest.mark.parametrize("rest", REFUSED.values(), ids=REFUSED)
@virtual_time
async def test_what_could_be_read_in_two_ways_is_refused(
    bench: Bench, caplog: pytest.LogCaptureFixture, target: str, rest: str, apart: bool
) -> None:
    data = (HEAD.format(method="POST", target=target) + rest).encode("latin-1") + HIDDEN.encode()
    client = bench.connect()
    answer = await client.ask(*([data[place : place + 1] for place in range(len(data))] if apart else [data]))
    assert statuses(answer) == [400]
    assert b"\r\ncontent-type: application/problem+json\r\n" in answer
    assert b"\r\nconnection: close\r\n" in answer
    assert client.transport.calls[-1] == "close"
    assert "hidden" not in bench.issuer.asked
    assert bench.app.seen == []
    assert bench.metrics.in_flight == 0
    assert caplog.records == []  # strangers do not fill the log


@pytest.mark.parametrize("rest", REFUSED.values(), ids=REFUSED)
@virtual_time
async def test_who_was_before_it_is_served_first(bench: Bench, rest: str) -> None:
    for target in ("/ticket/photos", "/other"):
        client = bench.connect()
        broken = (HEAD.format(method="POST", target=target) + rest).encode("latin-1")
        client.send(ALBUMS + OTHER + PHOTOS + broken + HIDDEN.encode(), HIDDEN.encode())
        answers = b""
        for _ in range(2):
            bench.issuer.answer()
            answers += await client.ask()
        assert statuses(answers) == [200, 200, 200, 400]
        assert client.transport.calls[-1] == "close"
    assert bench.issuer.asked == ["albums", "photos"] * 2
    assert bench.app.seen == [("/other", b"")] * 2


@pytest.mark.parametrize("target", ["/ticket/photos", "/early"])
@virtual_time
async def test_to_a_body_that_breaks_behind_the_answer_there_is_no_second_answer(bench: Bench, target: str) -> None:
    """Whoever waits for the next answer would take it for that."""
    client = bench.connect()
    broken = (HEAD.format(method="PUT", target=target) + CHUNKED + "\r\n5\r\nhel").encode()
    bench.issuer.on_issue = bench.issuer.answer
    assert len(statuses(await client.ask(broken))) == 1
    assert await client.ask(b"no chunk\r\n", b"\r\n") == b""
    assert client.transport.calls[-1] == "close"


@pytest.mark.parametrize("target", ["/ticket/photos", "/other"])
@virtual_time
async def test_a_body_that_breaks_behind_another_response_is_refused(bench: Bench, target: str) -> None:
    client = bench.connect()
    assert statuses(await client.ask(OTHER)) == [200]
    broken = (HEAD.format(method="POST", target=target) + CHUNKED + "\r\n5\r\nhel").encode()
    assert statuses(await client.ask(broken, b"no chunk\r\n")) == [400]


@virtual_time
async def test_into_a_response_that_has_begun_no_problem_is_written(bench: Bench) -> None:
    client = bench.connect()
    broken = (HEAD.format(method="POST", target="/hesitates") + CHUNKED + "\r\n5\r\nhel").encode()
    assert len(statuses(await client.ask(broken))) == 1
    assert await client.ask(b"no chunk\r\n", b"\r\n") == b""
    assert client.transport.calls[-1] == "close"


@virtual_time
async def test_for_a_body_that_breaks_no_ticket_is_drawn(bench: Bench) -> None:
    client, other = bench.connect(), bench.connect()
    client.send((HEAD.format(method="POST", target="/ticket/photos") + CHUNKED + "\r\n2\r\n{").encode())
    other.send(PHOTOS)
    client.send(b"no chunk\r\n")
    assert statuses(client.take()) == [400]
    bench.issuer.answer()
    assert (await client.ask(), ids(other.take())) == (b"", [1])
    assert bench.issuer.asked == ["photos"]


@virtual_time
async def test_a_last_request_whose_body_breaks_is_refused(bench: Bench) -> None:
    for target in ("/ticket/photos", "/other"):
        client = bench.connect()
        broken = request(target, "connection: close", "transfer-encoding: chunked", method="POST") + b"x\r\n"
        assert statuses(await client.ask(broken)) == [400]
        assert client.transport.ended


ACCEPTED = {
    "an extension": (CHUNKED + '\r\n5;x=y;z="w"\r\nhello\r\n0;x\r\n\r\n', "hello"),
    "zeros before a size": (CHUNKED + "\r\n0005\r\nhello\r\n000\r\n\r\n", "hello"),
    "two encodings": ("transfer-encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "hello"),
    "two encodings apart": ("transfer-encoding: gzip\r\n" + CHUNKED + "\r\n5\r\nhello\r\n0\r\n\r\n", "hello"),
    "capitals": ("TRANSFER-ENCODING: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "hello"),
    "a space behind the encoding": ("transfer-encoding: chunked \r\n\r\n5\r\nhello\r\n0\r\n\r\n", "hello"),
    "a space behind a length": ("content-length: 5 \r\n\r\nhello", "hello"),
    "zeros before a length": ("content-length: 005\r\n\r\nhello", "hello"),
    "no length": ("\r\n", ""),
    "trailers": (CHUNKED + "\r\n5\r\nhello\r\n0\r\nexpect: 100-continue\r\nx: y\r\n\r\n", "hello"),
    "a trailer that upgrades": (CHUNKED + "\r\n0\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n", ""),
}


@pytest.mark.parametrize("before", [b"", OTHER], ids=["first", "second"])
@pytest.mark.parametrize(("rest", "body"), ACCEPTED.values(), ids=ACCEPTED)
@virtual_time
async def test_what_is_accepted_is_read_in_one_way(bench: Bench, rest: str, body: str, before: bytes) -> None:
    client = bench.connect()
    data = (HEAD.format(method="POST", target="/other") + rest).encode()
    answers = await client.ask(before + data + PHOTOS)
    given = echoed(b"HTTP/1.1 200".join(answers.rpartition(b"HTTP/1.1 200")[1:]))
    assert given[5] == body
    assert ["x", "y"] not in given[4]
    assert [value for name, value in given[4] if name == "content-length"] in ([], ["5"], ["005"], ["5 "])
    assert bench.issuer.asked == ["photos"]
    bench.issuer.answer()
    assert ids(await client.ask(data, PHOTOS)) == [1]
    bench.issuer.answer()
    assert ids(client.take()) == [3]


@pytest.mark.parametrize("target", ["/ticket/photos", "/other", "tickets:443", "*", "http://tickets/ticket/photos"])
@virtual_time
async def test_no_tunnel_is_opened(bench: Bench, caplog: pytest.LogCaptureFixture, target: str) -> None:
    for body in ("", "content-length: 5\r\n"):
        client = bench.connect()
        head = HEAD.format(method="CONNECT", target=target) + body + "\r\n"
        assert statuses(await client.ask(head.encode() + PHOTOS)) in ([400], [405])
        assert client.transport.ended
    assert (bench.issuer.asked, bench.app.begun, caplog.records) == ([], [], [])


NO_REQUESTS = [
    b"GARBAGE\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"get / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1 \r\n\r\n",
    b"GET / http/1.1\r\n\r\n", b"GET / HTTP/1.1\n\n", b"GET /ticket/\x00 HTTP/1.1\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\n\r\n", b"\x00", b"GET / HTTP/1.1\r\n\x00",
]  # fmt: skip


@pytest.mark.parametrize("data", NO_REQUESTS)
@virtual_time
async def test_what_is_no_request_is_refused(bench: Bench, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    for pieces in ([data + PHOTOS], [POST + data], [data[place : place + 1] for place in range(len(data))]):
        client = bench.connect()
        bench.issuer.on_issue = bench.issuer.answer
        answers = await client.ask(*pieces)
        assert statuses(answers)[-1] == 400
        assert statuses(answers).count(400) == 1
        assert client.transport.ended
    assert caplog.records == []


# --- what is too large -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1_000, 64_000, 300_000], ids=["small reads", "large reads", "one read"])
@pytest.mark.parametrize(
    "begin",
    [
        b"GET /ticket/",
        b"GET /ticket/photos HTTP/1.1\r\nx: ",
        b"GET /ticket/photos HTTP/1.1\r\n" + b"x: y\r\n" * 3_000,
        chunked("/other", trailers=b"x: ")[:-2],
        chunked("/ticket/photos", trailers=b"x: ")[:-2],
        chunked("/early", b"hello", trailers=b"x: y\r\n" * 3_000)[:-2],
    ],
    ids=["target", "value", "many", "trailer", "trailer of a ticket", "trailers behind the answer"],
)
@virtual_time
async def test_a_head_and_its_trailers_are_limited(bench: Bench, begin: bytes, size: int) -> None:
    client = bench.connect()
    data = begin + b"x" * 300_000
    answers = b""
    for place in range(0, len(data), size):
        if not client.transport.ended:
            answers += await client.ask(data[place : place + size])
    assert client.transport.ended
    assert statuses(answers) in ([431], [413])
    assert bench.app.seen == []
    for _ in bench.issuer.waiting.copy():
        bench.issuer.answer()


@virtual_time
async def test_a_large_head_is_served_wherever_it_begins(bench: Bench) -> None:
    client = bench.connect()
    data = b"".join(
        request("/ticket/photos", "x: " + "y" * (HEAD_BYTES - 1_200), *extra, body=body, method="POST")
        for extra, body in [((), b""), (("a: b",), b"{}"), ((), b" " * 900)]
    )
    for begin in range(0, 4 * len(data), 7_777):
        client.send((data * 4)[begin : begin + 7_777])
        while bench.issuer.waiting:
            bench.issuer.answer()
    assert statuses(await client.ask()) == [200] * 12


@virtual_time
async def test_a_large_chunk_is_no_large_head(bench: Bench) -> None:
    client = bench.connect()
    body = b"x" * 60_000
    assert statuses(await client.ask(chunked("/other", body))) == [200]
    assert bench.app.seen == [("/other", body)]
