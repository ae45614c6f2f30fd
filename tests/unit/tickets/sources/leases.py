"""A ticket server that leases worker numbers, as these tests handle it: its lease, its ids, and rows of the ledger."""

import asyncio
from collections.abc import Callable

from app.databases.protocol import Mark
from app.tickets.sources.rights import NotYet
from app.tickets.sources.worker_lease import Lease
from tests.fakes.ticket_database import FakeServer
from tests.fakes.ticket_server import FakeTicketServer
from tests.unit.tickets.sources import stamping
from tests.unit.tickets.sources.stamping import EPOCH


async def leased(server: FakeTicketServer, within: float = 5.0) -> Lease:
    """The lease that the server holds and may use, once it has one. `within`: seconds."""
    server.lease.need()
    until = asyncio.get_running_loop().time() + within
    while True:
        try:
            return server.lease.right()
        except NotYet:
            assert asyncio.get_running_loop().time() < until, server.lease
            await asyncio.sleep(0.01)


async def passed(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until the condition holds. `seconds`: between two looks at it."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(seconds)
    raise AssertionError("the condition never held")


def holds(server: FakeTicketServer) -> bool:
    """Whether the server may stamp ids."""
    try:
        server.lease.right()
    except NotYet:
        return False
    return True


async def made(server: FakeTicketServer, *sequences: str) -> None:
    """Make sequences of kind snowflake, `likes` if none is named."""
    for sequence in sequences or ("likes",):
        await server.admin.make(sequence, "snowflake", {"epoch": EPOCH})


def worker_and_time(server: FakeTicketServer, id_: int) -> tuple[int, int]:
    """The worker number and the time, in milliseconds since 1970, of an id of `likes`."""
    said = stamping.read(server, id_)
    return said["datacenter"] << 5 | said["worker"], said["time_ms"]


def row(database: FakeServer, lease: Lease) -> Mark | None:
    """The mark that this database keeps for the lease."""
    held = lease.mark(0, 0)
    return database.state.marks.get((held.sequence, held.offset, held.increment))


def put(databases: list[FakeServer], number: int, until_ms: float, token: str = "other:1") -> None:
    """Let the databases record that another server leased this number until `until_ms`."""
    increment = databases[0].increment
    authority = next(each for each in databases if each.offset % increment == number % increment)
    for database in databases:
        mark = Mark(f"_worker_{number}", authority.offset, increment, int(until_ms), 0, token)
        database.state.marks[mark.sequence, mark.offset, mark.increment] = mark
        database.state.changed[mark.sequence, mark.offset, mark.increment] = database.clock()
