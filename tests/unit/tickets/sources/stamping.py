"""A ticket server whose clock a test sets, and the ids that it stamps."""

import asyncio
from typing import Any

from app.kinds.table import KINDS
from tests.fakes.awaited import AwaitedRequest
from tests.fakes.ticket_database import TRUE_TIME
from tests.fakes.ticket_server import FakeTicketServer

HOUR, DAY, YEAR = 3600.0, 86_400.0, 31_536_000.0
EPOCH = int(TRUE_TIME * 1000) - 1_000_000_000


class Wall:
    """A server's clock. `off`: seconds that it is ahead of the true time."""

    def __init__(self, off: float = 0.0) -> None:
        self.off = off

    def __call__(self) -> float:
        return TRUE_TIME + asyncio.get_running_loop().time() + self.off


def true_ms() -> float:
    """The true time in milliseconds since 1970."""
    return (TRUE_TIME + asyncio.get_running_loop().time()) * 1000


async def made(server: FakeTicketServer, kind: str, **parameters: int) -> None:
    """Make the sequence `likes` of this kind."""
    if kind in ("instagram", "snowflake"):
        parameters = {"epoch": EPOCH} | parameters
    assert (await server.admin.make("likes", kind, parameters))[0]


async def take(
    server: FakeTicketServer,
    count: int = 1,
    sequence: str = "likes",
    /,
    *,
    key: int | None = None,
    shard: int | None = None,
) -> list[Any]:
    """Draw ids as a client does."""
    request = AwaitedRequest(sequence, count, whole=False)
    if key is not None or shard is not None:
        request.address = key, shard
    server.desk.accept(request)
    return list(await request.future)


def read(server: FakeTicketServer, id_: object) -> dict[str, Any]:
    """The parts of an id of `likes`, by their names."""
    entry = server.catalog.entries["likes"]
    return entry.kind.decode(entry.parameters, str(id_))


COUNTED = ["instagram", "instagram32"]
IN_MEMORY = [name for name in KINDS if name not in ("ticket", *COUNTED)]
