"""What a check-up finds in a ticket database, whatever its engine: facts, not judged yet.

An inspection draws nothing and changes nothing. `app.doctor.report` makes its findings from it.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from app.databases.protocol import Mark, Position, RingRecord, ServerEntry, Table
from app.kinds.definition import Definition

SERVERS_SECONDS = 15.0
"""How far back an inspection looks for ticket servers. They probe every few seconds."""


@dataclass(frozen=True, slots=True)
class InspectedTable:
    """A sequence's table. `column`: the type of its id, in the engine's words. `engine`: what stores it. `fix_engine`,
    `fix_keys`: the statements that make it crash-safe, and free of deadlocks; None where it is. `widen`: the statement
    that gives it the largest id column, empty where it has that, or is to end before."""

    table: Table
    column: str
    engine: str
    fix_engine: str | None = None
    fix_keys: str | None = None
    widen: str = ""


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
    `set_increment` the ones found. `trouble`: why it could not be looked at (then nothing after `advice` is known), and
    `advice`: what to do about it. `note`: a word for the operator about a database with which nothing is wrong.
    `product`: engine and version. `identity`: which server or file it is. `connect_seconds`: what a new connection
    took, in seconds. `made_for`: it keeps the offset and increment that it was made for, and no server could be told
    others. `flaws`: what is wrong with its settings, its user's account and the server's own tables. `remarks`: what
    of these is only worth knowing. `table_flaws`: what else is wrong with each sequence's table. `tls`: whether the
    connection uses it. `unverified`: what of the connection nobody has verified and what to set, in words; empty where
    all is.
    `clock_ahead`: seconds that its clock is ahead of this machine's, below 0 where it is behind; exact to
    `clock_doubt` seconds. `sources`: each server that it replicates from, with the statements that end that.
    `not_looked_at`: what its user may not look at. `read_only`: why it cannot be written to. `denied`: for each missing
    privilege the tables that require it. `layout`, `known_layout`: the version of the server's own tables found there,
    and the newest that this program knows. `tables`, `positions`, `unread`: for each sequence its table, where that
    stands, or why it could not be read; tables of inner sequences are among them. `record`: the ring that it records,
    None where it records none. `marks`: what it keeps for the other databases. `definitions`: what it records of
    sequences of other kinds than `ticket`. `servers`: which ticket servers have probed it in the last SERVERS_SECONDS.
    `folds_names`: it takes table names that differ by case alone for one. `numbered_by_group`: the
    setting that leaves increment and offset to its cluster, and what to set, in words; None where there is none.
    `own_unread`: for each of the server's own tables that could not be read, why.
    """

    name: str
    offset: int
    increment: int
    trouble: str | None = None
    advice: str = ""
    note: str = ""
    product: str = ""
    identity: str = ""
    connect_seconds: float = 0.0
    set_offset: int = 0
    set_increment: int = 0
    made_for: bool = False
    flaws: list[Flaw] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    table_flaws: dict[str, list[Flaw]] = field(default_factory=dict)
    tls: bool = False
    unverified: str = ""
    clock_ahead: float = 0.0
    clock_doubt: float = 0.0
    sources: dict[str, str] = field(default_factory=dict)
    not_looked_at: list[NotLookedAt] = field(default_factory=list)
    read_only: str | None = None
    denied: dict[str, list[str]] = field(default_factory=dict)
    layout: int = 0
    known_layout: int = 0
    tables: dict[str, InspectedTable] = field(default_factory=dict)
    record: RingRecord | None = None
    marks: tuple[Mark, ...] = ()
    positions: dict[str, Position] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, Definition] = field(default_factory=dict)
    servers: tuple[ServerEntry, ...] = ()
    own_unread: dict[str, str] = field(default_factory=dict)
    folds_names: bool = False
    numbered_by_group: tuple[str, str] | None = None

    @property
    def seen(self) -> bool:
        """Whether its tables could be looked at."""
        return self.trouble is None and not self.note


class Inspector(Protocol):
    """Inspects one ticket database. No method raises a TicketDatabaseError: what went wrong is in the inspection."""

    inspection: Inspection

    async def inspect(self) -> None:
        """Everything but the positions."""

    async def read_positions(self) -> None:
        """Where each table stands: after the marks of every database have been read, so that a draw in between only
        takes it further away from them."""

    async def close(self) -> None:
        """End the connection in good order."""
