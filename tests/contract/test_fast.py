"""What `http/fast` serves by itself, and what it leaves to FastAPI."""

from types import SimpleNamespace
from typing import Any

import pytest

from app.errors import Exhausted, OutOfTime
from app.http.cycle import LARGEST_MEMO
from app.operations.watch import Seen
from tests.contract.fast_bench import Bench, Client, get
from tests.contract.http_bench import USER, until

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PHOTOS = get("/ticket/photos")


def with_token(token: str, *headers: str) -> bytes:
    return get("/ticket/photos", f"Authorization: Bearer {token}", *headers)


async def test_tickets_lists_and_blocks_as_large_as_the_increment_allows(fast: Bench, client: Client) -> None:
    status, fields, told = await client.ask(get("/ticket/PHOTOS", "Accept: */*"))
    assert (status, told) == (200, {"sequence": "Photos", "id": 1, "id_str": "1"})
    assert (fields["cache-control"], fields["content-type"]) == ("no-store", "application/json")
    assert "connection" not in fields
    told = (await client.ask(get("/ticket/photos?count=3")))[2]
    assert told == {"sequence": "Photos", "count": 3, "ids": [2, 3, 4], "ids_str": ["2", "3", "4"]}
    told = (await client.ask(get("/block/photos?size=500", "Accept: text/plain")))[2]
    assert told == {"sequence": "Photos", "first": 5, "first_str": "5", "step": 2, "size": 500}
    status, fields, text = await client.ask(get("/ticket/photos?count=2", "Accept: text/plain"))
    assert (status, fields["content-type"], text) == (200, "text/plain; charset=utf-8", b"6\n7\n")
    assert (await client.ask(get("/ticket/photos", "Accept: text/plain")))[2] == b"8\n"
    assert (await client.ask(get("/ticket/likes?key=31341")))[2]["sequence"] == "likes"
    assert (fast.desk.last.key, fast.desk.last.shard) == (31341, None)
    fast.desk.increment = 100
    assert (await client.ask(get("/block/photos?size=655")))[2]["size"] == 655
    assert fast.app.got == []
    assert "app" in (await client.ask(get("/block/photos?size=656")))[2]
    assert (fast.tally.in_flight, fast.tally.client_connections) == (0, 1)


