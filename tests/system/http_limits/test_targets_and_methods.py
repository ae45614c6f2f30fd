"""Bad counts, sizes, names, paths, methods and Accept headers: a clear error, and service for everybody else."""

import json

import pytest

from tests.harness.ticketd import TicketServer
from tests.system.http_limits.replies import answer, problem

pytestmark = pytest.mark.any_engine


# -- counts, sizes, names


BAD_NUMBERS = [
    "1e3",
    "0x10",
    "%EF%BC%91%EF%BC%90",
    "%D9%A1",
    "%205",
    "5%20",
    "+5",
    "%2B5",
    "-1",
    "1_000",
    "1" + "0" * 30,
    "0",
    "00",
    "01",
    "",
    "1.0",
    "1,0",
    "null",
    "true",
    "NaN",
    "%00",
    "1%00",
    "5%0A",
    "1001",
    "10001",
    "99999999999999999999",
    "9" * 6000,
]


@pytest.mark.parametrize("number", BAD_NUMBERS, ids=lambda number: number[:12] or "empty")
def test_a_number_that_is_none_is_refused(server: TicketServer, number: str) -> None:
    assert "from 1 to 1000" in problem(server.get(f"/ticket/photos?count={number}"), 422)
    if number != "1001":
        assert "from 1 to 10000" in problem(server.post(f"/block/photos?size={number}"), 422)


@pytest.mark.parametrize(
    "query", ["count=1&count=1", "count=1&count=", "count", "x=1&count=0", "&".join(["a=1"] * 40), "%63ount=0"]
)
def test_a_query_that_is_unclear_is_refused(server: TicketServer, query: str) -> None:
    problem(server.get(f"/ticket/photos?{query}"), 422)


@pytest.mark.parametrize("query", ["count=2", "_x=1&count=2", "count=2&", "%63ount=%32", "count=2#7"])
def test_a_query_that_is_clear_is_served(server: TicketServer, query: str) -> None:
    assert len(server.get(f"/ticket/photos?{query}").json()["ids"]) == 2


def test_a_block_wants_its_size(server: TicketServer) -> None:
    assert "size is required" in problem(server.get("/block/photos"), 422)
    assert "there is no parameter count; there is size" in problem(server.get("/block/photos?count=3"), 422)


BAD_NAMES = [
    "",
    "%20",
    "a;b",
    "a%60b",
    "a%27b",
    "..%2Fx",
    "%2E%2E",
    "..%2F..%2Fetc%2Fpasswd",
    "a" * 65,
    "information_schema.tables",
    "caf%C3%A9",
    "%EF%BC%A1",
    "photos%00",
    "%00",
    "photos%20",
    "photos%0A",
    "_marks",
    "1a",
    "a-b",
    "photos/",
    "photos%2F",
    "%FF%FE",
    "%ED%A0%80",
    "a%25b",
    "photos;x=1",
    "%",
    "%zz",
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: name[:20] or "empty")
def test_a_name_that_is_none_is_refused(server: TicketServer, name: str) -> None:
    for target in (f"/ticket/{name}", f"/block/{name}?size=1", f"/sequence/{name}"):
        raw = server.raw(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode("latin-1"))
        status, headers, body = answer(raw)
        allowed = {404, 422} | ({200} if target == "/sequence/" else set())
        assert status in allowed, raw
        assert headers["content-type"] == "application/problem+json"
        assert json.loads(body)["status"] == status


def test_a_name_may_be_percent_encoded(server: TicketServer) -> None:
    assert server.get("/ticket/%70hotos").json()["sequence"] == "photos"
    assert server.get("/sequence/photo%73").json()["sequence"] == "photos"
    problem(server.get("/ticket/Photos"), 404)


@pytest.mark.parametrize(
    "path",
    [
        "//ticket/photos",
        "/ticket/../ticket/photos",
        "/./ticket/photos",
        "/TICKET/photos",
        "/ticket",
        "/ticket\\photos",
        "/docs/",
        "/static/page.css",
        "/..%2f..%2fetc/passwd",
        "*",
        "/healthz/x",
        "/%00",
    ],
)
def test_tricks_with_the_path_lead_nowhere(server: TicketServer, path: str) -> None:
    status, headers, _ = answer(server.raw(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()))
    assert status in (400, 404, 422)
    assert headers["content-type"] == "application/problem+json"


# -- methods


METHODS = ["HEAD", "DELETE", "OPTIONS", "PATCH", "PUT", "TRACE", "PROPFIND"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", ["/ticket/photos", "/block/photos?size=3"])
def test_another_method_draws_nothing(server: TicketServer, method: str, path: str) -> None:
    before = server.get("/sequence/photos").json()["databases"]
    reply = server.request(method, path)
    assert reply.status == 405
    assert reply.headers["allow"] == "GET, POST"
    assert reply.headers["cache-control"] == "no-store"
    assert (reply.body == b"") is (method == "HEAD")
    assert server.get("/sequence/photos").json()["databases"] == before


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/sequence", "GET, HEAD"),
        ("/sequence/photos", "GET, HEAD, PUT"),
        ("/sequence/photos/bump", "POST"),
        ("/healthz", "GET, HEAD"),
        ("/", "GET, HEAD"),
        ("/metrics", "GET, HEAD"),
    ],
)
def test_a_405_names_every_method_that_is_allowed(server: TicketServer, path: str, allowed: str) -> None:
    reply = server.request("DELETE", path)
    problem(reply, 405)
    assert reply.headers["allow"] == allowed
    assert server.request("OPTIONS", path).status == 405


@pytest.mark.parametrize(
    "path",
    ["/livez", "/readyz", "/healthz", "/metrics", "/sequence", "/sequence/photos", "/", "/docs", "/openapi.json"],
)
def test_head_answers_as_get_without_a_body(server: TicketServer, path: str) -> None:
    get, head = server.get(path), server.request("HEAD", path)
    assert (head.status, head.body) == (get.status, b"")
    assert head.headers["content-type"] == get.headers["content-type"]


# -- Accept


@pytest.mark.parametrize(
    ("accept", "text"),
    [
        ("text/plain", True),
        ("Text/Plain", True),
        ("text/plain; charset=utf-8", True),
        ("text/plain, */*", True),
        ("text/plain, application/json", True),
        ("text/plain;q=0.9, application/json;q=0.5", True),
        ("application/json;q=0.1, text/plain", True),
        ("text/plain,text/html;q=0.3", True),
        ("*/*", False),
        ("", False),
        ("application/json", False),
        ("application/json, text/plain, */*", False),
        ("text/plain;q=0", False),
        ("text/plain;q=0.5, application/json", False),
        ("text/plain;q=0.5, */*", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        ("text/plain;q=x", False),
        ("text/plainest", False),
        (";;;,,,q=1", False),
        ("text/plain;q=0.5," + "a/b," * 2000, True),
    ],
)
def test_text_is_for_those_who_want_it(server: TicketServer, accept: str, text: bool) -> None:
    reply = server.get("/ticket/photos?count=2", headers={"Accept": accept})
    assert reply.status == 200
    if text:
        assert reply.headers["content-type"] == "text/plain; charset=utf-8"
        assert len([int(line) for line in reply.text.splitlines()]) == 2
        assert reply.text.endswith("\n")
    else:
        assert reply.headers["content-type"] == "application/json"
        assert reply.json()["count"] == 2
    assert reply.headers["cache-control"] == "no-store"
