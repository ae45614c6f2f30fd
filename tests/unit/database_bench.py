"""A ticket database on a fake server that counts its calls."""

import asyncio
from collections import Counter

from app.databases.address import Address
from app.databases.database import Database
from app.databases.session import Drawn, Note, Residue, Want
from tests.fakes.server import FakeServer
from tests.fakes.session import fake_connect

ODD = Residue(1, 2)
BEAT = Note(text="{}")
TIMEOUT = 0.5


class Bench:
    """A fake server, a database on it, and the number of each of its calls. A way takes a millisecond."""

    def __init__(self) -> None:
        self.server = FakeServer()
        self.server.add("photos")
        self.calls: Counter[str] = Counter()
        self.database = self.another()

    def another(self) -> Database:
        address = Address("db", 3306, "u", "d", "secret")
        return Database(address, fake_connect(self.server, wait=self._way), TIMEOUT)

    async def _way(self, _client: str, _server: FakeServer, what: str) -> None:
        self.calls[what] += 1
        await asyncio.sleep(0.001)

    async def look(self) -> str:
        return (await self.database.look("me", BEAT))[1]

    async def draw(self, life: str, sequence: str = "photos", count: int = 1, residue: Residue = ODD) -> Drawn:
        return await self.database.draw(Want(sequence, count), residue, life)

    async def frozen_draw(self, life: str) -> "asyncio.Task[Drawn]":
        """A draw that is under way for as long as the server stands still."""
        await self.draw(life)
        self.server.freeze()
        task = asyncio.create_task(self.draw(life))
        await asyncio.sleep(0.01)
        return task

    async def close(self) -> None:
        """Close the database, and see that nothing was left open or was used again after it had failed."""
        await self.database.close()
        assert self.server.misused == 0
        assert self.server.open == set()
