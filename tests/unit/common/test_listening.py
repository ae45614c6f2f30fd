"""Sockets that listen: what they are, and what is said where there are none."""

import re
import socket

import pytest

from app.common.errors import PortInUse, SettingsError
from app.common.listening import listen, port_of


def test_what_connects_waits_until_it_is_accepted() -> None:
    sockets = listen("TICKETS_PORT", "127.0.0.1", 0)
    (listening,) = sockets
    with listening, socket.create_connection(("127.0.0.1", port_of(sockets)), timeout=10):
        accepted, _ = listening.accept()
        accepted.close()


def test_two_servers_never_listen_on_one_port() -> None:
    sockets = listen("TICKETS_PORT", "127.0.0.1", 0)
    port = port_of(sockets)
    with sockets[0], pytest.raises(PortInUse, match=rf"^TICKETS_PORT: cannot listen on 127\.0\.0\.1:{port}: Address "):
        listen("TICKETS_PORT", "127.0.0.1", port)


@pytest.mark.parametrize(
    "host", ["192.0.2.1", "no-such-host.invalid", "[::1]", "127.0.0.1:8000", "two hosts", "a..b", "a" * 64, "\udcff"]
)
def test_a_host_that_this_machine_does_not_have_is_a_setting_that_cannot_be_used(host: str) -> None:
    with pytest.raises(
        SettingsError, match=rf"^TICKETS_HOST: {re.escape(repr(host))} cannot be used \(.+\); expected an address of"
    ):
        listen("TICKETS_REDIS_PORT", host, 7000)


def test_nothing_listens_where_one_of_several_addresses_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.2", 0)) as other:
        free, port = other.getsockname()[1], taken.getsockname()[1]
        other.close()
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", address)
            for address in (("127.0.0.2", free), ("127.0.0.1", port))
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with pytest.raises(PortInUse):
            listen("TICKETS_PORT", "two-addresses", port)
        socket.create_server(("127.0.0.2", free)).close()
