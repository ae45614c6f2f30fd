"""The catalog of one server on the databases of a lane's bench, with the kinds `ticket`, `instagram` and `uuid4`."""

from collections.abc import Mapping
from typing import Self

from next.databases.session import Book
from next.errors import InvalidRequest
from next.tests.fakes.server import FakeServer
from next.tests.unit.lane_bench import Bench, make_bench
from next.tickets.catalog import Catalog
from next.tickets.definitions import Definition, Row
from next.tickets.listing import Listing
from next.tickets.making import Maker

DEFAULTS = {"ticket": {"bits": 64, "start": 1}, "instagram": {"epoch": 0, "shards": 8192}, "uuid4": {}}


class Kinds:
    """Three kinds of sequence."""

    def complete(self, kind: str, given: Mapping[str, int]) -> Definition:
        if kind not in DEFAULTS or not given.keys() <= DEFAULTS[kind].keys():
            raise InvalidRequest("no such kind or parameter")
        return Definition(kind, {**DEFAULTS[kind], **given})

    def holds(self, definition: Definition) -> bool:
        return definition.kind in DEFAULTS and definition.parameters.keys() == DEFAULTS[definition.kind].keys()

    def counter_bits(self, definition: Definition) -> int | None:
        return {"ticket": definition.parameters.get("bits"), "instagram": 64}.get(definition.kind)


class CatalogBench:
    """A bench whose databases have no sequence yet, and a server's catalog on it."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.sight, self.members, self.servers = bench, bench.sight, bench.members, bench.servers
        self.catalog = Catalog(bench.sight, bench.floors, Kinds())
        self.maker = Maker(self.catalog, bench.sight, Kinds())
        self.listing = Listing(self.catalog, bench.sight)

    @classmethod
    async def make(cls, count: int = 2, *, seen: bool = True, seconds: float = 5.0) -> Self:
        """Make the bench. seen: whether its databases are in sight. seconds: the database timeout."""
        bench = await make_bench(count, seen=seen, seconds=seconds)
        for server in bench.servers:
            server.drop("photos")
        return cls(bench)

    def another(self) -> "CatalogBench":
        """Another server on the same databases. It has a sight of its own, with nothing in sight yet."""
        bench = Bench(self.servers, self.bench.clock)
        bench.sight.go_by(self.sight.record)
        return CatalogBench(bench)

    def away(self, offset: int) -> None:
        """Lose sight of a database."""
        member = self.members[offset - 1]
        self.sight.leave(member, member.status, "away")


def define(server: FakeServer, name: str, kind: str, **parameters: int) -> None:
    """Write a row of DEFINITIONS, as another server has."""
    row = Row(name, Definition(kind, {**DEFAULTS.get(kind, {}), **parameters}), "other")
    server.data.notes[Book.DEFINITIONS][name.lower()] = row.note()


def rows(bench: CatalogBench, key: str) -> list[Row | None]:
    """The rows of DEFINITIONS on each database."""
    notes = [server.data.notes[Book.DEFINITIONS].get(key) for server in bench.servers]
    return [Row.load(key, note) if note is not None else None for note in notes]


def lasts(bench: CatalogBench, name: str) -> list[int | None]:
    """Where the counters stand on each database; None where there is none."""
    counters = [server.data.counters.get(name) for server in bench.servers]
    return [counter.last if counter is not None else None for counter in counters]
