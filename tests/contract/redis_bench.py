"""The door of the Redis protocol on a real port, over a service on fake ticket databases."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from app.access import Access
from app.connections import Connections, Tally
from app.operations.watch import Seen
from app.redis.door import RedisDoor
from app.service import Service
from app.settings import Settings
from tests.contract.http_bench import databases_on
from tests.fakes.server import FakeServer

DEADLINE = 60.0  # Seconds that a test waits for an answer. On a busy machine it may take some.
TOKEN = "user-token-of-tests"


class Raw:
    """A client that sends bytes and reads bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes | str) -> None:
        """Send bytes, or words as an array."""
        if isinstance(data, str):
            words = data.split()
            data = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w.encode()) for w in words)
        self.writer.write(data)

    async def line(self) -> bytes:
        """Return the next line, without its end; nothing where the server has closed the connection."""
        async with asyncio.timeout(DEADLINE):
            return (await self.reader.readline()).rstrip(b"\r\n")

    async def lines(self, count: int) -> list[bytes]:
        """Return the next lines."""
        return [await self.line() for _ in range(count)]

    async def ask(self, data: bytes | str) -> bytes:
        """Send a command and return the first line of its reply."""
        self.send(data)
        return await self.line()

    async def end(self) -> bytes:
        """Return all that comes before the server closes the connection."""
        async with asyncio.timeout(DEADLINE):
            return await self.reader.read()


class Bench:
    """A door, and what stands behind it."""

    def __init__(self, servers: list[FakeServer], access: Access, most: int, **options: Any) -> None:
        clock = asyncio.get_running_loop().time
        self.servers, self.access = servers, access
        databases = databases_on(servers, 20.0)
        waits = {"request_timeout": 40.0, "database_timeout": 20.0} | options
        self.service = Service(databases, Settings.model_construct(databases=databases, **waits), "test:1", clock=clock)
        self.tally, self.seen = Tally(), list[Seen]()
        self.connections = Connections(most, self.tally)
        watch: Any = SimpleNamespace(saw=self.seen.append)
        self.door = RedisDoor(self.service, access, self.tally, self.connections, watch, timeout=40.0)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port, self.raws = self.socket.getsockname()[1], list[Raw]()

    async def raw(self) -> Raw:
        self.raws.append(Raw(*await asyncio.open_connection("127.0.0.1", self.port)))
        return self.raws[-1]


@asynccontextmanager
async def running(*, tokens: Iterable[str] = (), most: int = 100, **options: Any) -> AsyncIterator[Bench]:
    """Run a door over two new databases that have the sequence `photos`."""
    servers = [FakeServer(f"db{offset}", clock=time.time) for offset in (1, 2)]
    for server in servers:
        server.add("photos")
    bench = Bench(servers, Access(tokens), most, **options)
    bench.service.start()
    await bench.door.accept_on([bench.socket])
    try:
        async with asyncio.timeout(DEADLINE):
            while len(bench.service.sight.in_sight) != len(servers):
                await bench.service.sight.moved()
        yield bench
    finally:
        for raw in bench.raws:
            raw.writer.transport.abort()  # closed, it would first send what the server does not read
        await bench.door.stop()
        await bench.service.stop()