PATHS = [
    *[f"/ticket/photos?count={text}" for text in ("", "0", "03", "1001", "+3", "%33", "3x", "-1", "2&count=2")],
    *[f"/ticket/{rest}" for rest in ("photos?_=17", "photos?size=2", "likes?key=9223372036854775808")],
    *[f"/ticket/{rest}" for rest in ("_photos", "photos/1", "%70hotos", "a" * 65, "")],
    *[f"/block/photos{query}" for query in ("", "?size=10001", "?count=2")],
    "/healthz", "http://a/ticket/photos", "/ticket/photos?" + "count=1&" * 1000,
]  # fmt: skip
OTHERS = [
    get("/ticket/photos", method="POST"),
    get("/ticket/photos", method="POST").replace(b"\r\n\r\n", b"\r\nContent-Length: 2\r\n\r\n{}"),
    get("/ticket/photos", "Content-Length: 2") + b"{}",
    get("/livez", "Content-Length: 3001", method="POST") + b"\r\n\r\n" * 750 + b"G",
    get("/ticket/photos", "Transfer-Encoding: chunked") + b"2;a=b\r\n{}\r\n0\r\nAccept: text/plain\r\n\r\n",
    get("/ticket/photos", "Origin: http://elsewhere"),
    get("/ticket/photos", "Sec-Fetch-Site: cross-site"),
    get("/ticket/photos", "Accept: text/plain", "Accept: */*"),
    get("/ticket/photos", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AA"),
    get("/ticket/photos", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: AAAA"),
    get("/livez", "Connection: Upgrade", "Upgrade: websocket"),
]


@pytest.mark.parametrize("data", [*map(get, PATHS), *OTHERS])
async def test_what_is_not_plain_is_fastapis_and_the_next_request_is_ours(client: Client, data: bytes) -> None:
    told = (await client.ask(data + PHOTOS))[2]
    assert "app" in told
    assert told["accept"] != ["text/plain"]  # trailers are no headers
    assert (await client.answer())[2]["id"] == 1


async def test_head_has_no_body_and_100_continue_is_sent(fast: Bench, client: Client) -> None:
    client.send(get("/ticket/photos", "Connection: close", method="HEAD"))
    assert (await client.rest()).endswith(b"\r\n\r\n")
    assert (fast.desk.taken, fast.app.got) == (0, ["HEAD /ticket/photos"])
    other = await fast.client()
    asked = get("/ticket/photos", "Expect: 100-continue", "Content-Length: 2", method="POST")
    assert (await other.ask(asked))[0] == 100
    assert (await other.ask(b"{}"))[2]["size"] == 2


async def test_errors_of_the_desk_are_problems(fast: Bench, client: Client) -> None:
    fast.desk.is_held = True
    for error, status, code in ((OutOfTime(), 503, "out-of-time"), (Exhausted(), 410, "exhausted")):
        client.send(PHOTOS)
        await until(lambda: fast.desk.held)
        fast.desk.held.pop().fail(error)
        answer = await client.answer()
        assert (answer[0], answer[2]["code"]) == (status, code)
        assert answer[1]["content-type"] == "application/problem+json"
        assert ("retry-after" in answer[1]) == (status == 503)
    assert fast.tally.in_flight == 0


async def test_who_watches_sees_path_status_and_trace_but_no_token(fast: Bench, client: Client) -> None:
    seen: list[Seen] = []
    watch: Any = SimpleNamespace(saw=seen.append)
    fast.http.watch = watch
    fast.access.replace([USER], [])
    asked = with_token(USER, f"traceparent: {PARENT}").replace(b"photos", b"photos?count=2")
    for _ in range(2):  # read by the parser, and known
        await client.ask(asked)
    assert [each[:5] for each in seen] == [("http", "GET /ticket/photos?count=2", "photos", "127.0.0.1", "200")] * 2
    assert {each.traceparent for each in seen} == {PARENT}
    assert USER not in repr(seen)


async def test_a_request_that_is_known_needs_no_parser_whatever_its_traceparent(fast: Bench, client: Client) -> None:
    assert [(await client.ask(PHOTOS))[2]["id"] for _ in range(3)] == [1, 2, 3]
    (protocol,) = fast.protocols
    protocol.parser = None  # only what needs no parser is served from here on
    assert (await client.ask(PHOTOS))[2]["id"] == 4
    for parent in (PARENT, PARENT.replace("7", "8")):
        assert (await client.ask(get("/ticket/photos", f"traceparent: {parent}")))[2]["id"]
    assert list(fast.http.memo.known) == [PHOTOS]
    for other in (f"traceparent: {PARENT}x", f"traceparent: {PARENT}\r\n X: y", f"X-Traceparent: {PARENT}"):
        assert fast.http.memo.find(get("/ticket/photos", other)) is None
    assert fast.http.memo.find(PHOTOS + f"traceparent: {PARENT}\r\n".encode()) is None


async def test_a_known_request_is_forgotten_when_tokens_change(fast: Bench, client: Client) -> None:
    fast.access.replace([USER], [])
    old, new = with_token(USER), with_token("another")
    assert [(await client.ask(old))[2]["id"] for _ in range(2)] == [1, 2]
    fast.access.replace(["another"], [])
    assert [(await client.ask(new))[2]["id"] for _ in range(2)] == [3, 4]
    for refused in (old, PHOTOS):
        assert "app" in (await client.ask(refused))[2]


async def test_only_the_bytes_of_one_whole_request_for_any_ticket_are_known(fast: Bench, client: Client) -> None:
    for request in (get("/ticket/likes?shard=1"), get("/block/photos?size=2"), get("/livez")):
        assert (await client.ask(request))[0] == 200
    (protocol,) = fast.protocols
    client.send(PHOTOS[:20])
    await until(lambda: protocol._part)
    assert (await client.ask(PHOTOS[20:] + b"\r\n\r\n"))[0] == 200
    protocol.data_received(b"\r\n\r\n")
    protocol.data_received(b"\r\n")
    assert list(fast.http.memo.known) == []
    client.send(PHOTOS + PHOTOS + b"\r\n\r\n" + PHOTOS[:-2])
    assert [(await client.answer())[0] for _ in range(2)] == [200, 200]
    await until(lambda: protocol._part)
    assert list(fast.http.memo.known) == [PHOTOS]
    protocol.data_received(PHOTOS)  # known, and no header of the request before
    assert (await client.answer())[0] == 400


async def test_what_stands_behind_a_request_with_a_token_is_not_known_without_it(fast: Bench, client: Client) -> None:
    fast.access.replace([USER], [])
    asked = with_token(USER)
    client.send(asked + b"\r\n\r\n" + PHOTOS + asked)
    assert ["app" in (await client.answer())[2] for _ in range(3)] == [False, True, False]
    assert list(fast.http.memo.known) == [asked]
    assert "app" in (await client.ask(b"\r\n\r\n" + PHOTOS))[2]


async def test_a_memo_that_is_full_begins_again(fast: Bench, client: Client) -> None:
    wanted: Any = None
    fast.http.memo.known = {b"%d" % number: wanted for number in range(LARGEST_MEMO)}
    assert (await client.ask(PHOTOS))[0] == 200
    assert list(fast.http.memo.known) == [PHOTOS]
