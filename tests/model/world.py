"""The world of one schedule: ticket servers that start and end on its ground, a story, and the recovery behind it."""

import asyncio
import gc
import random
import secrets
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from app.tickets import step
from tests.model.ground import Ground
from tests.model.judge import Judge
from tests.model.scale import SEQUENCES, Place, Scale
from tests.model.server import Server

AGAIN, LOOKS = 20.0, 10
"""Seconds and probe intervals after which every server gives tickets again, once nothing is wrong any more: a server
that was killed counts as live for five intervals, and a body is taken in after ten seconds. No server warns after twice
that time."""


class World(Ground):
    """All that there is in one schedule. recovers: whether everything is mended at its end."""

    def __init__(self, seed: int | str, scale: Scale, *, trace: bool = False, recovers: bool = True) -> None:
        super().__init__(seed, scale, trace=trace)
        self.recovers = recovers
        self.servers: list[Server] = []
        self._runs = 0
        self._work: list[asyncio.Task[None]] = []

    @property
    def is_level(self) -> bool:
        """Whether there is a server that has the newest list and reaches all of it, and no such server warns."""
        watching = [server for server in self.servers if server.places == self.newest and server.reaches_all]
        return bool(watching) and all(not server.process.frozen and server.is_level for server in watching)

    def may_go_back(self) -> bool:
        """Whether another database may go back: none has, or no server warns of it.

        While servers have two lists, each may turn to its own data at an offset, so no other database may go back.
        """
        if self.behind is not None and self.is_level and all(server.places == self.newest for server in self.servers):
            self.loop.note("operator", f"sees no warning any more since {self.behind}")
            self.behind = None
        return self.behind is None

    def start(self, name: str, places: Sequence[Place] | None = None) -> Server:
        """Start a ticket server, by default with the list that is right."""
        self._runs += 1
        server = Server(self, name, self._runs, places or self.places)
        self.servers.append(server)
        self.loop.note(server, f"starts with {server.places}")
        return server

    async def end(self, server: Server) -> None:
        """End a ticket server as SIGTERM does."""
        self.servers.remove(server)
        if server.service is not None:
            await asyncio.wait([server.process.run(server.service.stop())])
        server.process.kill()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something happen beside the story."""
        self._work.append(self.loop.create_task(work))

    def kill(self, server: Server) -> None:
        """End a ticket server as `kill -9` does."""
        server.process.kill()
        self.servers.remove(server)

    # --- the schedule ------------------------------------------------------------------------------------------------

    def run(self, story: Callable[["World"], Coroutine[Any, Any, None]]) -> Judge:
        """Run this story, then mend everything, and see that the servers recover. Returns what was wrong."""
        enabled = gc.isenabled()
        gc.disable()  # a collection would close the tasks of killed processes, at a moment of its own
        try:
            with settled_chance(self):
                self.loop.run_until_complete(self._tell(story))
        finally:
            self.network.over = True
            self.judge.faults += self.loop.errors
            self.loop.end()
            if enabled:
                gc.enable()
        return self.judge

    async def _tell(self, story: Callable[["World"], Coroutine[Any, Any, None]]) -> None:
        await story(self)
        if self.recovers and not self.judge.faults:
            await self._recover()

    async def _recover(self) -> None:
        """Mend everything as people would, and see that every server gives tickets and that no warning is left."""
        self.loop.note("operator", "mends everything")
        for work in self._work:
            work.cancel()
        self.places = self.newest  # the earlier list would be another database that comes back older
        for place in self.places:
            if place.server.down:
                place.server.restart()
            place.server.down = place.server.read_only = False
        self.network.calm()
        self.wanted, self.quiet = SEQUENCES, 0
        self.scale.stalls = 0.0
        self.scale.rate = self.scale.rate or 10.0
        for server in [server for server in self.servers if server.places != self.places]:
            self.kill(server)
        for server in self.servers:
            server.process.stalls = 0.0
            server.process.thaw()
        if not self.servers:
            self.start("last")
        mended, patience = self.loop.now, AGAIN + LOOKS * self.scale.interval
        await self._until(patience, lambda: self._silent(mended), "does not give tickets again")
        if len(self.rings()) > 1:
            return
        await self._until(2 * patience - (self.loop.now - mended), self._warning, "still warns")

    async def _until(self, seconds: float, missing: Callable[[], list[str]], what: str) -> None:
        for _ in range(int(seconds)):
            if not missing():
                return
            await asyncio.sleep(1.0)
        if left := missing():
            self.judge.fault(f"{what} after everything was mended: {left}")

    def _silent(self, since: float) -> list[str]:
        """The servers and sequences that nothing was given for since then."""
        return [
            f"{server} {sequence}"
            for server in self.servers
            for sequence in SEQUENCES[: self.scale.sequences]
            if server.answered.get(sequence, -1.0) < since
        ]

    def _warning(self) -> list[str]:
        return [f"{server}: {warning}" for server in self.servers for warning in server.warnings]


@contextmanager
def settled_chance(world: World) -> Iterator[None]:
    """Let the seed decide every random number of the ticket servers."""
    chance = random.Random(f"{world.seed} servers")
    state = random.getstate()
    random.seed(f"{world.seed} global")
    with (
        mock.patch.object(secrets, "token_hex", lambda size=32: f"{chance.getrandbits(8 * size):0{2 * size}x}"),
        mock.patch.object(step, "SMALLEST", world.scale.smallest_step),
        mock.patch.object(step, "SECONDS_AHEAD", world.scale.seconds_ahead),
    ):
        try:
            yield
        finally:
            random.setstate(state)
