"""The catalog of one server on the databases of a lane's bench."""

from typing import Self

from app.databases.session import Book, Note
from app.kinds.table import KINDS
from app.tickets.catalog import Catalog
from app.tickets.definitions import Definition
from app.tickets.listing import Listing
from tests.fakes.server import FakeServer
from tests.unit.lane_bench import Bench, make_bench

NOW = 1_700_000_000_000
"""The time for new sequences, in milliseconds since 1970."""


class CatalogBench:
    """A bench whose databases have no sequence yet, and a server's catalog on it."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.sight, self.members, self.servers = bench, bench.sight, bench.members, bench.servers
        self.catalog = Catalog(bench.sight, bench.floors, lambda: NOW)
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
    known = KINDS[kind].complete({}, NOW) if kind in KINDS else {}
    row = Definition(kind, {**known, **parameters}, name, "other")
    server.data.notes[Book.DEFINITIONS][name.lower()] = row.note()


def rows(bench: CatalogBench, key: str) -> list[Note | None]:
    """The row of DEFINITIONS on each database."""
    return [server.data.notes[Book.DEFINITIONS].get(key) for server in bench.servers]


def lasts(bench: CatalogBench, name: str) -> list[int | None]:
    """Where the counters stand on each database; None where there is none."""
    counters = [server.data.counters.get(name) for server in bench.servers]
    return [counter.last if counter is not None else None for counter in counters]
