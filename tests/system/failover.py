"""Ticket servers on databases that fail, and what a load has got from each of them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.harness.history import Answer
from tests.harness.load import Load, Result
from tests.harness.processes import wait_until
from tests.harness.ticketd import PATIENT, TicketServer

ATTEMPT, REQUEST = 0.5, 2.0
"""TICKETS_DATABASE_TIMEOUT and TICKETS_REQUEST_TIMEOUT, as they are by default."""
MARGIN = 1.0
"""Seconds that a busy machine may add before the client sees the answer."""


@contextmanager
def servers_on(databases: str, number: int = 1, **settings: object) -> Iterator[list[TicketServer]]:
    """Ticket servers on the same databases, all of which are up for each. The deadlines are long without `settings`."""
    with ExitStack() as stack:
        servers = [TicketServer(databases, settings=settings or PATIENT) for _ in range(number)]
        for server in servers:
            stack.callback(server.close)
            server.start()
        for server in servers:
            server.wait_alive()
            server.wait_health("pass")
        yield servers


def addresses(servers: list[TicketServer]) -> list[tuple[str, int]]:
    return [server.address for server in servers]


def allowed(result: Result, before: float) -> float:
    """Seconds that a request may take if one database fails: one, and the time that this machine takes anyway."""
    return 2 * ATTEMPT + 2 * result.between(0, before).slowest()


def drawn_by(result: Result, residue: int, sequence: str = "photos") -> list[Answer]:
    """The answers that carry a ticket of this database (1: odd, 0: even) in this sequence."""
    return [a for a in result.answers if a.ids and a.sequence == sequence and a.ids[0] % 2 == residue]


def until_drawn(load: Load, residue: int, sequence: str = "photos", timeout: float = 10) -> None:
    """Let the load run until it gets tickets of this database again."""
    seen = len(load.result.answers)
    wait_until(
        lambda: drawn_by(Result(load.result.answers[seen:]), residue, sequence),
        timeout,
        f"tickets of the {'odd' if residue else 'even'} database for {sequence}; {load.result!r}",
    )
