"""Tickets and blocks, read and answered; the issuer is a fake that counts."""

import itertools
from typing import Any, cast

import pytest
from pydantic import SecretStr
from starlette.types import Receive, Scope, Send

from app.common.errors import (
    InvalidRequest,
    NoTicketDatabase,
    OutOfTime,
    SequenceExhausted,
    TicketError,
    UnknownSequence,
)
from app.http.access import Access
from app.http.ticket_endpoint import TicketEndpoint, number_in, prefers_text
from app.operations.metrics import Metrics
from app.tickets.issuer import TicketIssuer
from tests.unit.http.asgi import Answer, ask

BIG = 2**63 - 1


class FakeIssuer:
    """Issues odd numbers in order; or fails as it is told."""

    increment = 2
    largest_block = 10_000
    first_attempt = 0.5

    def __init__(self) -> None:
        self.next = 1
        self.asked: list[tuple[str, int, bool]] = []
        self.error: Exception | None = None

    async def issue(self, name: str, count: int, *, whole: bool = False, first: object = None) -> Any:
        self.asked.append((name, count, whole))
        if self.error is not None:
            raise self.error
        first, self.next = self.next, self.next + 2 * count
        return range(first, self.next, 2)


class Endpoint:
    """The endpoint with its fake issuer and real metrics."""

    def __init__(self, *tokens: str) -> None:
        self.issuer = FakeIssuer()
        self.metrics = Metrics()
        self.passed_on: list[str] = []
        access = Access([SecretStr(token) for token in tokens], [])
        self.app = TicketEndpoint(self._rest, cast(TicketIssuer, self.issuer), access, self.metrics)

    async def _rest(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.passed_on.append(scope["path"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def ask(self, target: str, **options: Any) -> Answer:
        answer = await ask(self.app, target, **options)
        assert self.metrics.in_flight == 0
        if answer.status != 204:
            assert answer.headers["cache-control"] == "no-store"
            if options.get("method") != "HEAD":
                assert int(answer.headers["content-length"]) == len(answer.body)
        return answer

    def outcomes(self) -> dict[tuple[str, str], int]:
        return dict(self.metrics.requests)


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


async def test_one_ticket(endpoint: Endpoint) -> None:
    answer = await endpoint.ask("/ticket/photos")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.body == b'{"sequence":"photos","id":1,"id_str":"1"}'
    assert (await endpoint.ask("/ticket/photos", method="POST")).json()["id"] == 3
    assert endpoint.outcomes() == {("ticket", "ok"): 2}
    assert sum(endpoint.metrics.issue_seconds.counts) == 2


async def test_several_tickets_are_a_list_even_if_it_is_one(endpoint: Endpoint) -> None:
    several = await endpoint.ask("/ticket/photos?count=3")
    assert several.json() == {"sequence": "photos", "count": 3, "ids": [1, 3, 5], "ids_str": ["1", "3", "5"]}
    assert (await endpoint.ask("/ticket/photos?count=1")).json()["ids"] == [7]


async def test_large_ids_stand_as_strings_too(endpoint: Endpoint) -> None:
    endpoint.issuer.next = BIG
    assert (await endpoint.ask("/ticket/photos")).json() == {"sequence": "photos", "id": BIG, "id_str": str(BIG)}


async def test_tickets_as_text(endpoint: Endpoint) -> None:
    one = await endpoint.ask("/ticket/photos", headers={"Accept": "text/plain"})
    assert (one.body, one.headers["content-type"]) == (b"1\n", "text/plain; charset=utf-8")
    assert (await endpoint.ask("/ticket/photos?count=2", headers={"Accept": "text/plain"})).body == b"3\n5\n"


async def test_a_block_is_whole(endpoint: Endpoint) -> None:
    answer = await endpoint.ask("/block/photos?size=500", headers={"Accept": "text/plain"})
    assert answer.json() == {"sequence": "photos", "first": 1, "first_str": "1", "step": 2, "size": 500}
    assert answer.headers["content-type"] == "application/json"
    assert endpoint.issuer.asked == [("photos", 500, True)]


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
@pytest.mark.parametrize("path", ["/ticket/photos", "/block/photos?size=3"])
async def test_another_method_draws_nothing(endpoint: Endpoint, method: str, path: str) -> None:
    answer = await endpoint.ask(path, method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, POST")
    assert (answer.body == b"") is (method == "HEAD")
    assert endpoint.issuer.asked == []


@pytest.mark.parametrize(
    ("error", "status", "outcome"),
    [
        (InvalidRequest("bad name"), 422, "invalid"),
        (UnknownSequence("no such"), 404, "unknown"),
        (SequenceExhausted("all used"), 410, "exhausted"),
        (NoTicketDatabase("none up"), 503, "unavailable"),
        (OutOfTime(), 503, "timeout"),
        (TicketError("something else"), 503, "unavailable"),
        (RuntimeError("pa$$word of the driver"), 500, "error"),
    ],
)
async def test_every_error_is_a_problem(endpoint: Endpoint, error: Exception, status: int, outcome: str) -> None:
    endpoint.issuer.error = error
    answer = await endpoint.ask("/ticket/photos")
    assert answer.status == answer.json()["status"] == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert ("retry-after" in answer.headers) is (status == 503)
    assert b"pa$$word" not in answer.body
    assert endpoint.outcomes() == {("ticket", outcome): 1}


async def test_after_draining_nothing_is_issued(endpoint: Endpoint) -> None:
    endpoint.app.draining_is_over = True
    for target in ("/ticket/photos", "/block/photos?size=2"):
        answer = await endpoint.ask(target)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert endpoint.issuer.asked == []


async def test_without_a_token_nothing_is_issued() -> None:
    endpoint = Endpoint("secret-ü")
    refused = await endpoint.ask("/ticket/photos")
    assert refused.status == 401
    assert refused.headers["www-authenticate"].startswith("Bearer")
    allowed = await endpoint.ask("/ticket/photos", headers={"Authorization": "Bearer secret-ü".encode()})
    assert allowed.status == 200
    assert endpoint.outcomes() == {("ticket", "denied"): 1, ("ticket", "ok"): 1}
    assert len(endpoint.issuer.asked) == 1


async def test_everything_else_is_passed_on(endpoint: Endpoint) -> None:
    for path in ("/", "/ticket", "/tickets/photos", "/sequence/photos", "/Ticket/photos"):
        assert (await endpoint.ask(path)).status == 204
    assert len(endpoint.passed_on) == 5


@pytest.mark.parametrize("query", [b"count=10", b"a=1&count=10", b"%63ount=%310", b"count=10&"])
def test_a_number_is_read(query: bytes) -> None:
    assert number_in(query, "count", 10) == 10


@pytest.mark.parametrize("query", [b"", b"x=1", b"Count=5", b"counts=5", b"&&", b"=5"])
def test_a_number_that_is_not_given_is_none(query: bytes) -> None:
    assert number_in(query, "count", 10) is None


NONE_AT_ALL = [
    "", "0", "00", "01", "11", "-1", "+1", "%2B1", " 1", "1 ", "1e0", "0x1", "1.0", "1_0", "１", "²", "٣", "%00",
    "1\x00", "1\n", "9" * 5000, "1;2", "null",
]  # fmt: skip


@pytest.mark.parametrize("text", NONE_AT_ALL, ids=lambda text: repr(text[:8]))
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"1 to 10|cannot be read"):
        number_in(b"count=" + text.encode(), "count", 10)


@pytest.mark.parametrize("query", [b"count=1&count=1", b"count=1&count=", b"&".join([b"a=1"] * 50), b"\xff=1"])
def test_a_query_that_is_unclear_is_refused(query: bytes) -> None:
    with pytest.raises(InvalidRequest):
        number_in(query, "count", 10)


@pytest.mark.parametrize(
    ("accept", "text"),
    [("text/plain", True), ("TEXT/PLAIN;Q=1", True), ("text/plain,*/*", True), ("text/plain, application/json", True),
     ("application/json, text/plain", False), ("text/plain;q=0.4, */*;q=0.5", False), ("*/*", False), ("", False),
     ("text/plain;q=0", False), ("text/plain;q=nan", False), ("text/plain;q=", False), ("text/*", False)],
)  # fmt: skip
def test_text_is_for_those_who_want_it(accept: str, text: bool) -> None:
    assert prefers_text(accept.encode()) is text


def test_any_accept_header_is_read() -> None:
    pieces = [b"text/plain", b";", b",", b"q=", b"\xff", b"*/*", b"=", b" "]
    for parts in itertools.product(pieces, repeat=4):
        prefers_text.__wrapped__(b"".join(parts))
