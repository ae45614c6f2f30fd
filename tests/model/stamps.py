"""Every id of another kind than `ticket`, and whether it may have been given.

What has to hold: no id twice, over all servers and all time, under clocks that jump, drift, stop or disagree; none
below an earlier one of the same life of a server, where it counts in memory; the time in it at most so far ahead of the
true time as the worst clock that may stamp, and not before it was asked for, by the server's own clock.

Ids that are counted in the databases are tickets, and `record` judges them as such. One that was stamped under a leased
number comes twice only where marks do: the database that the number belongs to has gone back, or has left the ring, and
one of the two servers warned `unprotected` of it when it stamped.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from app.kinds.definition import Definition
from app.kinds.kind import TimedKind
from app.kinds.table import KINDS
from tests.fakes.ticket_database import FakeServer

READING_MS = 260
"""As far may a database's clock have been misread: by half of what a reading may take."""
AHEAD_MS = 1_000
"""As far ahead of every database's clock may a server's be."""
LEASE_MS = 120_000


class Stamped(NamedTuple):
    """Ticks that one server has stamped, and what held then. `server`: the database that its number belongs to."""

    first: int
    last: int
    by: str
    server: FakeServer | None
    warned: bool


def timed(definition: Definition) -> TimedKind:
    kind = KINDS[definition.kind]
    assert isinstance(kind, TimedKind)
    return kind


def tick_of(definition: Definition, id_: object) -> tuple[int, int]:
    """The tick and the part of an id."""
    kind = timed(definition)
    said = kind.decode(definition.parameters, str(id_))
    tick = kind.tick_at(definition.parameters, said["time_ms"]) + said["counter"]
    return tick, part_of(said)


def part_of(said: dict[str, Any]) -> int:
    if "random" in said:
        return int(said["random"], 16)
    if "datacenter" in said:
        return int(said["datacenter"] << 5 | said["worker"])
    return int(said["worker"], 16) if "worker" in said else int(said["shard"])


class Stamps:
    """What was stamped under numbers of workers and instances. `left`: whether a database has left the ring."""

    def __init__(self, left: Callable[[FakeServer], bool]) -> None:
        self._left = left
        self._given: dict[tuple[str, int], list[Stamped]] = {}
        self.repeated: set[int] = set()
        """Instance numbers that may have come twice, as tickets may."""
        self.excepted = 0

    def take(
        self, definition: Definition, ids: Sequence[object], by: str, server: FakeServer | None, *, warned: bool
    ) -> int:
        """Hold ids that a server has just made against all before them. Returns the last tick."""
        ticks = [tick_of(definition, id_) for id_ in (ids[0], ids[-1])]
        (first, part), (last, last_part) = ticks
        name = definition.sequence
        assert part == last_part, f"{name}: {ids} are of two numbers"
        assert last - first == len(ids) - 1, f"{name}: {ids} do not follow each other"
        stamped = Stamped(first, last, by, server, warned)
        given = self._given.setdefault((name, part), [])
        for before in given:
            if before.first <= last and first <= before.last:
                assert self._may_come_again(part, before, stamped), (
                    f"{name}: {max(first, before.first)} under {part} of {by} had been stamped by {before.by}"
                )
                self.excepted += 1
        given.append(stamped)
        return last

    def _may_come_again(self, part: int, before: Stamped, now: Stamped) -> bool:
        if now.server is None:
            return part in self.repeated
        servers = {server for server in (before.server, now.server) if server is not None}
        return (before.warned or now.warned) and any(server.life or self._left(server) for server in servers)
