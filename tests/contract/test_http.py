"""What the server promises of HTTP whatever is asked for: the same on the embedded pair and on MySQL or MariaDB."""

from typing import Any

import pytest

from tests.contract.replies import conforms, description, is_problem
from tests.harness.ticketd import TicketServer

# -- methods


@pytest.mark.parametrize("path", ["/ticket/{}", "/ticket/{}?count=3", "/block/{}?size=3"])
def test_head_draws_nothing(ticket_server: TicketServer, sequence: str, path: str) -> None:
    reply = ticket_server.request("HEAD", path.format(sequence))
    assert reply.status == 405
    assert {method.strip() for method in reply.headers["allow"].split(",")} == {"GET", "POST"}
    assert reply.body == b""
    assert [each["last"] for each in description(ticket_server, sequence)["databases"]] == [None, None]
    assert {ticket_server.ticket(sequence) for _ in range(2)} == {1, 2}


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/sequence", "/sequence/{}"])
def test_head_answers_as_get_elsewhere(ticket_server: TicketServer, sequence: str, path: str) -> None:
    head, get = (ticket_server.request(method, path.format(sequence)) for method in ("HEAD", "GET"))
    assert head.status == get.status == 200
    assert head.body == b""
    assert head.headers["content-type"] == get.headers["content-type"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/ticket/{}", {"GET", "POST"}),
        ("DELETE", "/ticket/{}", {"GET", "POST"}),
        ("PATCH", "/block/{}?size=1", {"GET", "POST"}),
        ("DELETE", "/sequence/{}", {"GET", "HEAD", "PUT"}),
        ("POST", "/sequence/{}", {"GET", "HEAD", "PUT"}),
        ("POST", "/sequence", {"GET", "HEAD"}),
        ("GET", "/sequence/{}/bump", {"POST"}),
        ("POST", "/livez", {"GET", "HEAD"}),
        ("DELETE", "/healthz", {"GET", "HEAD"}),
    ],
)
def test_another_method_is_refused_with_those_that_are_allowed(
    ticket_server: TicketServer, sequence: str, method: str, path: str, allowed: set[str]
) -> None:
    reply = ticket_server.request(method, path.format(sequence))
    is_problem(reply, 405)
    assert {each.strip() for each in reply.headers["allow"].split(",")} == allowed


def test_no_such_page(ticket_server: TicketServer) -> None:
    for path in ("/nothing", "/ticket", "/tickets/photos", "/sequence/photos/nothing", "/livez/x"):
        is_problem(ticket_server.get(path), 404)


# -- health


def test_health(ticket_server: TicketServer) -> None:
    assert ticket_server.get("/livez").status == 200
    assert ticket_server.get("/readyz").status == 200
    reply = ticket_server.get("/healthz")
    assert reply.status == 200
    body = reply.json()
    assert body["status"] in ("pass", "warn")
    assert body["version"]
    assert isinstance(body["warnings"], list)
    assert [each["offset"] for each in body["databases"]] == [1, 2]
    for database in body["databases"]:
        assert database.keys() == {"name", "offset", "status", "since", "latency_ms", "last_error"}
        assert database["status"] == "up"
        assert database["latency_ms"] > 0


# -- the wire


def test_requests_on_one_connection_are_answered_in_order(ticket_server: TicketServer, sequence: str) -> None:
    get = f"GET /ticket/{sequence} HTTP/1.1\r\nHost: tickets\r\n"
    answer = ticket_server.raw(f"{get}\r\n{get}\r\n{get}Connection: close\r\n\r\n".encode())
    assert answer.count(b"HTTP/1.1 200") == 3
    assert answer.count(b'"id":') == 3


@pytest.mark.parametrize("path", ["/ticket/{}", "/block/{}?size=3"])
def test_a_request_for_tickets_that_asks_in_another_way_draws_nothing(
    ticket_server: TicketServer, sequence: str, path: str
) -> None:
    target = path.format(sequence)
    assert [conforms(ticket_server, "GET", target).status for _ in range(2)] == [200, 200]  # one from each database
    before = description(ticket_server, sequence)["databases"]
    bodies: list[dict[str, Any]] = [
        {"json": {"count": 3}},
        {"content": b"x" * 1000},
        {"content": iter([b"{", b"5", b"}"])},
    ]
    for body in bodies:
        assert "the body" in is_problem(conforms(ticket_server, "POST", target, **body), 422)
    joined = target + ("&" if "?" in target else "?")
    for query in ("n=5", "Count=5", "x"):
        why = is_problem(conforms(ticket_server, "GET", joined + query), 422)
        assert ("count, key, shard" if "ticket" in path else "size") in why
    assert description(ticket_server, sequence)["databases"] == before
    for body in ({"content": b" {}\n"}, {"content": iter([b"{", b" }"])}, {"json": {}}):
        assert conforms(ticket_server, "POST", joined + "_=5", **body).status == 200


@pytest.mark.parametrize("garbage", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"], ids=ascii)
def test_what_is_no_http_is_refused_and_the_next_one_served(
    ticket_server: TicketServer, sequence: str, garbage: bytes
) -> None:
    answer = ticket_server.raw(garbage, timeout=2)
    assert b" 200 " not in answer.split(b"\r\n")[0]
    assert ticket_server.ticket(sequence) in (1, 2)
