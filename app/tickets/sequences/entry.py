"""One sequence, as this server knows it: what its ids are made of, its tables, its lanes, what it has handed out."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.common.sequences import Width, ceiling_of
from app.databases.protocol import Table
from app.kinds.kind import Kind
from app.kinds.table import KINDS
from app.tickets.lanes.lane import Lane
from app.tickets.requests.supply import Supply
from app.tickets.reserve.reserve import Reserve
from app.tickets.ring.ring import Member, Rotation

TICKET = KINDS["ticket"]


@dataclass(slots=True, eq=False)
class Entry:
    """One sequence: its place in the ring, and its table on each database that has it.

    A sequence whose ids are made in memory has no lanes and no table.

    Attributes:
        table: the name of its table on every database.
        tables: its table on each database that has it.
        start: the first id of its tables if this server made any, else None.
        least: the first id that its definition gives to its tables.
        kind, parameters: what its ids are made of.
        supply: takes each request, or passes it on to the lanes.
    """

    name: str
    rotation: Rotation[Lane]
    table: str
    tables: dict[Member, Table] = field(default_factory=dict)
    start: int | None = None
    least: int = 1
    kind: Kind = TICKET
    parameters: Mapping[str, int] = field(default_factory=dict)
    supply: Supply = field(default_factory=Supply)

    def lane_on(self, member: Member) -> Lane:
        """Its lane on this database."""
        return next(lane for lane in self.rotation.lanes if lane.member is member)

    @property
    def reserve(self) -> Reserve | None:
        """Its reserve; None if it has none."""
        return self.supply if isinstance(self.supply, Reserve) else None

    @property
    def width(self) -> Width:
        """The width of its column; the narrowest if databases differ."""
        return min((table.width for table in self.tables.values()), default=Width.BIGINT)

    @property
    def ceiling(self) -> int:
        """The largest possible ticket; the lowest ceiling if databases differ."""
        return min((table.ceiling for table in self.tables.values()), default=ceiling_of(Width.BIGINT, unsigned=True))

    @property
    def issued(self) -> int:
        """How many ids of it this server has handed out."""
        return self.supply.issued + sum(lane.issued for lane in self.rotation.lanes)

    @property
    def differs(self) -> bool:
        """Whether the databases' columns differ."""
        return len({(table.width, table.ceiling) for table in self.tables.values()}) > 1
