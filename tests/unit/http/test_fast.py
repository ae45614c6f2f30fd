"""What `http/fast` serves by itself, and what it leaves to FastAPI."""

import json

import pytest

from app.errors import Exhausted, OutOfTime
from tests.unit.http.fast_bench import Watching, get, serving

TOKEN = "a-token-of-these-tests"


async def test_a_ticket_a_list_and_a_block() -> None:
    async with serving() as bench:
        client = await bench.client()
        status, fields, told = await client.ask(get("/ticket/PHOTOS"))
        assert (status, told) == (200, {"sequence": "Photos", "id": 1, "id_str": "1"})
        assert (fields["cache-control"], fields["content-type"]) == ("no-store", "application/json")
        assert "connection" not in fields
        told = (await client.ask(get("/ticket/photos?count=3&_=17")))[2]
        assert told == {"sequence": "Photos", "count": 3, "ids": [2, 3, 4], "ids_str": ["2", "3", "4"]}
        assert (await client.ask(get("/ticket/photos?count=1")))[2]["ids"] == [5]
        told = (await client.ask(get("/block/photos?size=500")))[2]
        assert told == {"sequence": "Photos", "first": 6, "first_str": "6", "step": 2, "size": 500}
        assert bench.app.got == []
        assert (bench.tally.in_flight, bench.tally.client_connections) == (0, 1)


async def test_long_ids_are_strings_and_text_has_one_a_line() -> None:
    async with serving() as bench:
        client = await bench.client()
        bench.desk.answers = {"long": "00ff", "longs": ["00fe", "00ff"]}
        assert (await client.ask(get("/ticket/long")))[2] == {"sequence": "long", "id": "00ff", "id_str": "00ff"}
        assert (await client.ask(get("/ticket/longs?count=2")))[2]["ids"] == ["00fe", "00ff"]
        status, fields, text = await client.ask(get("/ticket/photos?count=2", "Accept: text/plain"))
        assert (status, fields["content-type"], text) == (200, "text/plain; charset=utf-8", b"1\n2\n")
        assert (await client.ask(get("/ticket/photos", "Accept: text/plain")))[2] == b"3\n"
        assert (await client.ask(get("/ticket/photos", "Accept: */*")))[2]["id"] == 4
        assert (await client.ask(get("/block/photos?size=2", "Accept: text/plain")))[2]["size"] == 2


@pytest.mark.parametrize(
    "path",
    [
        *[f"/ticket/photos?count={text}" for text in ("", "0", "03", "1001", "+3", "%33", "3x", "-1")],
        "/ticket/photos?count=2&count=2",
        "/ticket/photos?_=1&_=1",
        "/ticket/photos?cuont=2",
        "/ticket/photos?size=2",
        "/ticket/photos?key=1",
        "/ticket/likes?key=9223372036854775808",
        "/ticket/unknown?shard=1",
        "/ticket/_photos",
        "/ticket/photos/1",
        "/ticket/%70hotos",
        "/ticket/" + "a" * 65,
        "/ticket/",
        "/block/photos",
        "/block/photos?size=10001",
        "/block/photos?count=2",
        "/healthz",
        "http://a/ticket/photos",
        "/ticket/photos?" + "_a=1&" * 1000,
    ],
)
async def test_what_is_not_plain_is_fastapis(path: str) -> None:
    async with serving() as bench:
        client = await bench.client()
        assert "app" in (await client.ask(get(path)))[2]
        assert bench.desk.taken == 0


