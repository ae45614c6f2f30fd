"""What the torture and the tests of the whole system play on: databases, ticket servers, and the links between them."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import httpx

from tests.load import SEQUENCES, Load
from tests.servers import DatabaseServer, Engine
from tests.servers_processes import wait_until
from tests.servers_proxy import Proxy
from tests.ticketd import QUICK, TicketServer

DATABASE = "tickets"
ABOVE = "above the ring's increment"
"""/healthz says this of a database that is not in the ring."""
NOTICED = 2.0
"""Seconds after a fault after which a ticket server's word counts: by then it has looked at every database."""
SERVES, SETTLES = 60.0, 90.0
"""Seconds after a fault within which every ticket server serves again, and its `/healthz` passes."""


class Stage:
    """Ticket servers on a ring, with the SEQUENCES. The stack ends everything.

    engines: of the databases, in the order of their offsets; none for the embedded pair, which one server uses.
    """

    def __init__(self, stack: ExitStack, engines: Sequence[Engine], servers: int = 3) -> None:
        self.databases: list[DatabaseServer] = []
        for offset, engine in enumerate(engines, 1):
            database = stack.enter_context(DatabaseServer(engine, offset=offset, increment=len(engines)))
            database.create_database(DATABASE)
            self.databases.append(database)
        self.links: list[list[Proxy]] = []
        """Of each ticket server to the databases."""
        self.servers: list[TicketServer] = []
        for _ in range(servers if engines else 1):
            self.links.append([stack.enter_context(Proxy(database.port)) for database in self.databases])
            server = TicketServer(self.urls(*self.links[-1]), **QUICK)
            self.servers.append(stack.enter_context(server))
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
