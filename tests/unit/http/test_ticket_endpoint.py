"""Tickets and blocks, read and answered, counted once; the issuer is a fake that counts."""

import asyncio
import gc
import itertools
import json
import weakref
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from app.common.errors import (
    InvalidRequest,
    NoTicketDatabase,
    OutOfTime,
    SequenceExhausted,
    TicketError,
    UnknownError,
    UnknownSequence,
)
from app.http.query import Parameters
from app.http.tickets.endpoint import ACCEPT_BYTES, prefers_text
from app.http.tickets.responses import Dated
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.http.asgi import Answer
from tests.unit.http.http_bench import BLOCK, PHOTOS, TEXT, Bench, chunked, ids, request

BIG = 2**63 - 1


def parsed(raw: bytes) -> Answer:
    head, _, body = raw.partition(b"\r\n\r\n")
    status, *fields = head.decode("latin-1").split("\r\n")
    return Answer(int(status.split()[1]), dict(field.split(": ", 1) for field in fields), body)


async def ask(bench: Bench, data: bytes) -> Answer:
    """One request, answered at once."""
    bench.issuer.on_issue = bench.issuer.answer
    answer = parsed(await bench.connect().ask(data))
    assert bench.metrics.in_flight == 0
    assert answer.headers["cache-control"] == "no-store"
    assert parsedate_to_datetime(answer.headers["date"])
    if not data.startswith(b"HEAD"):
        assert int(answer.headers["content-length"]) == len(answer.body)
    return answer


@virtual_time
async def test_one_ticket(bench: Bench) -> None:
    answer = await ask(bench, PHOTOS)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.body == b'{"sequence":"photos","id":1,"id_str":"1"}'
    assert (await ask(bench, request(method="POST"))).json()["id"] == 3
    assert bench.outcomes() == {("ticket", "ok"): 2}
    assert sum(bench.metrics.issue_seconds.counts) == 2


