"""A database server in memory: its data, its faults, and the events that may befall it.

`FakeSession` (in `session`) is the connection to it. Everything here takes effect at once and between two calls, so a
packet is applied as a whole or not at all.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from app.databases.record import new_word
from app.databases.session import ENDS, Book, Facts, Note, RingRow
from app.errors import DatabaseError

SHORTEST_RESTART = 3.0
"""Seconds. A restart moves the start by at least so much, however little the test's clock has moved."""


@dataclass(slots=True)
class FakeCounter:
    """The counter of one sequence.

    name: as it was made. last: no id at or below it is drawn again. birth: changes when the counter is made anew.
    broken: why it cannot be served, None where it can.
    """

    name: str
    bits: int
    last: int
    birth: str
    broken: str | None = None

    @property
    def ceiling(self) -> int:
        """The largest id of this width."""
        return ENDS[self.bits]


@dataclass(slots=True)
class Data:
    """The data that goes back together when a database comes back older. The keys of `counters` are names as made."""

    ring: RingRow
    births: str
    notes: dict[Book, dict[str, Note]] = field(default_factory=lambda: {book: {} for book in Book})
    counters: dict[str, FakeCounter] = field(default_factory=dict)

    def copy(self) -> "Data":
        """Return a copy that shares nothing with this one."""
        notes = {book: dict(rows) for book, rows in self.notes.items()}
        return Data(self.ring, self.births, notes, {name: replace(one) for name, one in self.counters.items()})


class FakeServer:
    """One database server.

    Attributes that a test sets: `down` (neither connections nor answers), `read_only`, `login_rejected`,
    `max_connections` (None: any number), `locked` (names of sequences, as they were made), `loses` (a function of
    client and call: whether the effect happens and the answer never comes).

    `connects` counts the connections that were asked for, `misused` the calls on a session that had failed before.
    `late` has the requests that were given up during a standstill, by their clients: they take effect behind it.
    """

    def __init__(
        self,
        name: str = "database",
        *,
        clock: Callable[[], float] = lambda: 1_000_000.0,
        like_mysql: bool = False,
        words: Callable[[], str] = new_word,
    ) -> None:
        """Make an empty server that has just started.

        clock: the server's own clock, in seconds since 1970. words: gives random words; a simulation has its own.
        like_mysql: a draw of more than eight ids gives more than were wanted and leaves a gap. The birth of the
        server's own tables is the second in which they were made. The start that the server tells differs by a second
        between two calls.
        """
        self.name = name
        self.clock = clock
        self.like_mysql = like_mysql
        self.words = words
        self.machine = words()
        self.started = clock()
        self.incarnation = 0
        self.data = self._empty()
        self.down = self.read_only = self.login_rejected = False
        self.max_connections: int | None = None
        self.locked: set[str] = set()
        self.loses: Callable[[str, str], bool] | None = None
        self.connects = self.misused = 0
        self.open: set[object] = set()
        self._cut: set[str] = set()
        self._frozen: dict[str | None, asyncio.Event] = {}
        self._held: asyncio.Event | None = None
        self.late: list[tuple[str, Callable[[], object]]] = []
        self._told = 0

    def __repr__(self) -> str:
        return f"<{self.name} body {self.data.ring.body} started {self.started:.0f}>"

    def _empty(self) -> Data:
        return Data(RingRow(self.words()), self.birth())

    def birth(self) -> str:
        """Return the birth of a table that is made now."""
        return str(int(self.clock())) if self.like_mysql else self.words()

    @property
    def facts(self) -> Facts:
        """The facts that the server states now."""
        self._told += 1
        started = self.started + (self._told % 2 if self.like_mysql else 0)
        return Facts(self.machine, started, self.data.births, self.clock(), "fake 1.0")

    # --- the data ----------------------------------------------------------------------------------------------------

    def restart(self, data: Data | None = None) -> None:
        """Restart with this data, by default the same. Every connection ends."""
        self.data = data or self.data
        self.started = max(self.clock(), self.started + SHORTEST_RESTART)
        self.end_connections()

    def restore(self, snapshot: Data) -> None:
        """Come back with the data of a snapshot, after a restart."""
        self.restart(snapshot.copy())

    def wipe(self) -> None:
        """Come back empty, after a restart: another body."""
        self.restart(self._empty())

    def read_back(self, snapshot: Data) -> None:
        """Read a dump back into the running server: the connections stay, and everything has another birth."""
        self.data = snapshot.copy()
        self.data.births = self.birth()
        for counter in self.data.counters.values():
            counter.birth = self.birth()

    def move(self) -> None:
        """Let another machine run the same data (a failover). Every connection ends."""
        self.machine = self.words()
        self.end_connections()

    def copy(self, name: str | None = None) -> "FakeServer":
        """Return another server, on another machine, with a copy of the data: the same body."""
        name = name or f"copy of {self.name}"
        other = FakeServer(name, clock=self.clock, like_mysql=self.like_mysql, words=self.words)
        other.data = self.data.copy()
        return other

    # --- one sequence ------------------------------------------------------------------------------------------------

    def add(self, name: str, bits: int = 64, last: int = 0) -> FakeCounter:
        """Make a sequence, as a database administrator would."""
        counter = self.data.counters[name] = FakeCounter(name, bits, last, self.words())
        return counter

    def drop(self, name: str) -> None:
        """Drop a sequence."""
        del self.data.counters[name]

    def truncate(self, name: str) -> None:
        """Empty a sequence's table: its counter begins again, with another birth."""
        self.add(name, self.data.counters[name].bits)

    def set_last(self, name: str, last: int) -> None:
        """Set a counter back, or to its end, within the same birth."""
        self.data.counters[name].last = last

    # --- links and standstills ---------------------------------------------------------------------------------------

    def cut(self, client: str) -> None:
        """Cut the link of a client: its calls fail, an answer that is under way is lost."""
        self._cut.add(client)

    def heal(self, client: str) -> None:
        """Mend the link of a client."""
        self._cut.discard(client)

    def reaches(self, client: str) -> bool:
        """Tell whether packets between this client and the server arrive."""
        return not self.down and client not in self._cut

    def freeze(self, client: str | None = None) -> None:
        """Let the requests of this client (None: of all) wait before their effect until `thaw`."""
        self._frozen.setdefault(client, asyncio.Event())

    def thaw(self, client: str | None = None) -> None:
        """Let the requests go on. A request that its client gave up takes effect as well."""
        event = self._frozen.pop(client, None)
        if event is not None:
            event.set()
        late, self.late = self.late, []
        for sender, effect in late:
            if self.standstill(sender) is not None:
                self.late.append((sender, effect))
            else:
                with suppress(DatabaseError):
                    effect()

    def standstill(self, client: str) -> asyncio.Event | None:
        """Return the event that a request of this client has to wait for, None where it need not wait."""
        return self._frozen.get(client) or self._frozen.get(None)

    def hold_answers(self, held: bool = True) -> None:
        """Let answers wait behind their effect, until this is called with `held` false: they are late."""
        if self._held is not None:
            self._held.set()
        self._held = asyncio.Event() if held else None

    async def answer(self, client: str, what: str) -> None:
        """Return when the answer to a call may arrive; never, where it is lost."""
        if self.loses is not None and self.loses(client, what):
            await asyncio.Event().wait()
        while self._held is not None:
            await self._held.wait()

    def end_connections(self) -> None:
        """End every connection. An answer that was sent before still arrives."""
        self.incarnation += 1
        self.open.clear()
