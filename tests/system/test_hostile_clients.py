"""Clients that mean harm, by the thousand: bounded memory, service for everybody else, and the right one blamed."""

import resource
import selectors
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from tests.harness.pair import Schema
from tests.harness.processes import wait_until
from tests.harness.ticketd import PATIENT, TicketServer

MIB = 2**20
CROWD = 10_000
HALF_A_HEAD = b"GET /ticket/photos HTTP/1.1\r\nHost: x\r\nX-Filler: " + b"y" * 900


@pytest.fixture(autouse=True)
def _many_files() -> None:
    """Every client here is a file of this process, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * CROWD)), hard))


@contextmanager
def crowd(server: TicketServer, number: int, says: bytes = b"") -> Iterator[Sequence[socket.socket]]:
    """Open this number of connections that send this and then fall silent."""
    with ExitStack() as stack:
        clients = []
        for _ in range(number):
            client = stack.enter_context(socket.create_connection(server.address, timeout=20))
            if says:
                client.sendall(says)
            clients.append(client)
        yield clients


def is_cut(client: socket.socket) -> bool:
    """Whether the server has closed the connection."""
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def metric(server: TicketServer, name: str) -> float:
    lines = server.get("/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


@pytest.mark.any_engine
@pytest.mark.parametrize(
    "says", [pytest.param(b"", id="idle", marks=pytest.mark.long), pytest.param(HALF_A_HEAD, id="half a head")]
)
def test_ten_thousand_clients_take_little(says: bytes) -> None:
    with TicketServer(settings=PATIENT) as server:
        server.wait_ready()
        server.ticket("photos")
        with crowd(server, CROWD, says):
            wait_until(lambda: metric(server, "tickets_client_connections") >= CROWD, 20, "all of them to be counted")
            assert server.memory() < 256 * MIB
            assert server.get("/readyz").status == 200
        wait_until(lambda: metric(server, "tickets_client_connections") < 10, 20, "all of them to be gone")
        server.ticket("photos")


@pytest.mark.any_engine
def test_pipelines_that_nobody_reads_take_little_and_hold_up_nobody() -> None:
    """What is sent ahead waits in the socket."""
    line = b"GET /ticket/photos?count=1000 HTTP/1.1\r\nHost: x\r\n\r\n"
    with TicketServer(settings=PATIENT) as server, ExitStack() as stack:
        server.wait_ready()
        server.ticket("photos")
        before = server.memory()
        waiting = selectors.DefaultSelector()
        for _ in range(40):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(server.address)
            client.setblocking(False)
            waiting.register(client, selectors.EVENT_WRITE, memoryview(line * (250_000 // len(line))))
        longest, until = 0.0, time.monotonic() + 5
        while time.monotonic() < until:
            for key, _ in waiting.select(0):
                rest = key.data
                try:
                    rest = rest[key.fileobj.send(rest) :]  # type: ignore[union-attr]
                except BlockingIOError:
                    continue
                waiting.modify(key.fileobj, selectors.EVENT_WRITE, rest) if rest else waiting.unregister(key.fileobj)
            began = time.monotonic()
            assert server.get("/livez").status == 200
            longest = max(longest, time.monotonic() - began)
            time.sleep(0.01)
        assert longest < 1
        assert server.memory() - before < 48 * MIB


@pytest.mark.any_engine
def test_a_crowd_is_turned_away_and_health_is_answered() -> None:
    with TicketServer(settings=PATIENT | {"TICKETS_MAX_CONNECTIONS": 50}) as server:
        server.wait_ready()
        with crowd(server, 50) as clients:
            wait_until(lambda: metric(server, "tickets_client_connections") >= 51, 20, "all of them to be counted")
            for path in ("/livez", "/readyz", "/healthz", "/metrics"):
                assert server.get(path).status == 200
            refused = server.get("/ticket/photos")
            assert refused.status == 503
            assert refused.headers["connection"] == "close"
            assert refused.headers["retry-after"] == "1"
            outcome = 'tickets_requests_total{endpoint="ticket",outcome="too-many-connections"} 1.0'
            assert outcome in server.get("/metrics").text
            report = server.get("/healthz").json()
            assert report["status"] == "warn"
            assert any("all 50 client connections" in warning["reason"] for warning in report["warnings"])
            assert "all client connections are taken most=50 refused=1" in server.log_text()
            clients[0].sendall(b"GET /ticket/photos HTTP/1.1\r\nHost: x\r\n\r\n")
            assert clients[0].recv(65536).startswith(b"HTTP/1.1 200")
            clients[0].close()
            wait_until(lambda: server.get("/ticket/photos").status == 200, 10, "room to be used")
        with crowd(server, 120) as clients:
            wait_until(lambda: sum(is_cut(client) for client in clients) >= 38, 20, "some to be cut")
        server.wait_alive()
        assert metric(server, "tickets_client_connections_refused_total") >= 38


def test_a_server_that_may_open_no_file_blames_no_database(fresh_schema: Schema) -> None:
    with TicketServer(fresh_schema.urls, settings=PATIENT) as server:
        server.wait_health()
        server.ticket("photos")
        files = 60
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (files, files))
        stop, statuses = threading.Event(), []
        with ExitStack() as stack:
            client = stack.enter_context(socket.create_connection(server.address, timeout=20))
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(65536)

            def draw() -> None:
                while not stop.wait(0.02):
                    client.sendall(b"GET /ticket/photos HTTP/1.1\r\nHost: x\r\n\r\n")
                    statuses.append(client.recv(65536)[:12])

            thread = threading.Thread(target=draw)
            thread.start()
            for _ in range(100):
                stack.enter_context(socket.socket()).connect_ex(server.address)
            time.sleep(4)  # several probes
            stop.set()
            thread.join()
        assert set(statuses) == {b"HTTP/1.1 200"}
        assert "database down" not in server.log_text()


def test_what_is_lacking_is_said_to_be_files(fresh_schema: Schema) -> None:
    with TicketServer(fresh_schema.urls, settings=PATIENT) as server:
        server.wait_health()
        hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)[1]
        odd = fresh_schema.pair.databases[0]
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (5, hard))
        odd.end_connections()
        wait_until(lambda: "this process may open no further file" in server.log_text(), 20, "the reason")
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (hard, hard))
        assert "this process may open no further file" in server.wait_database(odd.name, "up")["last_error"]
        server.ticket("photos")


def test_a_page_of_another_site_changes_nothing() -> None:
    with TicketServer(settings=PATIENT) as server:
        server.wait_ready()
        cross = {"Sec-Fetch-Site": "cross-site"}
        rebound = {"Host": f"evil.example:{server.port}"}
        for headers in (cross, rebound):
            assert server.request("PUT", "/sequence/planted", json={}, headers=headers).status == 403
            reply = server.request("POST", "/sequence/photos/bump", json={"above": 1_000}, headers=headers)
            assert reply.status == 403
        for path in ("/ticket/photos", "/block/photos?size=2"):
            for method in ("GET", "POST"):
                assert server.request(method, path, headers=cross).status == 403
        assert server.get("/sequence/planted").status == 404
        assert server.ticket("photos") < 1_000
        assert server.request("PUT", "/sequence/wanted", json={}, headers={"Host": "localhost"}).status == 201
