"""Bad bodies: a clear error, and service for everybody else."""

import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.ticketd import TicketServer
from tests.system.http_limits.replies import JSON, problem

pytestmark = pytest.mark.any_engine


def test_put_takes_no_body_an_empty_one_and_an_object(server: TicketServer, new_name: Callable[[], str]) -> None:
    assert server.put(f"/sequence/{new_name()}").status == 201
    assert server.put(f"/sequence/{new_name()}", content=b"", headers=JSON).status == 201
    assert server.put(f"/sequence/{new_name()}", json={}).status == 201
    assert server.put(f"/sequence/{new_name()}", json={"bits": 32}).json()["bits"] == 32
    assert server.put(f"/sequence/{new_name()}", json={"start": "1000"}).status == 201


BAD_BODIES: list[Any] = [
    b"{",
    b"[]",
    b"1",
    b'"x"',
    b"{'bits': 64}",
    b"\xff\xfe",
    b"\x00",
    b'{"bits": 64}}',
    b"{} {}",
    b'{"bits": 16}',
    b'{"bits": "64"}',
    b'{"bits": 64.5}',
    b'{"bits": true}',
    b'{"bits": NaN}',
    b'{"start": 0}',
    b'{"start": -1}',
    b'{"start": "-1"}',
    b'{"start": "1e3"}',
    b'{"start": " 5"}',
    b'{"start": 1.5}',
    b'{"start": []}',
    b'{"start": "\xef\xbc\x91"}',
    b'{"start": true}',
    b'{"begin": 1}',
    b'{"\\ud800": 1}',
    b'{"' + b"x" * 60_000 + b'": 1}',
    b"[" * 60_000,
    b'{"a":' * 10_000,
    b'{"start": ' + b"9" * 60_000 + b"}",
    b'{"start": 1e400}',
    b'{"start": Infinity}',
]


@pytest.mark.parametrize("body", BAD_BODIES, ids=lambda body: repr(body[:24]))
def test_a_body_that_is_none_is_refused(server: TicketServer, new_name: Callable[[], str], body: bytes) -> None:
    name = new_name()
    reply = server.put(f"/sequence/{name}", content=body, headers=JSON)
    assert len(problem(reply, 422)) < 1000
    problem(server.get(f"/sequence/{name}"), 404)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{}",
        b'{"above": null}',
        b'{"above": -1}',
        b'{"above": "x"}',
        b'{"above": 1.5}',
        b'{"above": 1, "force": "yes"}',
        b'{"above": 1, "more": 1}',
    ],
)
def test_a_bump_that_is_none_is_refused(server: TicketServer, body: bytes) -> None:
    problem(server.post("/sequence/photos/bump", content=body, headers=JSON), 422)


@pytest.mark.parametrize("above", ["1" + "0" * 30, '"1' + "0" * 30 + '"', str(2**63 - 1), str(2**64)])
def test_a_bump_beyond_the_end_is_a_conflict(server: TicketServer, above: str) -> None:
    body = f'{{"above": {above}, "force": true}}'.encode()
    problem(server.post("/sequence/photos/bump", content=body, headers=JSON), 409)


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "x"],
)
def test_a_body_has_to_say_that_it_is_json(server: TicketServer, new_name: Callable[[], str], kind: str) -> None:
    """A page elsewhere can make a browser send these, but not JSON."""
    for reply in (
        server.put(f"/sequence/{new_name()}", content=b'{"bits": 64}', headers={"Content-Type": kind}),
        server.post("/sequence/photos/bump", content=b'{"above": 1}', headers={"Content-Type": kind}),
    ):
        assert "application/json" in problem(reply, 422)


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/vnd.tickets+json"])
def test_what_is_json_may_say_so_in_many_ways(server: TicketServer, new_name: Callable[[], str], kind: str) -> None:
    reply = server.put(f"/sequence/{new_name()}", content=b'{"bits": 64}', headers={"Content-Type": kind})
    assert reply.status == 201


def test_a_large_body_is_refused(server: TicketServer) -> None:
    large = b'{"above": 1}' + b" " * 70_000
    for method, path in (("PUT", "/sequence/photos"), ("POST", "/sequence/photos/bump")):
        assert "65536" in problem(server.request(method, path, content=large, headers=JSON), 413)
        chunks = (b" " * 10_000 for _ in range(8))
        assert "65536" in problem(server.request(method, path, content=chunks, headers=JSON), 413)


def test_an_endless_body_is_not_collected(server: TicketServer) -> None:
    before = server.memory()
    head = b"PUT /sequence/photos HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
    ticket = b"POST /ticket/photos HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
    for request, status in ((head, b"413"), (ticket, b"413")):
        with socket.create_connection(server.address, timeout=5) as client:
            client.sendall(request)
            try:
                for _ in range(300):
                    client.sendall(b" " * 100_000)
            except OSError:
                pass
            else:
                assert client.recv(100).startswith(b"HTTP/1.1 " + status)
    assert server.memory() - before < 20_000_000
