"""One ticket database of each storage engine, as the contract tests handle it: fresh, with as many clients as expected.

A `Storage` is the database. Its clients are the `TicketDatabase`s under test: each is what one ticket server would
have, with connections of its own. Where engines may differ, the difference has a name here, and the tests go by that.
`mysql_storage`, `sqlite_storage` and `fake_storage` are the engines.
"""

import abc
import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

from app.common.sequences import Width
from app.databases.protocol import Draw, Residue, ServerEntry, Table, TicketDatabase

INCREMENT = 2
ROOM = 3
"""With so many times their number left, every engine draws several tickets."""
TIMEOUT = 20.0
"""Seconds for every statement: long enough for a machine that is busy with something else."""


@dataclass(frozen=True, slots=True)
class Column:
    """A kind of id column: `end` is the largest number that it holds."""

    width: Width
    end: int

    @property
    def unsigned(self) -> bool:
        return self.end > 1 << (int(self.width) - 1)


UNSIGNED_INT, SIGNED_INT = Column(Width.INT, 2**32 - 1), Column(Width.INT, 2**31 - 1)
UNSIGNED_BIGINT, SIGNED_BIGINT = Column(Width.BIGINT, 2**64 - 1), Column(Width.BIGINT, 2**63 - 1)


class Storage(abc.ABC):
    """The ticket databases of offset 1 and 2, new and without a sequence of the tests'.

    `columns`: the kinds of columns there can be, those that `make` makes first. `has_settings`: whether the server is
    configured with an increment and an offset of its own. `leaves_the_last`: whether
    a column whose end is of another residue may end before the last id below it. `renames_itself`: whether its identity
    is another one after a restart. `sees_open_files`: whether who else has it open is seen at once, so that nobody
    watches for probes. `needs_room`: whether many tickets close to the end are not drawn, though they would fit.
    `fences_draws`: whether a draw itself sees that the ring record has another number.
    """

    columns: tuple[Column, ...] = (UNSIGNED_INT, UNSIGNED_BIGINT, SIGNED_INT, SIGNED_BIGINT)
    has_settings = True
    leaves_the_last = False
    renames_itself = False
    sees_open_files = False
    needs_room = True
    fences_draws = False

    def __init__(self) -> None:
        self._clients: list[TicketDatabase] = []
        self.retried: list[str] = []
        """Why statements were tried again, on engines where that happens."""

    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        """Run a test on an event loop that this engine works on; close every client that it leaves open."""
        asyncio.run(self._and_close(scenario))

    async def _and_close(self, scenario: Coroutine[Any, Any, None]) -> None:
        try:
            await scenario
        finally:
            await asyncio.gather(*(client.close() for client in self._clients))
            self._clients.clear()

    @property
    def deadlocks(self) -> list[str]:
        """The deadlocks after which a statement was tried again."""
        return [why for why in self.retried if "deadlock" in why]

    async def client(
        self,
        offset: int = 1,
        *,
        increment: int = INCREMENT,
        probe: bool = True,
        entry: ServerEntry | None = None,
        within: float = TIMEOUT,
    ) -> TicketDatabase:
        """A further client of the database of this offset, that has looked at it unless told not to. `entry`: that of a
        ticket server, which announces itself. `within`: seconds for a statement."""
        client = self._open(offset, increment, within)
        self._clients.append(client)
        if entry is not None:
            client.announce(lambda: entry)
        if probe:
            await client.probe()
        return client

    async def close(self, client: TicketDatabase) -> None:
        """Close a client before the test ends."""
        self._clients.remove(client)
        await client.close()

    def true_time(self) -> float:
        """What the databases' clocks should say, in seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """By which clients tell when they asked."""
        return time.monotonic()

    def stand_still(self, seconds: float) -> None:
        """Have this process do nothing, whatever the databases do meanwhile."""
        time.sleep(seconds)

    @abc.abstractmethod
    def _open(self, offset: int, increment: int, timeout: float) -> TicketDatabase: ...

    @abc.abstractmethod
    async def make_column(self, client: TicketDatabase, sequence: str, column: Column) -> Table:
        """A sequence's table, in the database of offset 1, with such a column."""

    @abc.abstractmethod
    def make_foreign_tables(self) -> Sequence[str]:
        """Make tables in the database of offset 1 that are no sequence's; their names."""

    @abc.abstractmethod
    def seen_by_older_releases(self) -> set[str]:
        """What a release that knows no inner sequences finds in the database of offset 1: the names of its tables and
        those that its marks are of."""

    @abc.abstractmethod
    def probe_as_an_older_release(self) -> None:
        """Do what the probe of a ticket server does that does not announce itself, in the database of offset 1."""

    @abc.abstractmethod
    def probe_as_the_release_before(self, release: str) -> None:
        """Do what the probe of a ticket server does that announces itself but no bodies, in the database of offset
        1."""

    @abc.abstractmethod
    def age_servers(self, days: int) -> None:
        """Have every ticket server of the database of offset 1 been seen so many days earlier."""

    @abc.abstractmethod
    def age_uses(self, seconds: float) -> None:
        """Have every announcement of a body in the database of offset 1 been written so many seconds earlier, as where
        the clock is set forward; below 0: later."""

    @abc.abstractmethod
    def write_definition(self, sequence: str, kind: str, parameters: str) -> None:
        """Write such a row of how a sequence was made into the database of offset 1, as another release might."""

    has_no_earlier_release = False
    """Whether no release before this one ever used such a database."""

    def definitions_of_0_2_0(self) -> list[tuple[str, str, str]]:
        """What servers of release 0.2.0 read of the database of offset 1: sequence, kind and parameters."""
        raise NotImplementedError

    @abc.abstractmethod
    def alter_by_hand(self, sequence: str) -> None:
        """Somebody changes something about a sequence's table in the database of offset 1 that is not its width."""

    @abc.abstractmethod
    def drop(self, sequence: str) -> None:
        """Somebody drops a sequence's table in the database of offset 1."""

    @abc.abstractmethod
    def sessions(self) -> frozenset[object]:
        """What the server of offset 1 calls its connections for these databases; nothing where it has none."""

    @abc.abstractmethod
    async def begin_another_life(self) -> None:
        """Have the database of offset 1 restart, or what else may hide that it has gone back; the data stay."""

    async def crash(self) -> None:
        """Have the server of offset 1 end without a word, as a kill or a power cut ends it, and start again."""
        await self.begin_another_life()

    @abc.abstractmethod
    def configure(self, increment: int) -> None:
        """Have the server of offset 1, where it has such a setting, say that this is its increment."""


