"""What the torture and the tests of the whole system play on: databases, ticket servers, and the links between them."""

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Self

import httpx

from tests.load import SEQUENCES, Load
from tests.servers import DatabaseServer, Engine
from tests.servers_processes import running, wait_until
from tests.ticketd import QUICK, TicketServer

DATABASE = "tickets"
ABOVE = "above the ring's increment"
"""/healthz says this of a database that is not in the ring."""
NOTICED = 2.0
"""Seconds after a fault after which a ticket server's word counts: by then it has looked at every database."""
SERVES, SETTLES = 60.0, 90.0
"""Seconds after a fault within which every ticket server serves again, and its `/healthz` passes."""


class Proxy:
    """Forwards each connection to a port of 127.0.0.1, in threads of its own. Use it as a context manager.

    `port` is where clients connect; it stays the same as long as the proxy is open.
    """

    def __init__(self, target: int) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._target, self._is_cut = target, False
        self._flows = threading.Event()
        self._flows.set()
        self._ends: set[socket.socket] = set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._flows.set()
        self._listening.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Reset every connection, and from now on each new connection at once."""
        self._is_cut = True
        for end in list(self._ends):
            self._reset(end)

    def freeze(self) -> None:
        """Hold back all bytes. Connections stay open, and new ones are accepted."""
        self._flows.clear()

    def heal(self) -> None:
        """Forward again, and first the bytes that were held back."""
        self._is_cut = False
        self._flows.set()

    def _accept(self) -> None:
        with self._listening, suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        server = socket.socket()
        self._ends |= {client, server}
        with client, server:
            if not self._is_cut and self._flows.wait():
                with suppress(OSError):
                    server.connect(("127.0.0.1", self._target))
                    back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
                    back.start()
                    self._pump(client, server)
                    back.join()
            self._reset(client)
            self._ends -= {client, server}

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._flows.wait()
                target.sendall(data)
        self._reset(source)
        self._reset(target)

    @staticmethod
    def _reset(end: socket.socket) -> None:
        """End a connection for both who wait at it; what was not read is lost."""
        with suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.shutdown(socket.SHUT_RDWR)


class Stage:
    """Ticket servers on a ring, with the SEQUENCES. The stack ends everything.

    engines: of the databases, in the order of their offsets; none for the embedded pair, which one server uses.
    """

    def __init__(self, stack: ExitStack, engines: Sequence[Engine], servers: int = 3) -> None:
        self.databases = [
            DatabaseServer(engine, offset=offset, increment=len(engines)) for offset, engine in enumerate(engines, 1)
        ]
        stack.enter_context(running(*self.databases))
        for database in self.databases:
            database.create_database(DATABASE)
        self.links: list[list[Proxy]] = []
        """Of each ticket server to the databases."""
        self.servers: list[TicketServer] = []
        for _ in range(servers if engines else 1):
            self.links.append([stack.enter_context(Proxy(database.port)) for database in self.databases])
            self.servers.append(TicketServer(self.urls(*self.links[-1]), **QUICK))
        stack.enter_context(running(*self.servers))
        for sequence in SEQUENCES:
            self.servers[0].request("PUT", f"/sequence/{sequence}").raise_for_status()

    def urls(self, *links: Proxy) -> list[str]:
        """The URLs of the databases, through these links."""
        return [each.url(DATABASE, link.port) for each, link in zip(self.databases, links, strict=True)]

    def all(self, condition: Callable[[dict[str, Any]], bool], seconds: float = SETTLES) -> None:
        """Wait until this is true of what every /healthz says. Raises TimeoutError with that."""
        told: list[dict[str, Any]] = []

        def is_true() -> bool:
            with suppress(httpx.TransportError):
                told[:] = [server.health() for server in self.servers]
                return all(map(condition, told))
            return False

        wait_until(is_true, seconds, f"/healthz of {self.servers}")

    def settle(self) -> None:
        """Wait until every /healthz warns of nothing: the next database may be harmed then. Raises TimeoutError.

        A database that has left the ring is no reason to wait.
        """

        def is_well(each: dict[str, Any]) -> bool:
            return each["status"] == "up" or ABOVE in (each["last_error"] or "")

        self.all(lambda health: not health["warnings"] and all(map(is_well, health["databases"])))

    def sees(self, *wanted: str) -> None:
        """Wait until every server sees the databases in these states. Raises TimeoutError."""
        self.all(lambda health: [each["status"] for each in health["databases"]] == list(wanted))

    def recover(self, load: Load) -> None:
        """Wait until every server hands out tickets, and until all is well. Raises TimeoutError."""
        before = max(load.answered.values())
        wait_until(lambda: min(load.answered.values()) > before, SERVES, "a ticket of every server")
        wait_until(lambda: max(load.answered.values()) > before + NOTICED, SERVES, "the servers to have noticed")
        self.settle()
