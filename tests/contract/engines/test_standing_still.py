"""A process that stands still while it looks at a database: the database is not away for that."""

import asyncio

from app.databases.protocol import ProbeResult, TicketDatabase
from tests.contract.engines.storages import Storage, on_each_engine

TIMEOUT = 0.4
STANDS_STILL = 1.25 * TIMEOUT
ITERATIONS = (0, 1, 3, 6)
"""Of the event loop, before the process stands still."""


async def looked(storage: Storage, client: TicketDatabase, iterations: int) -> ProbeResult:
    """What it found, though this process stood still for longer than it may wait."""
    look = asyncio.create_task(client.probe())
    for _ in range(iterations):
        await asyncio.sleep(0)
    storage.stand_still(STANDS_STILL)
    return await look


@on_each_engine
async def test_an_answer_that_came_meanwhile_is_taken(storage: Storage) -> None:
    await storage.client()  # an engine may make its own tables at the first look, which takes longer
    client = await storage.client(within=TIMEOUT)
    for iterations in ITERATIONS:
        assert (await looked(storage, client, iterations)).incarnation


@on_each_engine
async def test_so_it_is_on_a_new_connection(storage: Storage) -> None:
    await storage.client()  # see above
    for iterations in ITERATIONS:
        client = await storage.client(probe=False, within=TIMEOUT)
        assert (await looked(storage, client, iterations)).incarnation