@virtual_time
async def test_what_stands_far_behind_in_an_accept_header_is_not_looked_at(bench: Bench) -> None:
    wish = "text/plain, "
    for kinds, text in ((10, True), (ACCEPT_BYTES // 4, False)):
        accept = "a/b," * kinds + wish
        answer = await ask(bench, request("/ticket/photos", f"accept: {accept}"))
        assert answer.headers["content-type"].startswith("text/plain" if text else "application/json")


@virtual_time
async def test_several_tickets_are_a_list_even_if_it_is_one(bench: Bench) -> None:
    several = await ask(bench, request("/ticket/photos?count=3"))
    assert several.json() == {"sequence": "photos", "count": 3, "ids": [1, 3, 5], "ids_str": ["1", "3", "5"]}
    assert (await ask(bench, request("/ticket/photos?count=1"))).json()["ids"] == [7]


@virtual_time
async def test_large_ids_stand_as_strings_too(bench: Bench) -> None:
    bench.issuer.next = BIG
    assert (await ask(bench, PHOTOS)).json() == {"sequence": "photos", "id": BIG, "id_str": str(BIG)}


@virtual_time
async def test_tickets_as_text(bench: Bench) -> None:
    one = await ask(bench, TEXT)
    assert (one.body, one.headers["content-type"]) == (b"1\n", "text/plain; charset=utf-8")
    assert (await ask(bench, request("/ticket/photos?count=2", "Accept: text/plain"))).body == b"3\n5\n"


@virtual_time
async def test_a_block_is_whole(bench: Bench) -> None:
    bench.issuer.on_issue = lambda: asked.append((bench.issuer.waiting[0].count, bench.issuer.waiting[0].whole))
    asked: list[tuple[int, bool]] = []
    client = bench.connect()
    client.send(request("/block/photos?size=500", "accept: text/plain"))
    bench.issuer.answer()
    answer = parsed(client.take())
    assert answer.json() == {"sequence": "photos", "first": 1, "first_str": "1", "step": 2, "size": 500}
    assert answer.headers["content-type"] == "application/json"
    assert asked == [(500, True)]
    assert bench.outcomes() == {("block", "ok"): 1}


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
@pytest.mark.parametrize("path", ["/ticket/photos", "/block/photos?size=3"])
@virtual_time
async def test_another_method_draws_nothing(bench: Bench, method: str, path: str) -> None:
    answer = await ask(bench, request(path, method=method))
    assert (answer.status, answer.headers["allow"]) == (405, "GET, POST")
    assert (answer.body == b"") is (method == "HEAD")
    assert bench.issuer.asked == []
    assert bench.outcomes() == {(path.split("/")[1], "invalid"): 1}


@pytest.mark.parametrize(
    ("error", "status", "outcome"),
    [
        (InvalidRequest("bad name"), 422, "invalid"),
        (UnknownSequence("no such"), 404, "unknown"),
        (SequenceExhausted("all used"), 410, "exhausted"),
        (NoTicketDatabase("none up"), 503, "unavailable"),
        (OutOfTime(), 503, "timeout"),
        (TicketError("something else"), 503, "unavailable"),
        (UnknownError(), 500, "error"),
    ],
)
@virtual_time
async def test_every_error_is_a_problem(bench: Bench, error: TicketError, status: int, outcome: str) -> None:
    client = bench.connect()
    for count in (1, 2):
        client.send(PHOTOS)
        bench.issuer.refuse(error)
        answer = parsed(client.take())
        assert answer.status == answer.json()["status"] == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert ("retry-after" in answer.headers) is (status == 503)
        assert bench.outcomes() == {("ticket", outcome): count}
        assert bench.metrics.in_flight == 0


@virtual_time
async def test_after_draining_nothing_is_issued_and_who_was_here_is_served(bench: Bench) -> None:
    before = bench.connect()
    before.send(PHOTOS)
    bench.desk.closed = True
    for data in (PHOTOS, BLOCK):
        answer = parsed(await bench.connect().ask(data))
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert bench.issuer.asked == ["photos"]
    bench.issuer.fail_over()
    bench.issuer.answer()
    assert ids(before.take()) == [1]
    assert bench.outcomes() == {("ticket", "draining"): 1, ("block", "draining"): 1, ("ticket", "ok"): 1}


@pytest.mark.parametrize("bench", [("secret-ü", "other")], indirect=True)
@virtual_time
async def test_without_a_token_nothing_is_issued(bench: Bench) -> None:
    for refused in (PHOTOS, request("/ticket/photos", "authorization: Bearer wrong")):
        answer = await ask(bench, refused)
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert bench.issuer.asked == []
    for token in ("secret-ü", "other"):
        assert (await ask(bench, request("/ticket/photos", f"Authorization: Bearer {token}"))).status == 200
    assert bench.outcomes() == {("ticket", "denied"): 2, ("ticket", "ok"): 2}


@pytest.mark.parametrize("bench", [("right",)], indirect=True)
@virtual_time
async def test_a_token_behind_the_body_is_none(bench: Bench) -> None:
    head = request("/ticket/photos", "transfer-encoding: chunked", method="POST")
    answer = await ask(bench, head + b"0\r\nauthorization: Bearer right\r\n\r\n")
    assert answer.status == 401
    assert bench.issuer.asked == []


@virtual_time
async def test_everything_else_is_passed_on(bench: Bench) -> None:
    paths = ["/", "/ticket", "/tickets/photos", "/sequence/photos", "/Ticket/photos", "//ticket/photos", "/block"]
    for path in paths:
        assert b"HTTP/1.1 200" in await bench.connect().ask(request(path))
    assert bench.app.begun == paths
    assert bench.issuer.asked == []


@virtual_time
async def test_a_name_may_be_percent_encoded_and_the_target_absolute(bench: Bench) -> None:
    for target in ("/ticket/%70hotos", "http://tickets/ticket/photos", "/%74icket/photos", "/ticket/photos#there"):
        assert (await ask(bench, request(target))).json()["sequence"] == "photos"
    assert (await ask(bench, request("/block/%70hotos?size=2"))).json()["sequence"] == "photos"


@virtual_time
async def test_every_answer_is_counted_once(bench: Bench) -> None:
    client = bench.connect()
    for count in range(1, 5):
        client.send(PHOTOS)
        assert bench.metrics.in_flight == 1
        for _ in range(count):
            bench.issuer.fail_over()
        assert bench.metrics.in_flight == 1
        bench.issuer.answer()
        assert len(ids(await client.ask())) == 1
        assert bench.outcomes() == {("ticket", "ok"): count}
        assert sum(bench.metrics.issue_seconds.counts) == count
        assert bench.metrics.in_flight == 0


async def test_the_time_that_is_counted_begins_with_the_request(bench: Bench) -> None:
    client = bench.connect()
    client.send(PHOTOS)
    await asyncio.sleep(0.05)
    bench.issuer.fail_over()
    bench.issuer.answer()
    await settled()
    assert 0.045 <= bench.metrics.issue_seconds.total < 10


def test_the_date_is_that_of_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    dated = Dated(b"")
    found = []
    for time in (1_000.0, 1_000.9, 1_001.1, 1_001.999, 1_002.5, 900.0, 5_000.0):
        monkeypatch.setattr("app.http.tickets.responses.time.time", lambda time=time: time)
        date = dated.now().split(b"\r\n")[1].removeprefix(b"date: ").decode()
        found.append(parsedate_to_datetime(date).timestamp())
    assert found == [1_000, 1_000, 1_001, 1_001, 1_002, 900, 5_000]


@virtual_time
async def test_of_a_request_that_is_settled_nothing_is_left_to_collect(bench: Bench) -> None:
    client = bench.connect()
    gc.collect()
    gc.disable()
    try:
        for end in (bench.issuer.answer, lambda: bench.issuer.refuse(OutOfTime())):
            client.send(PHOTOS)
            left = weakref.ref(bench.issuer.waiting[0])
            end()
            assert left() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("query", [b"count=10", b"a=1&count=10", b"%63ount=%310", b"count=10&"])
def test_a_number_is_read(query: bytes) -> None:
    assert Parameters(query).number("count", 10) == 10


@pytest.mark.parametrize("query", [b"", b"x=1", b"Count=5", b"counts=5", b"&&", b"=5"])
def test_a_number_that_is_not_given_is_none(query: bytes) -> None:
    assert Parameters(query).number("count", 10) is None


NONE_AT_ALL = [
    "", "0", "00", "01", "11", "-1", "+1", "%2B1", " 1", "1 ", "1e0", "0x1", "1.0", "1_0", "１", "²", "٣", "%00",
    "1\x00", "1\n", "9" * 5000, "1;2", "null",
]  # fmt: skip


@pytest.mark.parametrize("text", NONE_AT_ALL, ids=lambda text: repr(text[:8]))
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"1 to 10|cannot be read"):
        Parameters(b"count=" + text.encode()).number("count", 10)


@pytest.mark.parametrize("query", [b"count=1&count=1", b"count=1&count=", b"&".join([b"a=1"] * 50), b"\xff=1"])
def test_a_query_that_is_unclear_is_refused(query: bytes) -> None:
    with pytest.raises(InvalidRequest):
        Parameters(query).number("count", 10)


UNKNOWN = ["n=5", "Count=5", "COUNT=5", "counts=5", "count=5&n=5", "=5", "x", "%43ount=5", "5", "count%5B%5D=5"]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("query", UNKNOWN)
@virtual_time
async def test_a_parameter_that_is_not_known_is_refused(bench: Bench, query: str, method: str) -> None:
    tickets = await ask(bench, request(f"/ticket/photos?{query}", method=method))
    block = await ask(bench, request(f"/block/photos?size=3&{query}", method=method))
    assert (tickets.status, block.status) == (422, 422)
    assert tickets.json()["detail"].endswith("; there are count, key, shard")
    assert block.json()["detail"].endswith("; there is size")
    assert bench.issuer.asked == []
    assert bench.outcomes() == {("ticket", "invalid"): 1, ("block", "invalid"): 1}


@virtual_time
async def test_an_error_repeats_the_beginning_of_a_parameter_alone(bench: Bench) -> None:
    answer = await ask(bench, request(f"/ticket/photos?{'n' * 5_000}=5"))
    assert answer.json()["detail"] == f"there is no parameter {'n' * 64}…; there are count, key, shard"


@pytest.mark.parametrize("query", ["_=17", "_&_", "_x=1&count=3", "count=3&_count=4", "%5Fx=5&count=3", "&&"])
@virtual_time
async def test_a_parameter_that_begins_with_an_underline_is_ignored(bench: Bench, query: str) -> None:
    for method in ("GET", "POST"):
        answer = await ask(bench, request(f"/ticket/photos?{query}", method=method))
        assert answer.status == 200
        assert ("ids" in answer.json()) is ("count=3" in query)


BODIES_THAT_ASK = [
    b'{"count": 5}',
    b"count=5",
    b"5",
    b"{",
    b"}",
    b"{}{}",
    b"[]",
    b"null",
    b'""',
    b"{}x",
    b"\x00",
    b"\x0b",
]


@pytest.mark.parametrize("body", BODIES_THAT_ASK)
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("target", "known"), [("/ticket/photos", "are count, key, shard"), ("/block/photos?size=3", "is size")]
)
@virtual_time
async def test_a_body_that_asks_for_something_is_refused(
    bench: Bench, target: str, known: str, method: str, body: bytes
) -> None:
    for data in (
        request(target, method=method, body=body),
        chunked(target, *(body[i : i + 1] for i in range(len(body)))),
    ):
        answer = await ask(bench, data)
        assert answer.status == 422
        assert answer.json()["detail"].endswith(f"there {known}")
    assert bench.issuer.asked == []
    assert bench.outcomes() == {(target.split("/")[1], "invalid"): 2}


