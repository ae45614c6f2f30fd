"""The network between a ticket server and one database fails, in every way: that costs a request one attempt."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.harness.load import Load
from tests.harness.pair import MySQLPair, Schema
from tests.harness.proxy import FaultyProxy
from tests.system.failover import ATTEMPT, addresses, allowed, servers_on, until_drawn


@contextmanager
def nonsense() -> Iterator[int]:
    """A port where somebody answers, who is no database."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    connection.sendall(b"\x4a\x00\x00\x00\x0aHTTP/1.1 400 Bad Request\r\n\r\nthis is no database" * 3)
                    connection.settimeout(1)
                    connection.recv(100)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def reset(proxy: FaultyProxy) -> None:
    proxy.reset_on_connect()
    proxy.cut()


def stall(proxy: FaultyProxy) -> None:
    proxy.stall_handshake()
    proxy.cut()


FAULTS: dict[str, Callable[[FaultyProxy], None]] = {
    "refuses": FaultyProxy.refuse,
    "resets": reset,
    "stalls the handshake": stall,
    "is cut off": FaultyProxy.freeze,
    "drops its replies": FaultyProxy.drop_replies,
    "never hears": FaultyProxy.drop_requests,
}


@pytest.mark.parametrize(
    "fault",  # test_network has those that are long here
    [pytest.param(fault, marks=pytest.mark.long) if fault in ("resets", "never hears") else fault for fault in FAULTS],
)
def test_a_database_behind_a_bad_network_costs_one_attempt(
    fault: str, proxies: tuple[FaultyProxy, FaultyProxy], mysql_pair: MySQLPair, fresh_schema: Schema
) -> None:
    odd, even = proxies
    urls = " ".join(
        database.url_of(fresh_schema.name, proxy.port) for database, proxy in zip(mysql_pair, proxies, strict=True)
    )
    with (
        servers_on(urls, TICKETS_PROBE_INTERVAL=0.2, TICKETS_DATABASE_TIMEOUT=ATTEMPT) as servers,
        Load(addresses(servers), clients=16, pause=0.08) as load,
    ):
        until_drawn(load, 1)
        load.run_for(0.5)
        failed_at = time.monotonic()
        FAULTS[fault](odd)
        servers[0].wait_database(odd.name, "down", timeout=10)
        assert [(each["name"], each["status"]) for each in servers[0].databases()] == [
            (odd.name, "down"),
            (even.name, "up"),
        ]
        load.run_until_tickets(50)
        odd.restore()
        servers[0].wait_database(odd.name, "up", timeout=10)
        until_drawn(load, 1)
    assert load.result.failures() == []
    load.result.check()
    assert load.result.slowest() < allowed(load.result, failed_at), load.result


def test_a_database_that_answers_nonsense_costs_one_attempt(
    proxies: tuple[FaultyProxy, FaultyProxy], mysql_pair: MySQLPair, fresh_schema: Schema
) -> None:
    odd = proxies[0]
    urls = " ".join(
        database.url_of(fresh_schema.name, proxy.port) for database, proxy in zip(mysql_pair, proxies, strict=True)
    )
    with (
        nonsense() as port,
        servers_on(urls, TICKETS_PROBE_INTERVAL=0.2, TICKETS_REQUEST_TIMEOUT=15) as servers,
        Load(addresses(servers), clients=16, pause=0.08) as load,
    ):
        until_drawn(load, 1)
        database, odd.target = odd.target, port
        odd.cut()
        servers[0].wait_database(odd.name, "down", timeout=10)
        load.run_until_tickets(50)
        odd.target = database
        servers[0].wait_database(odd.name, "up")
        until_drawn(load, 1)
        log = servers[0].log_text()
    assert load.result.failures() == []
    load.result.check()
    assert "Traceback" not in log


def test_a_reply_that_comes_too_late_is_a_gap_and_never_a_ticket(
    proxies: tuple[FaultyProxy, FaultyProxy], mysql_pair: MySQLPair, fresh_schema: Schema
) -> None:
    odd = proxies[0]
    urls = " ".join(
        database.url_of(fresh_schema.name, proxy.port) for database, proxy in zip(mysql_pair, proxies, strict=True)
    )
    settings: dict[str, Any] = {
        "TICKETS_PROBE_INTERVAL": 0.2,
        "TICKETS_DATABASE_TIMEOUT": 0.4,
        "TICKETS_REQUEST_TIMEOUT": 15,
    }
    with servers_on(urls, **settings) as servers, Load(addresses(servers), clients=16, pause=0.08) as load:
        for _ in range(2):
            until_drawn(load, 1)
            odd.delay(0.9)
            servers[0].wait_database(odd.name, "down", timeout=10)
            load.run_for(1)
            odd.restore()
            servers[0].wait_database(odd.name, "up")
        until_drawn(load, 1)
    assert load.result.failures() == []
    load.result.check()
