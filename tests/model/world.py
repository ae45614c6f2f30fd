"""The world of one schedule: its databases, network and ticket servers, a story, and the recovery behind it."""

import asyncio
import gc
import math
import random
import secrets
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from app.databases.address import Address
from app.databases.life import TOLERANCE
from app.databases.record import Record, read_record
from app.databases.session import Book
from app.tickets import step
from tests.fakes.server import FakeServer
from tests.model.judge import Judge
from tests.model.network import Network
from tests.model.scale import SEQUENCES, Place, Scale
from tests.model.server import Server
from tests.model.simulation import BEGINNING, Loop

AGAIN, LOOKS = 20.0, 10
"""Seconds and probe intervals after which every server gives tickets again, once nothing is wrong any more: a server
that was killed counts as live for five intervals, and a body is taken in after ten seconds. No server warns after twice
that time."""


class World:
    """All that there is in one schedule. recovers: whether everything is mended at its end.

    places: by offset, the databases of the list that most servers have. newest: of the newest list, which another
    server may have already. others: databases that are only in one of the two, or in none any more. behind: why no
    other database may go back now, None where one may (rule 5). split: whether there have been two bodies of data at
    one offset. wanted: the sequences that callers ask for; quiet: nobody asks for anything while it is above 0.
    """

    def __init__(self, seed: int | str, scale: Scale, *, trace: bool = False, recovers: bool = True) -> None:
        self.seed, self.scale = seed, scale
        self.sequences = SEQUENCES[: scale.sequences]
        self.chance = random.Random(f"{seed} world")
        self.loop = Loop(random.Random(f"{seed} loop"))
        self.trace: list[str] = []
        self.loop.trace = self.trace if trace else None
        self.network = Network(self.loop, random.Random(f"{seed} network"))
        self.judge = Judge(self.loop.note, lambda: self.loop.now)
        self.words = random.Random(f"{seed} words")
        self.places = [self.make_place(f"db{offset}", offset) for offset in range(1, scale.databases + 1)]
        self.newest = self.places
        self.others: list[Place] = []
        self.behind: str | None = None
        self.came_back: set[Place] = set()
        self.split = False
        self.quiet = 0
        self.wanted: Collection[str] = SEQUENCES
        self.recovers = recovers
        self.servers: list[Server] = []
        self.growth: Any = None
        """The `growing.Run` that is under way."""
        self._runs = 0
        self._work: list[asyncio.Task[None]] = []

    def clock(self) -> float:
        """The databases' own clock, in seconds since 1970."""
        return BEGINNING + self.loop.now + self.loop.slept

    def word(self) -> str:
        """A random word."""
        return f"{self.words.getrandbits(64):016x}"

    # --- databases ---------------------------------------------------------------------------------------------------

    def make_place(self, host: str, offset: int, server: FakeServer | None = None) -> Place:
        """Run a database server at an address: by default one with all sequences, and without a single ticket."""
        if server is None:
            server = FakeServer(host, clock=self.clock, like_mysql=self.scale.like_mysql, words=self.word)
            for sequence in self.sequences:
                server.add(sequence)
        place = Place(Address(host, 3306, "tickets", "tickets"), offset, server)
        self.network.places[place.name] = server
        return place

    def save(self) -> None:
        """Make a backup of every database."""
        for place in self.places:
            place.saved.append(place.server.data.copy())

    def go_back(self, place: Place, what: str) -> None:
        """Note that the data of a database has gone back, just now: no other may while a server warns of it."""
        self.loop.note(place, what)
        self.behind = f"{place}: {what}"
        self.came_back.add(place)
        self.judge.went_back(place.offset)

    def twin(self, place: Place) -> None:
        """From now on there are two bodies of data at one offset, until the schedule ends."""
        self.split = True
        self.judge.went_back(place.offset, until=math.inf)

    def present_life(self, place: Place) -> str | None:
        """The word of the life that the database at this address is in; None before anybody has noticed it."""
        server = place.server
        row = server.data.notes[Book.LIVES].get(server.machine)
        if row is None or abs(row.high - int(server.started)) > TOLERANCE or server.data.births not in row.text:
            return None
        return row.tenure

    def is_isolated(self, client: str, places: Sequence[Place], place: Place) -> bool:
        """Whether a client draws from data that was replaced, and reaches no database that records the replacement.

        places: the client's list. place: where it draws.

        A database that came back older does not count until the server must have looked at the record there again. One
        that came back without a record, beside databases that never had one, is drawn in a new ring.
        """
        if not self.split:
            return False
        records = {each: read_record(each.server.data.ring) for each in (*self.places, *self.others)}
        top = max((record for record in records.values() if record is not None), key=lambda record: record.rank)
        mine = records[place]
        if place in self.came_back and len(self.rings()) > 1:
            return True
        body = top.at(place.offset)
        if body is None or body.word == place.server.data.ring.body:
            return False
        young = self.loop.now - 3 * self.scale.interval - self.scale.timeout
        others = [each for each in places if each is not place and self.network.reaches(client, each.name)]
        known = [
            records[each]
            for each in others
            if not (each in self.came_back and self.network.recorded.get(each.server, 0.0) > young)
        ]
        return all(mine is not None and record.rank <= mine.rank for record in known if record is not None)

    def rings(self) -> set[str]:
        """The words of the rings that databases record. Two are one too many, and only a person can mend that."""
        records = (read_record(place.server.data.ring) for place in (*self.places, *self.others))
        return {record.ring for record in records if record is not None}

    def top_record(self, places: Sequence[Place] | None = None) -> Record | None:
        """The highest record of these databases, by default of the list."""
        records = [read_record(place.server.data.ring) for place in places or self.places]
        return max(filter(None, records), key=lambda record: record.rank, default=None)

    # --- ticket servers ----------------------------------------------------------------------------------------------

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
        await asyncio.wait([server.process.run(server.service.stop())])
        server.process.kill()

    def settle_growth(self) -> None:
        """Go by the ring as it is after a `ticketd grow`: its list is the right one if the change was decided."""
        run, self.growth = self.growth, None
        if run is None:
            return
        run.process.kill()
        if run.stands(self.top_record(run.longer)):
            self.others += [place for place in self.places if place not in run.after]
            self.places = self.newest = run.after
            self.loop.note("operator", f"goes on with {self.places}")

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
        self.settle_growth()
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
            server.process.calm()
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
            for sequence in self.sequences
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