@pytest.mark.parametrize(
    "body", [b" ", b"{}", b"\r\n\t {}\n", b"{ }", b" \n" * 5_000, b" " * 5_000 + b"{" + b" " * 5_000 + b"}"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
@virtual_time
async def test_a_body_that_asks_for_nothing_is_accepted(bench: Bench, method: str, body: bytes) -> None:
    assert (await ask(bench, request(method=method, body=body))).status == 200
    assert (await ask(bench, chunked("/block/photos?size=3", body[:1], body[1:] or b" "))).status == 200


@pytest.mark.parametrize("target", ["/ticket/photos?count=1001", "/block/photos", "/block/photos?size=10001"])
@virtual_time
async def test_a_bad_number_is_answered_and_counted_and_nothing_is_issued(bench: Bench, target: str) -> None:
    assert (await ask(bench, request(target))).status == 422
    assert bench.outcomes() == {(target.split("/")[1], "invalid"): 1}
    assert bench.issuer.asked == []


@pytest.mark.parametrize(
    ("accept", "text"),
    [("text/plain", True), ("TEXT/PLAIN;Q=1", True), ("text/plain,*/*", True), ("text/plain, application/json", True),
     ("application/json, text/plain", False), ("text/plain;q=0.4, */*;q=0.5", False), ("*/*", False), ("", False),
     ("text/plain;q=0", False), ("text/plain;q=nan", False), ("text/plain;q=", False), ("text/*", False)],
)  # fmt: skip
def test_text_is_for_those_who_want_it(accept: str, text: bool) -> None:
    assert prefers_text(accept.encode()) is text


def test_any_accept_header_is_read() -> None:
    pieces: list[Any] = [b"text/plain", b";", b",", b"q=", b"\xff", b"*/*", b"=", b" "]
    for parts in itertools.product(pieces, repeat=4):
        prefers_text.__wrapped__(b"".join(parts))


@virtual_time
async def test_the_last_header_of_a_name_counts(bench: Bench) -> None:
    answer = await ask(bench, request("/ticket/photos", "Accept: application/json", "ACCEPT: text/plain"))
    assert answer.body == b"1\n"
    assert json.loads((await ask(bench, request("/ticket/photos", "accept: text/plain", "accept: */*"))).body)