def on_each_engine(test: Callable[[Storage], Coroutine[Any, Any, None]]) -> Callable[[Storage], None]:
    """An asynchronous test of a `storage`, on the event loop that its engine works on."""

    @wraps(test)
    def on_its_loop(storage: Storage) -> None:
        storage.run(test(storage))

    return on_its_loop


def rows_of(table: Table) -> int:
    """How many tickets are few to the engine: one more may be drawn in another way."""
    return int(getattr(table, "rows_per_statement", 64))


def residue_of(client: TicketDatabase, ring: int = 0) -> Residue:
    """What a client draws."""
    return Residue(client.offset, client.increment, ring)


async def take(client: TicketDatabase, table: Table, count: int, after: int, least: int = 0, *, ring: int = 0) -> Draw:
    """Draw as a lane of this client would that was opened under the ring of this number."""
    return await client.draw(residue_of(client, ring), table, count, after, least)


async def made(client: TicketDatabase, sequence: str = "photos", width: Width = Width.BIGINT, start: int = 1) -> Table:
    """The table of a sequence that is made where it is missing."""
    await client.make(sequence, width, start)
    return (await client.tables([sequence]))[sequence]


async def remade(storage: Storage, client: TicketDatabase, table: Table) -> Table:
    """The table, dropped and made anew; a server that dates its tables to the second has the next second begin."""
    async with asyncio.timeout(20):
        while True:
            storage.drop(table.sequence)
            anew = await made(client, table.sequence, table.width)
            if anew.created != table.created:
                return anew
            await asyncio.sleep(0.1)


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for what a server does by itself a moment later, and tells nobody."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.02)
