"""A database server in memory, and what can happen to it."""

import copy
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from app.common.errors import (
    RingChanged,
    SequenceMissing,
    TicketDatabaseMisconfigured,
    TicketDatabaseUnavailable,
)
from app.common.sequences import Width
from app.databases.protocol import OLDER, OLDER_SECONDS, USE_INTERVALS, Draw, Mark, RingRecord, ServerEntry, Use
from app.kinds.definition import Definition
from tests.fakes.ticket_database.statement import Client, Statement
from tests.fakes.ticket_database.tables import FakeState, FakeTable

TRUE_TIME = 1_750_000_000.0
"""The true time, in seconds since 1970, when a virtual clock stands at 0."""
STALE_SECONDS = 86_400.0


class FakeServer:
    """One database server, and what is wrong with it at the moment.

    `is_rows`: its sequences are rows (see `RowTicketDatabase`), and not tables with a counter and a column that ends.
    `down`: refuses every connection. `read_only`: reads succeed. `ledger_fails`: the ledger's table alone cannot be
    used. `has_settings`: whether it is configured with an increment and an offset, as a server is, and a file is not;
    where it is, nobody draws with others. `misconfigured`: what a new connection finds wrong. `draws_as`: the offset
    and increment that draws really have, whatever a look says. `deadlocks`: how many of the next statements that write
    fail so. `loses_replies`: how many of the next statements are committed and never answered. `goes_past_the_end`: it
    takes for a ticket what a column gives at its end or beyond. `life`: how often it has gone back in time.
    `clock_offset`: seconds that its clock is ahead of the true time, below 0 where it is behind. `older_probe`: when a
    ticket server of an older release probed it last, by its own clock.
    """

    _numbers = itertools.count(1)

    def __init__(
        self,
        offset: int,
        increment: int = 2,
        sequences: Mapping[str, Width] | Sequence[str] = ("photos",),
        clock: Callable[[], float] = lambda: 0.0,
        *,
        is_rows: bool = False,
    ) -> None:
        self.is_rows = is_rows
        self.clock = clock
        self.offset = offset
        self.increment = increment
        self.name = f"fake{offset}:3306"
        self.identity = f"server-{next(self._numbers)}"
        self.state = FakeState()
        self.incarnation = self._new_incarnation()
        self.down = False
        self.read_only = False
        self.ledger_fails = False
        self.has_settings = not is_rows
        self.setting_names = "increment", "offset"
        self.misconfigured: str | None = None
        self.draws_as: tuple[int, int] | None = None
        self.deadlocks = 0
        self.loses_replies = 0
        self.goes_past_the_end = False
        self.alive: list[str] = []
        self.older_probe = float("-inf")
        self.statements = 0
        self.life = 0
        self.clock_offset = 0.0
        self.draws: list[tuple[str, Draw, int]] = []
        self.connected: dict[Client, None] = {}
        self.looks = 0
        self._hangs = False
        self._locked: set[str] = set()
        self._stalled: list[Statement] = []
        widths = sequences if isinstance(sequences, Mapping) else dict.fromkeys(sequences, Width.BIGINT)
        for sequence, width in widths.items():
            self.make(sequence, width, 1)

    def __repr__(self) -> str:
        return f"<FakeServer {self.name} {self.incarnation}>"

    def _new_incarnation(self) -> str:
        return f"start-{next(self._numbers)}"

    def table(self, sequence: str) -> FakeTable:
        """Raises SequenceMissing."""
        if sequence not in self.state.tables:
            raise SequenceMissing("has no table for it")
        return self.state.tables[sequence]

    def mark(self, sequence: str, offset: int) -> Mark | None:
        """The row that this server keeps about another one."""
        return self.state.marks.get((sequence, offset, self.increment))

    def has_drawn(self, sequence: str, first: int, last: int) -> bool:
        """Whether one draw ever gave all these ids."""
        return any(
            name == sequence and drawn.first <= first and last <= drawn.last and (first - drawn.first) % drawn.step == 0
            for name, drawn, _ in reversed(self.draws)
        )

    def lives_that_drew(self, sequence: str, id_: int) -> set[int]:
        """In which of its lives it drew this id: more than one where it has gone back in between."""
        return {life for name, drawn, life in self.draws if name == sequence and drawn.first <= id_ <= drawn.last}

    # --- statements ------------------------------------------------------------------------------------------------

    def draw(
        self,
        sequence: str,
        count: int,
        offset: int = 0,
        increment: int = 0,
        after: int = 0,
        *,
        least: int = 0,
        most: int | None = None,
    ) -> Draw:
        """`offset`, `increment`: what the session has been told, where it has been told any."""
        offset, increment = self.draws_as or (offset or self.offset, increment or self.increment)
        drawn = self.table(sequence).draw(
            count, offset, increment, after, least, most=most, past_its_end=self.goes_past_the_end
        )
        self.draws.append((sequence, drawn, self.life))
        return drawn

    def make(self, sequence: str, width: Width, start: int, *, unsigned: bool = True) -> None:
        if sequence not in self.state.tables:
            made = FakeTable(width, f"t{next(self._numbers)}", unsigned=unsigned, counter=start, largest=0)
            self.state.tables[sequence] = made

    def define(self, definition: Definition, old: Definition | None) -> Definition:
        if self.state.kinds.get(definition.key) == old and (old is None or not old.decided):
            self.state.kinds[definition.key] = definition
        if definition.key not in self.state.kinds:  # put back to before there was the old one
            raise TicketDatabaseUnavailable("lost a definition")
        return self.state.kinds[definition.key]

    def record_ring(
        self, old: RingRecord | None, new: RingRecord, entry: ServerEntry | None = None, now: float = 0.0
    ) -> RingRecord:
        """`entry`: what the ticket server announces with it, when a virtual clock stands at `now`."""
        if self.state.ring == old:
            self.state.ring = new
            self.probes(entry, now)
        if self.state.ring is None:  # replaced by an empty one since it was looked at
            raise TicketDatabaseUnavailable("lost its ring record")
        return self.state.ring

    def check_ring(self, number: int | None) -> None:
        """None: a test writes by hand."""
        if number is not None and (self.state.ring is None or self.state.ring.number != number):
            raise RingChanged

    def keep(self, marks: Iterable[Mark], ring: int | None = None) -> dict[tuple[str, int], Mark]:
        self.check_ring(ring)
        found = {}
        for mark in marks:
            key = (mark.sequence, mark.offset, mark.increment)
            row = self.state.marks.get(key, mark)
            if row.token == mark.token:
                row = replace(row, mark=max(row.mark, mark.mark), issued=max(row.issued, mark.issued))
            self.write_mark(key, row)
            found[mark.sequence, mark.offset] = row
        return found

    def supersede(self, old: Mark, new: Mark, ring: int | None = None) -> Mark:
        self.check_ring(ring)
        key = (old.sequence, old.offset, old.increment)
        row = self.state.marks.get(key)
        if row is None:
            raise TicketDatabaseUnavailable("lost a row of its ledger")
        if row.token == old.token and row.mark <= old.mark:
            row = replace(row, token=new.token, mark=new.mark, issued=max(row.issued, new.issued))
            self.write_mark(key, row)
        return row

    def write_mark(self, key: tuple[str, int, int], row: Mark) -> None:
        """Write a mark: it is dated, and its change has a number."""
        if self.state.marks.get(key) != row:
            self.state.marks[key] = row
            self.state.changed[key] = self.clock()
            self.state.number += 1
            self.state.numbers[key] = self.state.number

    def marks(self, changed_within: float | None) -> list[Mark]:
        since = float("-inf") if changed_within is None else self.clock() - changed_within
        return [row for key, row in self.state.marks.items() if self.state.changed[key] >= since]

    def time_at(self, now: float) -> float:
        """The server's time, in seconds since 1970, when a virtual clock stands at `now`."""
        return TRUE_TIME + now + self.clock_offset

    def uses(self, entry: ServerEntry | None, now: float) -> tuple[Use, ...]:
        """The announcements of the other ticket servers, when a virtual clock stands at `now`."""
        at = self.time_at(now)
        others = [each for key, each in self.state.servers.items() if entry is None or key != entry.instance]
        standing = (each for each in others if abs(each.at - at) <= USE_INTERVALS * each.probe_interval)
        return tuple(use for each in standing for use in each.uses or ())

    def older(self, now: float) -> tuple[str, ...]:
        """The releases of the servers that announce no bodies."""
        since = self.time_at(now) - OLDER_SECONDS
        seen = {each.release for each in self.state.servers.values() if each.at >= since and each.uses is None}
        return tuple(sorted(seen | ({OLDER} if self.older_probe >= since else set())))

    def look_for(self, entry: ServerEntry | None, now: float) -> None:
        """A probe arrives when a virtual clock stands at `now`."""
        if self.misconfigured:
            raise TicketDatabaseMisconfigured(self.misconfigured)
        self.looks += 1
        self.probes(entry, now)

    def probes(self, entry: ServerEntry | None, now: float) -> None:
        """Keep the announcement of a ticket server that probes when a virtual clock stands at `now`."""
        if entry is None:
            return
        at = self.time_at(now)
        self.state.servers = {key: each for key, each in self.state.servers.items() if each.at >= at - STALE_SECONDS}
        self.state.servers[entry.instance] = replace(entry, at=at)

    def servers_since(self, at: float) -> list[ServerEntry]:
        older = ServerEntry("", OLDER, (), 0, at=self.older_probe) if self.older_probe >= at else None
        seen = [entry for entry in self.state.servers.values() if entry.at >= at]
        return [*seen, older] if older else seen

    def probed(self, instance: str) -> dict[str, float]:
        """When each ticket server but this one has probed."""
        seen = {entry.instance: entry.at for entry in self.state.servers.values() if entry.instance != instance}
        return seen | {"": self.older_probe}

    # --- what can happen to it -------------------------------------------------------------------------------------

    @property
    def hangs(self) -> bool:
        return self._hangs

    def hang(self) -> None:
        """Stop answering; what arrives is executed when it thaws, whether anybody waits for it still or not."""
        self._hangs = True

    def thaw(self) -> None:
        self._hangs = False
        self._run_stalled()

    def lock(self, sequence: str) -> None:
        """LOCK TABLES: draws from this table, and questions about it, stand still; all else goes on."""
        self._locked.add(sequence)

    def unlock(self) -> None:
        self._locked.clear()
        self._run_stalled()

    @property
    def locks(self) -> bool:
        return bool(self._locked)

    def _run_stalled(self) -> None:
        stalled, self._stalled = self._stalled, []
        for statement in stalled:
            if self.stands_still(statement.table):
                self._stalled.append(statement)
            else:
                statement.run()

    def stands_still(self, table: str | None) -> bool:
        return self._hangs or (table is not None and table in self._locked)

    def stall(self, statement: Statement) -> None:
        """Keep a statement until the server goes on."""
        self._stalled.append(statement)

    def restart(self) -> None:
        """Connections break, statements that had not begun are lost, the data are as they were."""
        self.connected.clear()
        self.incarnation = self._new_incarnation()
        stalled, self._stalled = self._stalled, []
        self._hangs = False
        self._locked.clear()
        for statement in stalled:
            statement.end(TicketDatabaseUnavailable("broke the connection off"))

    def configure(self, offset: int, increment: int) -> None:
        """Other values in its configuration, and a restart."""
        self.offset, self.increment = offset, increment
        self.restart()

    def set_global(self, offset: int, increment: int) -> None:
        """Other values while the server runs. It ends every connection, and a new one finds the same incarnation."""
        self.offset, self.increment = offset, increment
        self.connected.clear()

    def users(self, asking: Client) -> list[str]:
        """The other connections, and the ticket servers that a test says are alive."""
        others = [f"a connection of {each.user}" for each in self.connected if not each.closed and each is not asking]
        return [*self.alive, *others]

    def lose_ring_record(self) -> None:
        """Somebody has deleted its row."""
        self.state.ring = None
        self.restart()

    def snapshot(self) -> FakeState:
        """A copy of the data directory."""
        return copy.deepcopy(self.state)

    def restore(self, snapshot: FakeState) -> None:
        """The data directory put back; tables have the CREATE_TIME that they had."""
        self.state = copy.deepcopy(snapshot)
        self.life += 1
        self.restart()

    def replace_by_empty(self) -> None:
        """Another server in its place, with nothing on it."""
        self.identity = f"server-{next(self._numbers)}"
        self.state = FakeState()
        self.life += 1
        self.restart()

    def truncate(self, sequence: str) -> None:
        """The counter begins again, under open connections, and CREATE_TIME stays."""
        table = self.table(sequence)
        table.counter, table.largest = 1, 0
        self.life += 1

    def drop(self, sequence: str) -> None:
        self.state.tables.pop(sequence, None)
        self.life += 1

    def remake(self, sequence: str) -> None:
        """Dropped and made again by somebody else, at 1."""
        width = self.table(sequence).width
        self.drop(sequence)
        self.make(sequence, width, 1)

    def use_up(self, sequence: str, left: int) -> None:
        """Leave only `left` numbers up to the column's end, for all databases together."""
        table = self.table(sequence)
        table.advance(table.column_end - left)

    @property
    def well(self) -> bool:
        """Whether nothing is wrong with it."""
        return not (
            self.down
            or self.read_only
            or self.ledger_fails
            or self.misconfigured
            or self.draws_as
            or self.deadlocks
            or self.loses_replies
            or self._hangs
            or self._locked
        )

    def heal(self) -> None:
        """Put right whatever is wrong with it; what it has lost stays lost."""
        self.down = self.read_only = self.ledger_fails = False
        self.misconfigured = self.draws_as = None
        self.deadlocks = self.loses_replies = 0
        self.thaw()
        self.unlock()
