"""Clients of the Redis protocol that mean harm: every answer in order, bounded memory, service for everybody else."""

import random
import socket
import threading

import pytest
import redis

from tests.harness.processes import free_port
from tests.harness.ticketd import PATIENT, TicketServer

pytestmark = pytest.mark.any_engine

MIB = 2**20
THREADS = 8
WELL = b"*2\r\n$4\r\nECHO\r\n$%d\r\n%b\r\n"
BROKEN = [
    b"*1000000000\r\n", b"*4096\r\n" + b"$1\r\nx\r\n" * 90, b"*1\r\n$536870912\r\n", b"*2\r\n*1\r\n*1\r\n*1\r\n",
    b"*1\r\n$65536\r\n" + b"x" * 3_000, b"*-5\r\n*x\r\n", b"$5\r\nPI", b"*1\r\n$4\r\nPINGxx", b"*" + b"9" * 60,
    b"x" * 5_000, b"x" * 66_000, b'ECHO "x\n', b"\x00\xff\x00\n*", b"POST / HTTP/1.1\r\n", b"*1\r\n:5\r\n", b"%1\r\n",
    b"*3\r\n$6\r\nINCRBY\r\n$6\r\nphotos\r\n$99\r\n", b"*2\r\n$4\r\nINCR\r\n$6\r\nphot", b"AUTH \r\n*1\r\n$-1\r\n",
    b"*01\r\n$4\r\nPING\r\n", b"*1\r\n$04\r\nPING\r\n", b"*2\r\n$4\r\nPING\r\n$-0\r\n\r\n",
]  # fmt: skip


class Strangers:
    """Each connection sends a few commands that are well and then one that is not. `wrong`: what came back and should
    not; `sent`: how many commands there were."""

    def __init__(self, port: int, commands: int) -> None:
        self.sent = 0
        self.wrong: list[object] = []
        self._port = port
        self._commands = commands
        self._threads = [threading.Thread(target=self._send, args=(seed,)) for seed in range(THREADS)]

    def run(self) -> None:
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()

    def _send(self, seed: int) -> None:
        chance = random.Random(seed)
        try:
            while self.sent < self._commands:
                self._one_connection(chance)
        except OSError as error:
            self.wrong.append(error)

    def _one_connection(self, chance: random.Random) -> None:
        words = [b"%d" % chance.randrange(10**9) for _ in range(chance.randrange(20))]
        sent = b"".join(WELL % (len(word), word) for word in words) + chance.choice(BROKEN)
        with socket.create_connection(("127.0.0.1", self._port), timeout=20) as connection:
            for begin in range(0, len(sent), size := chance.choice([7, 200, 100_000])):
                try:
                    connection.sendall(sent[begin : begin + size])
                except OSError:
                    break  # it has been told what is wrong, and the connection is closed
            connection.shutdown(socket.SHUT_WR)
            received = b""
            while data := connection.recv(65536):
                received += data
        expected = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        rest = received[len(expected) :]
        if not received.startswith(expected) or (rest and not rest.startswith(b"-")):
            self.wrong.append((sent[-200:], received[-200:]))
        self.sent += len(words) + 1


@pytest.mark.parametrize(
    ("commands", "growth"), [(25_000, 10 * MIB), pytest.param(100_000, 20 * MIB, marks=pytest.mark.long)]
)
def test_malformed_and_half_commands_by_the_ten_thousand(commands: int, growth: int) -> None:
    port = free_port()
    with TicketServer(settings=PATIENT | {"TICKETS_REDIS_PORT": port}) as server:
        server.wait_ready()
        Strangers(port, 5_000).run()  # what Python keeps for later once it has been busy is no leak
        before = server.memory()
        strangers = Strangers(port, commands)
        halves = [socket.create_connection(("127.0.0.1", port)) for _ in range(500)]
        for half in halves:
            half.sendall(b"*2\r\n$4\r\nECHO\r\n$900\r\n" + b"x" * 800)
        strangers.run()
        assert strangers.sent >= commands
        assert not strangers.wrong, strangers.wrong[:3]
        assert server.memory() - before < growth
        with redis.Redis(port=port, socket_timeout=5) as client:
            assert int(client.incr("photos")) > 0
        for half in halves:
            half.close()
        assert "Traceback" not in server.log_text()


def test_a_client_that_reads_nothing_takes_little() -> None:
    port = free_port()
    with TicketServer(settings=PATIENT | {"TICKETS_REDIS_PORT": port}) as server:
        server.wait_ready()
        before = server.memory()
        connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        for connection in connections:
            connection.settimeout(0.2)
            try:
                for _ in range(1_000):
                    connection.sendall(b"TICKET.TAKE photos COUNT 1000\r\n" * 50)
            except TimeoutError:
                pass  # the server reads no more
        with redis.Redis(port=port, socket_timeout=5) as client:
            assert int(client.incr("photos")) > 0
        assert server.memory() - before < 40 * MIB
        for connection in connections:
            connection.close()


def test_redis_and_http_share_one_limit_on_connections() -> None:
    port = free_port()
    settings = PATIENT | {"TICKETS_REDIS_PORT": port, "TICKETS_MAX_CONNECTIONS": 3}
    with TicketServer(settings=settings) as server:
        server.wait_ready()
        with (
            redis.Redis(port=port) as one,
            redis.Redis(port=port) as two,
            socket.create_connection(server.address) as http,
        ):
            assert one.ping()
            assert two.ping()
            http.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert http.recv(100).startswith(b"HTTP/1.1 200")
            with socket.create_connection(("127.0.0.1", port), timeout=5) as beyond:
                assert beyond.recv(100) == b"-ERR max number of clients reached\r\n"
                assert beyond.recv(100) == b""
            assert server.get("/healthz").status == 200
            assert server.get("/ticket/photos").status == 503
            refused = 'tickets_requests_total{endpoint="ticket",outcome="too-many-connections"} 2.0'
            assert refused in server.get("/metrics").text
            assert one.ping()


def test_the_server_warns_where_tokens_may_be_read_on_their_way() -> None:
    settings = {"TICKETS_REDIS_PORT": free_port(), "TICKETS_HOST": "0.0.0.0", "TICKETS_TOKENS": "a-token-of-16-chars"}
    settings["TICKETS_DATABASES"] = "embedded"
    with TicketServer(settings=settings) as server:
        assert "the Redis protocol is spoken beyond loopback: tokens travel in clear" in server.log_text()
