"""https:// URLs."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from certificates import Authority
from lying_server import Honest, LyingServer, until
from ticketd_client import Tickets, TicketsUnavailable


def test_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    trusting = ssl.create_default_context(cafile=str(authority.file))
    with LyingServer(Honest(), authority.server("127.0.0.1")) as server:
        with Tickets(server.url, tls=trusting) as tickets:
            assert tickets.take("photos") == 1
            until(lambda: server.connections == 1)
        until(lambda: server.connections == 0)
        with (
            Tickets(server.url, timeout=0.3) as tickets,
            pytest.raises(TicketsUnavailable, match=r"\(its certificate: "),
        ):
            tickets.take("photos")
        until(lambda: server.connections == 0)
    with LyingServer(Honest(), authority.server("127.0.0.2")) as server, Tickets(server.url, tls=trusting) as tickets:
        with pytest.raises(TicketsUnavailable, match="its certificate: IP address mismatch"):
            tickets.take("photos")
        assert not server.requests


def test_where_no_tls_comes_about_the_connection_is_closed_at_once() -> None:
    class Refusing(ssl.SSLContext):
        def wrap_socket(self, *_: object, **__: object) -> ssl.SSLSocket:
            raise OSError("not today")

    with LyingServer(Honest()) as server:
        url = server.url.replace("http", "https")
        with Tickets(url, tls=Refusing(ssl.PROTOCOL_TLS_CLIENT), timeout=0.2) as tickets:
            with pytest.raises(TicketsUnavailable, match="not today") as caught:
                tickets.take("photos")
            until(lambda: server.connections == 0)
            assert caught.value.__traceback__ is not None, "what was raised is still there, and what it holds"
