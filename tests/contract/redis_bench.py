"""The door of the Redis protocol on a real port, over a service on fake ticket databases."""

import asyncio
import socket

from app.connections import Connections
from app.redis.door import RedisDoor
from tests.contract.http_bench import DEADLINE, Served, Wire


class Raw(Wire):
    """A client that sends commands and reads the lines of their replies."""

    async def lines(self, count: int) -> list[bytes]:
        """Return the next lines, without their ends; empty ones where the server has closed the connection."""
        async with asyncio.timeout(DEADLINE):
            return [(await self.reader.readline()).rstrip(b"\r\n") for _ in range(count)]

    async def ask(self, *commands: str) -> list[bytes]:
        """Send inline commands, and return the first line of each reply. All but the last reply have one line only."""
        self.send("".join(f"{command}\r\n" for command in commands).encode())
        return await self.lines(len(commands))


class Bench(Served):
    """A door, and what stands behind it."""

    def __init__(self) -> None:
        super().__init__(request_timeout=40.0, database_timeout=20.0)
        self.connections = Connections(100, self.tally)
        self.door = RedisDoor(self.service, self.access, self.tally, self.connections, self.watch, timeout=40.0)
        self.socket, self.raws = socket.create_server(("127.0.0.1", 0)), list[Raw]()

    async def raw(self) -> Raw:
        self.raws.append(Raw(*await asyncio.open_connection(*self.socket.getsockname())))
        return self.raws[-1]
