"""The facts that an inspection finds in a ticket database of any engine. The doctor judges them.

An inspection draws nothing and changes nothing. The database itself reads marks, ring record, definitions, servers,
tables and positions, as it does for the ticket server; its engine adds what can be wrong with that engine alone.
`app.doctor.report` makes its findings from it.
"""

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from app.common.errors import SequenceUnavailable, TicketDatabaseError
from app.databases.protocol import Mark, Position, RingRecord, ServerEntry, Table, TicketDatabase
from app.kinds.definition import Definition
from app.kinds.ticket import Ticket

SERVERS_SECONDS = 15.0
"""How far back an inspection looks for ticket servers. They probe every few seconds."""
LOOK_SECONDS = 30.0
"""How long a look at one database may take. A doctor has more patience than a request."""


class Flaw(NamedTuple):
    """`wrong`: what of a database would break a guarantee or slow the server down, in words without their subject.
    `fix`: how to fix it."""

    wrong: str
    fix: str


@dataclass(frozen=True, slots=True)
class NotLookedAt:
    """What the account may not look at: a question that is left open, and the privilege that would answer it."""

    question: str
    privilege: str


@dataclass(slots=True)
class Inspection:
    """One ticket database as it was found.

    `name`: its host and port, or its file. `offset` and `increment` are the ones expected, `set_offset` and
    `set_increment` the ones found, None where the database itself does not choose them (a flaw says who does).
    `setting_names`: what the engine calls increment and offset. `trouble`: why it could not be looked at (then nothing
    after `advice` is known), and `advice`: what to do about it. `note`: a word for the operator about a database with
    which nothing is wrong. `product`: engine and version. `identity`: which server or file it is. `connect_seconds`:
    what a new connection took, in seconds. `made_for`: for a file, which keeps the offset and increment that it was
    made for, how to mend a wrong offset; empty for a server. `flaws`: what is wrong with its settings, its user's
    account and the server's own tables. `remarks`: what of these is only worth knowing. `table_flaws`: what is wrong
    with each sequence's table. `tls`: whether the connection uses it. `unverified`: what of the connection nobody has
    verified and what to set, in words; empty where all is.
    `clock_ahead`: seconds that its clock is ahead of this machine's, below 0 where it is behind; exact to
    `clock_doubt` seconds. `not_looked_at`: what its user may not look at. `hidden`: the tables that its user may not
    read. `layout`, `known_layout`: the version of the server's own tables found there, and the newest that this program
    knows. `tables`, `positions`, `unread`: for each sequence its table, where that stands, or why it could not be read
    (`fix_unread`: what to do then); tables of inner sequences are among them. `columns`: the type of each table's id,
    in the engine's words. `widen`: the statement that gives a table the largest id column, left out where it is to end
    before. `record`: the ring that it records, None where it records none. `marks`: what it keeps for the other
    databases. `definitions`: what it records of sequences of other kinds than `ticket`. `servers`: which ticket servers
    have probed it in the last SERVERS_SECONDS. `folded_by`: the setting by which it takes table names that differ by
    case alone for one; empty where it does not. `own_unread`: for each of the server's own tables that could not be
    read, why.
    """

    name: str
    offset: int
    increment: int
    setting_names: tuple[str, str] = ("increment", "offset")
    trouble: str | None = None
    advice: str = ""
    note: str = ""
    product: str = ""
    identity: str = ""
    connect_seconds: float = 0.0
    set_offset: int | None = None
    set_increment: int | None = None
    made_for: str = ""
    flaws: list[Flaw] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    table_flaws: dict[str, list[Flaw]] = field(default_factory=dict)
    tls: bool = False
    unverified: str = ""
    clock_ahead: float = 0.0
    clock_doubt: float = 0.0
    not_looked_at: list[NotLookedAt] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)
    layout: int = 0
    known_layout: int = 0
    tables: dict[str, Table] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    widen: dict[str, str] = field(default_factory=dict)
    record: RingRecord | None = None
    marks: tuple[Mark, ...] = ()
    positions: dict[str, Position] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    fix_unread: str = ""
    definitions: dict[str, Definition] = field(default_factory=dict)
    servers: tuple[ServerEntry, ...] = ()
    folded_by: str = ""

    @property
    def seen(self) -> bool:
        """Whether its tables could be looked at."""
        return self.trouble is None and not self.note


class Inspector(ABC):
    """Inspects one ticket database. `inspect` and `read_positions` raise no TicketDatabaseError: what went wrong is in
    the inspection.

    An engine subclasses it. `database`: one that is only read from, on whatever server answers, however that is set.
    """

    def __init__(self, inspection: Inspection, database: TicketDatabase) -> None:
        self.inspection = inspection
        self.database = database

    @abstractmethod
    async def begin(self) -> bool:
        """See which server or file it is; whether what it holds can be read. Raises TicketDatabaseError."""

    async def look(self) -> None:
        """Look at what can be wrong with this engine alone, once what it holds was read. Raises TicketDatabaseError."""
        return

    @abstractmethod
    def explain(self, error: TicketDatabaseError) -> tuple[str, str]:
        """The reason why the doctor could not examine the database, and how to fix it."""

    async def inspect(self) -> None:
        """Everything but the positions."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                if await self.begin():
                    await self._read()
                    await self.look()
        except TimeoutError:
            self._trouble(TicketDatabaseError("did not answer in time"))
        except TicketDatabaseError as error:
            self._trouble(error)

    def _trouble(self, error: TicketDatabaseError) -> None:
        self.inspection.trouble, self.inspection.advice = self.explain(error)

    async def _read(self) -> None:
        """Read what the database holds. Where a table of the server's own is missing, or may not be read, the engine
        says so."""
        found, database = self.inspection, self.database
        with suppress(SequenceUnavailable):
            found.record = await database.recorded_ring()
        with suppress(SequenceUnavailable):
            found.marks = tuple(await database.marks_of_all_rings())
        with suppress(SequenceUnavailable):
            kept = (await database.definitions()).values()
            found.definitions = {each.sequence: each for each in kept if each.decided and each.kind != Ticket.name}
        with suppress(SequenceUnavailable):
            found.servers = tuple(await database.servers(SERVERS_SECONDS))
        found.tables = await database.tables(await database.names())

    async def read_positions(self) -> None:
        """Where each table stands: after the marks of every database have been read, so that a draw in between only
        takes it further away from them."""
        found = self.inspection
        for name in found.tables if found.seen else ():
            if name in found.hidden:
                continue
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    found.positions[name] = await self.database.position(name)
            except TimeoutError:
                found.unread[name] = "did not answer in time"
            except TicketDatabaseError as error:
                found.unread[name] = str(error)
                try:
                    with suppress(SequenceUnavailable):
                        await self.database.recorded_ring()
                except TicketDatabaseError as gone:  # it is not this table's trouble
                    self._trouble(gone)
                    return

    async def close(self) -> None:
        """End the connection in good order."""
        await self.database.close()
