"""Thousands of clients that hang up: nothing is stuck afterwards, and no more connections are open than before."""

import asyncio
import random

import pytest

from tests.harness.load import Load
from tests.harness.notebook import Notebook
from tests.harness.pair import Schema
from tests.harness.processes import wait_until
from tests.harness.schema import USER
from tests.harness.ticketd import TicketServer

AT_ONCE = 100
PATHS = ("/ticket/photos", "/ticket/photos?count=50", "/block/photos?size=300", "/ticket/accounts")


@pytest.mark.parametrize("cancelled", [2_500, pytest.param(10_000, marks=pytest.mark.long)])
def test_thousands_of_requests_that_nobody_waits_for(fresh_schema: Schema, cancelled: int) -> None:
    settings = {"TICKETS_DATABASE_TIMEOUT": 2, "TICKETS_REQUEST_TIMEOUT": 10}
    with TicketServer(fresh_schema.urls, settings=settings) as server:
        server.wait_health()
        with Load([server.address], clients=16, mix=("photos", "accounts")) as load:
            load.run_until_tickets(300)
        load.result.check()
        before = [_connections(fresh_schema, index) for index in (0, 1)]
        asyncio.run(_hang_up(server, cancelled))
        notebook = Notebook()
        notebook.write_down(load.result.answers)
        notebook.answers = [answer for answer in notebook.answers if answer.sequence == "photos"]
        notebook.take_all_kinds(server)
        notebook.check()
        server.wait_health()
        wait_until(
            lambda: all(_connections(fresh_schema, index) <= before[index] for index in (0, 1)),
            60,
            f"no more than {before} connections",
        )
        for database in fresh_schema.pair:
            server.wait_database(database.name, "up")


def _connections(schema: Schema, index: int) -> int:
    """As the database counts them."""
    sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = %s AND db = %s"
    return int(str(schema.execute(index, sql, [USER, schema.name])[0][0]))


async def _hang_up(server: TicketServer, cancelled: int) -> None:
    chance = random.Random(1)
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(path: str, patience: float) -> None:
        async with at_once:
            _, writer = await asyncio.open_connection(*server.address)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: tickets\r\n\r\n".encode())
            await asyncio.sleep(patience)
            writer.transport.abort()

    async with asyncio.TaskGroup() as group:
        for _ in range(cancelled):
            group.create_task(one(chance.choice(PATHS), chance.choice((0, 0, 0.001, 0.005))))
