"""Bad heads and bad connections: a clear error or a closed connection, and service for everybody else."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.harness.ticketd import TicketServer
from tests.system.http_limits.replies import answer

pytestmark = pytest.mark.any_engine


# -- request line and headers


@pytest.mark.parametrize(
    "request_",
    [
        b"GARBAGE\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"GET /caf\xe9 HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=lambda request: repr(request[:30]),
)
def test_what_is_no_request_is_answered_or_cut(server: TicketServer, request_: bytes) -> None:
    lines = server.log_text().count("\n")
    raw = server.raw(request_, timeout=3)
    if raw:
        status, headers, body = answer(raw)
        assert 400 <= status < 500
        assert headers["content-type"] == "application/problem+json"
        assert json.loads(body)["status"] == status
    assert server.log_text().count("\n") == lines  # strangers do not fill the log


@pytest.mark.parametrize(
    "filler", [b"X-Large: " + b"x" * 200_000, b"\r\n".join(b"X-%d: y" % i for i in range(20_000))], ids=["long", "many"]
)
def test_a_head_that_is_too_large_is_refused(server: TicketServer, filler: bytes) -> None:
    raw = server.raw(b"GET /ticket/photos HTTP/1.1\r\nHost: x\r\n" + filler + b"\r\n\r\n")
    assert not raw or answer(raw)[0] == 431


def test_a_request_line_that_is_too_long_is_refused(server: TicketServer) -> None:
    raw = server.raw(b"GET /ticket/photos?x=" + b"y" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert not raw or answer(raw)[0] == 431
    slow = b"GET /ticket/photos?x=" + b"y" * 500_000
    before = server.memory()
    assert len(server.raw(slow, timeout=3)) < 1000
    assert server.memory() - before < 10_000_000


def test_a_head_of_fifteen_kilobytes_is_served(server: TicketServer) -> None:
    headers = {f"X-{i}": "y" * 1000 for i in range(14)}
    assert server.get("/ticket/photos", headers=headers).status == 200
    assert server.get(f"/ticket/photos?_x={'y' * 15_000}").status == 200


def test_requests_may_follow_each_other_without_waiting(server: TicketServer) -> None:
    one = b"GET /ticket/photos HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /ticket/photos HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    raw = server.raw(one * 999 + last)
    assert raw.count(b"HTTP/1.1 200 OK\r\n") == 1000
    bodies = [part.partition(b"\r\n\r\n")[2] for part in raw.split(b"HTTP/1.1 200 OK\r\n")[1:]]
    assert len({json.loads(body)["id"] for body in bodies}) == 1000


# -- slow, silent and many clients


def test_slow_and_silent_clients_are_cut_and_nobody_else_notices(server: TicketServer) -> None:
    def until_closed(first: bytes, then: bytes, pause: float) -> float:
        began = time.monotonic()
        with socket.create_connection(server.address, timeout=60) as client:
            client.sendall(first)
            client.settimeout(pause)
            while time.monotonic() - began < 60:
                try:
                    if not client.recv(65536):
                        break
                except TimeoutError:
                    if then:
                        try:
                            client.sendall(then)
                        except OSError:
                            break
                except OSError:
                    break
        return time.monotonic() - began

    kinds: list[tuple[bytes, bytes, float]] = [
        (b"", b"", 60),  # says nothing
        (b"GET /ticket/photos HTTP/1.1\r\nHo", b"", 60),  # stops in the middle
        (b"GET /ticket/photos HTTP/1.1\r\n", b"X: y\r\n", 0.5),  # a header now and then
        (b"PUT /sequence/photos HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", b" ", 0.5),  # a byte now and then
    ]
    with ThreadPoolExecutor(len(kinds)) as workers:
        waiting = [workers.submit(until_closed, *kind) for kind in kinds]
        while not all(each.done() for each in waiting):
            server.ticket("photos")
            time.sleep(0.2)
    for each in waiting:
        assert 15 < each.result() < 45


def test_a_client_that_closes_its_half_is_answered_or_cut(server: TicketServer) -> None:
    for data in (b"GET /ticket/photos HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /ticket/pho"):
        with socket.create_connection(server.address, timeout=10) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass


def test_a_thousand_idle_connections_hold_up_nobody(server: TicketServer) -> None:
    with ExitStack() as stack:
        for number in range(1000):
            client = stack.enter_context(socket.create_connection(server.address, timeout=10))
            if number % 2:
                client.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
                assert client.recv(65536).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        for _ in range(50):
            server.ticket("photos")
        assert time.monotonic() - began < 10
        assert server.get("/readyz").status == 200


def test_a_client_that_does_not_read_holds_up_nobody(server: TicketServer) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(server.address)
        client.settimeout(1)
        stop = threading.Event()

        def flood() -> None:
            try:
                while not stop.is_set():
                    client.sendall(b"GET /ticket/photos?count=1000 HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
            except OSError:
                pass

        thread = threading.Thread(target=flood)
        thread.start()
        before = server.memory()
        for _ in range(30):
            server.ticket("accounts")
            time.sleep(0.02)
        assert server.memory() - before < 50_000_000
        stop.set()
        thread.join()
