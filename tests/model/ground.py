"""The ground of one schedule: its databases, the network, the judge, and what is true of the databases."""

import math
import random
from collections.abc import Collection, Sequence

from app.databases.address import Address
from app.databases.life import TOLERANCE
from app.databases.record import Record
from app.databases.session import Book
from tests.fakes.server import FakeServer
from tests.model.judge import Judge
from tests.model.network import Network
from tests.model.scale import SEQUENCES, Place, Scale
from tests.model.simulation import BEGINNING, Loop


class Ground:
    """All that there is in one schedule except for the ticket servers.

    places: by offset, the databases of the list that most servers have. newest: of the newest list, which another
    server may have already. others: databases that are only in one of the two, or in none any more. behind: why no
    other database may go back now, None where one may (rule 5). split: whether there have been two bodies of data at
    one offset. wanted: the sequences that callers ask for; quiet: nobody asks for anything while it is above 0.
    """

    def __init__(self, seed: int | str, scale: Scale, *, trace: bool = False) -> None:
        self.seed, self.scale = seed, scale
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
        self._records: dict[str, Record] = {}

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
            server = FakeServer(host, clock=self.clock, traits=self.scale.traits, words=self.word)
            for sequence in SEQUENCES[: self.scale.sequences]:
                server.add(sequence)
        place = Place(Address(host, 3306, "tickets", "tickets"), offset, server)
        self.network.places[place.name] = server
        return place

    def save(self) -> None:
        """Make a backup of every database."""
        for place in self.places:
            place.saved.append((self.loop.now, place.server.snapshot()))

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
        records = {each: self._record(each) for each in (*self.places, *self.others)}
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
        records = (self._record(place) for place in (*self.places, *self.others))
        return {record.ring for record in records if record is not None}

    def _record(self, place: Place) -> Record | None:
        text = place.server.data.ring.text
        if text and text not in self._records:
            self._records[text] = Record.load(text)
        return self._records.get(text)
