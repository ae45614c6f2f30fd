"""One sequence, as this server knows it: what its ids are made of, its tables, its lanes, what it has handed out."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.common.sequences import Width, ceiling_of
from app.databases.protocol import Table
from app.kinds.kind import Kind
from app.kinds.table import KINDS
from app.tickets.lanes.lane import Lane
from app.tickets.reserve.reserve import Reserve
from app.tickets.ring.ring import Member, Rotation
from app.tickets.sources.kind_sources import Source

TICKET = KINDS["ticket"]


@dataclass(slots=True, eq=False)
class Entry:
    """One sequence: its place in the ring, and its table on each database that has it.

    `table`: the name of its table. `start`: what its tables were made to begin at, where this server made any; None
    where it made none. `least`: what its definition says that they begin at, whoever made them. `kind` and
    `parameters`: what its ids are made of. `source`: where they come from, None for plain tickets. `reserve`: what was
    drawn ahead of them, None where nothing is. One whose ids are made in memory has no lanes and no table.
    """

    name: str
    rotation: Rotation[Lane]
    table: str
    tables: dict[Member, Table] = field(default_factory=dict)
    start: int | None = None
    least: int = 1
    kind: Kind = TICKET
    parameters: Mapping[str, int] = field(default_factory=dict)
    source: Source | None = None
    reserve: Reserve | None = None

    def lane_on(self, member: Member) -> Lane:
        """Its lane on this database."""
        return next(lane for lane in self.rotation.lanes if lane.member is member)

    @property
    def width(self) -> Width:
        """The width of its column; the narrowest, where databases differ."""
        return min((table.width for table in self.tables.values()), default=Width.BIGINT)

    @property
    def ceiling(self) -> int:
        """The largest ticket there can be; the lowest ceiling, where databases differ."""
        return min((table.ceiling for table in self.tables.values()), default=ceiling_of(Width.BIGINT, unsigned=True))

    @property
    def issued(self) -> int:
        """How many ids of it this server has handed out."""
        by_itself = 0 if self.source is None else self.source.issued
        kept = 0 if self.reserve is None else self.reserve.left + self.reserve.dropped
        return by_itself + sum(lane.issued for lane in self.rotation.lanes) - kept

    @property
    def differs(self) -> bool:
        """Whether the databases' columns differ."""
        return len({(table.width, table.ceiling) for table in self.tables.values()}) > 1
