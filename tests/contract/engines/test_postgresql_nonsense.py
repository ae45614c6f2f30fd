"""Answers of PostgreSQL that were spoilt on their way: each becomes an error that the ticket server knows."""

import asyncio
import contextlib
import random

import pytest

from app.common.errors import TicketDatabaseError
from app.databases.postgresql.database import PostgreSQLDatabase
from app.databases.postgresql.url import PostgreSQLURL
from app.databases.protocol import Mark, ServerEntry
from tests.contract.engines.storages import made, take
from tests.harness.postgresql import PostgreSQL

pytestmark = pytest.mark.any_engine

SERVERS, AT_ONCE = 60, 10
TIMEOUT = 1.0
SPOILT = 0.25
"""The share of the pieces of an answer in which a byte is changed."""


class SpoiltWay:
    """A way to a PostgreSQL server on which answers are spoilt, once `spoils` is set, as the seed has it."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._chance = random.Random(seed)
        self._tasks: set[asyncio.Task[None]] = set()
        self.spoils = False
        self.spoilt = 0

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.ensure_future(self._relay(reader, writer)))

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            back, forth = await asyncio.open_connection("127.0.0.1", self._port)
            await asyncio.gather(self._pass_on(reader, forth, answers=False), self._pass_on(back, writer, answers=True))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        try:
            while piece := await reader.read(65_536):
                writer.write(self._spoil(piece) if answers and self.spoils else piece)
                await writer.drain()
        finally:
            writer.close()

    def _spoil(self, piece: bytes) -> bytes:
        if self._chance.random() >= SPOILT:
            return piece
        self.spoilt += 1
        changed = bytearray(piece)
        changed[self._chance.randrange(len(changed))] = self._chance.randrange(256)
        return bytes(changed)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def one_server(server: PostgreSQL, seed: int) -> int:
    """What a ticket server does, over a way of its own. Returns how many answers were spoilt."""
    way = SpoiltWay(server.port, seed)
    async with await asyncio.start_server(way.serve, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        url = PostgreSQLURL.parse(server.url_of("spoilt").replace(f":{server.port}/", f":{port}/"))
        database = PostgreSQLDatabase(url, 1, 2, TIMEOUT)
        database.announce(lambda: ServerEntry(f"{seed:012x}", "0.3.0", (), 1.0, 0.0))
        await database.probe()
        table = await made(database)
        way.spoils = True
        mark = Mark("photos", 2, 2, 100, 1, "life.born:word")
        for step in (
            lambda: take(database, table, 3, 0),
            database.probe,
            lambda: database.keep([mark], 1),
            database.marks,
            database.recorded_ring,
            database.definitions,
            lambda: database.servers(60.0),
            lambda: database.positions(["photos"]),
            lambda: database.advance({"photos": 5}),
        ):
            with contextlib.suppress(TicketDatabaseError):
                await step()
        await database.close()
        await way.end()
    return way.spoilt


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of asyncpg's half-made connections
async def test_whatever_the_answer_is_the_error_is_one_of_a_ticket_database(postgresql_pair: list[PostgreSQL]) -> None:
    server = postgresql_pair[0]
    server.make_user("spoilt")
    first = PostgreSQLDatabase(PostgreSQLURL.parse(server.url_of("spoilt")), 1, 2, 10.0)
    await first.probe()  # which makes the tables
    await first.close()
    few = asyncio.Semaphore(AT_ONCE)

    async def in_turn(seed: int) -> int:
        async with few:
            return await one_server(server, seed)

    spoilt = await asyncio.gather(*map(in_turn, range(SERVERS)))
    assert sum(spoilt) > SERVERS
