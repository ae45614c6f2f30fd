"""A host with several addresses, the first of which answers nothing (RFC 8305)."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from lying_server import Honest, Serve
from ticketd_client import Tickets, connections


def test_the_next_address_is_tried_while_the_first_is_a_black_hole(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(Honest())
    port = int(server.url.rpartition(":")[2])
    with socket.socket() as hole, socket.socket() as filler, socket.socket() as second:
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        for each in (filler, second):  # the backlog is full: what comes after is dropped
            each.setblocking(False)
            each.connect_ex(hole.getsockname())

        def resolved(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
            places = hole.getsockname(), ("127.0.0.1", port)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]

        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        with Tickets(f"http://two.example:{port}", prefetch=0, timeout=20) as tickets:
            assert isinstance(tickets.take("photos"), int)


def test_an_address_that_refuses_is_no_reason_to_wait(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(Honest())
    port = int(server.url.rpartition(":")[2])
    monkeypatch.setattr(connections, "NEXT_ADDRESS", 1_000.0)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens
        places = closed.getsockname(), ("127.0.0.1", port)
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with Tickets(f"http://two.example:{port}", prefetch=0, timeout=20) as tickets:
            assert isinstance(tickets.take("photos"), int)