@pytest.mark.parametrize(
    "request_bytes",
    [
        get("/ticket/photos", method="POST"),
        get("/ticket/photos", method="POST").replace(b"\r\n\r\n", b"\r\nContent-Length: 2\r\n\r\n{}"),
        get("/ticket/photos", "Content-Length: 2") + b"{}",
        get("/ticket/photos", "Transfer-Encoding: chunked") + b"2;a=b\r\n{}\r\n0\r\nAccept: text/plain\r\n\r\n",
        get("/ticket/photos", "Origin: http://elsewhere"),
        get("/ticket/photos", "Sec-Fetch-Site: cross-site"),
        get("/ticket/photos", "Accept: text/plain", "Accept: */*"),
        get("/ticket/photos", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AA"),
        get("/ticket/photos", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: AAAA"),
    ],
)
async def test_other_methods_bodies_browsers_and_offers_are_fastapis(request_bytes: bytes) -> None:
    async with serving() as bench:
        client = await bench.client()
        client.send(request_bytes + get("/ticket/photos"))
        assert (await client.answer())[2]["app"] == "/ticket/photos"
        assert (await client.answer())[2]["id"] == 1


async def test_head_has_no_body_and_draws_nothing() -> None:
    async with serving() as bench:
        client = await bench.client()
        client.send(get("/ticket/photos", "Connection: close", method="HEAD"))
        assert (await client.rest()).endswith(b"\r\n\r\n")
        assert (bench.desk.taken, bench.app.got) == (0, ["HEAD /ticket/photos"])


async def test_a_client_that_waits_for_100_continue_gets_it() -> None:
    async with serving() as bench:
        client = await bench.client()
        client.send(get("/ticket/photos", "Expect: 100-continue", "Content-Length: 2", method="POST"))
        assert (await client.answer_head()) == "HTTP/1.1 100 Continue"
        client.send(b"{}")
        assert (await client.answer())[2]["size"] == 2


async def test_a_shard_is_for_kinds_that_have_shards() -> None:
    async with serving() as bench:
        client = await bench.client()
        bench.desk.is_held = True
        client.send(get("/ticket/likes?key=31341"))
        await bench.until(lambda: bench.desk.held)
        assert (bench.desk.held[0].key, bench.desk.held[0].shard) == (31341, None)
        bench.desk.release()
        assert (await client.answer())[0] == 200


async def test_a_block_that_the_increment_does_not_allow_is_fastapis() -> None:
    async with serving() as bench:
        bench.desk.increment = 100
        client = await bench.client()
        assert "app" in (await client.ask(get("/block/photos?size=656")))[2]
        assert (await client.ask(get("/block/photos?size=655")))[2]["size"] == 655


async def test_errors_of_the_desk_are_problems() -> None:
    async with serving() as bench:
        client = await bench.client()
        bench.desk.is_held = True
        for error, status, code in ((OutOfTime(), 503, "out-of-time"), (Exhausted(), 410, "exhausted")):
            client.send(get("/ticket/photos"))
            await bench.until(lambda: bench.desk.held)
            bench.desk.held.pop().fail(error)
            answer = await client.answer()
            assert (answer[0], answer[2]["code"], answer[1]["content-type"]) == (
                status,
                code,
                "application/problem+json",
            )
            assert ("retry-after" in answer[1]) == (status == 503)
        assert bench.tally.in_flight == 0


async def test_the_same_bytes_need_no_parser_until_tokens_change() -> None:
    async with serving([TOKEN]) as bench:
        client = await bench.client()
        request = get("/ticket/photos", f"Authorization: Bearer {TOKEN}")
        assert [(await client.ask(request))[2]["id"] for _ in range(3)] == [1, 2, 3]
        assert list(bench.http.memo) == [request]
        assert "app" in (await client.ask(get("/ticket/photos")))[2]
        bench.access.replace(["another-token-of-tests"], [])
        assert "app" in (await client.ask(request))[2]
        bench.access.replace([TOKEN], [])
        assert [(await client.ask(request))[2]["id"] for _ in range(2)] == [4, 5]


async def test_the_memo_keeps_whole_single_requests_only() -> None:
    async with serving() as bench:
        client = await bench.client()
        one = get("/ticket/photos")
        client.send(one + one)
        assert [(await client.answer())[2]["id"] for _ in range(2)] == [1, 2]
        for request in (
            get("/ticket/likes?shard=1"),
            get("/block/photos?size=2"),
            get("/ticket/photos", "traceparent: 00-1"),
        ):
            assert (await client.ask(request))[0] == 200
        client.send(one[:20])
        await bench.until(lambda: not bench.protocols[0]._is_between)
        assert (await client.ask(one[20:]))[0] == 200
        assert list(bench.http.memo) == []


async def test_who_watches_sees_path_status_and_trace_but_no_token() -> None:
    watching = Watching()
    async with serving([TOKEN], watch=watching) as bench:
        client = await bench.client()
        headers = f"Authorization: Bearer {TOKEN}", "traceparent: 00-ab-cd-01"
        await client.ask(get("/ticket/photos?count=2", *headers))
        (seen,) = watching.seen
        assert (seen.what, seen.status, seen.client) == ("GET /ticket/photos?count=2", "200", "127.0.0.1")
        assert (seen.sequence, seen.traceparent) == ("photos", "00-ab-cd-01")
        assert TOKEN not in json.dumps(seen)
