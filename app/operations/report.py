"""The report: the state of a running server, as /healthz, /readyz, GET /sequence and the status page say it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from app.kinds.notation import LATEST_MS, time_text
from app.kinds.table import KINDS
from app.service import Service
from app.tickets.catalog import Entry
from app.tickets.definitions import TICKET
from app.tickets.heartbeats import UNREADABLE
from app.tickets.lane import Lane
from app.tickets.sight import Member, Status
from app.version import VERSION

LISTED = 100
"""The most warnings about sequences that are listed; one more says how many others there are."""
NEAR_END = 0.9
"""A sequence warns when this part of its ids is used up."""
ENDS_SOON_MS = 90 * 86_400_000
REFRESH = 5.0
"""Seconds for which the warnings about sequences stand, since there may be thousands."""

Warned = dict[str, Any]


class Report:
    """Tells how a server is. service: is asked, and never changed. is_draining: about to end; the server sets it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.is_draining = False
        self._about_sequences: list[Warned] = []
        self._until = float("-inf")

    def health(self) -> dict[str, Any]:
        """Return what /healthz says."""
        members, warnings, is_ready = self.service.sight.members, self.warnings(), self.is_ready()
        is_well = not warnings and all(member.life is not None for member in members)
        return {
            "status": "fail" if not is_ready else "pass" if is_well else "warn",
            "version": VERSION,
            "databases": [self._database(member) for member in members],
            "warnings": warnings,
            "notes": [],
            **({"embedded": True} if self.service.settings.is_embedded else {}),
        }

    def _database(self, member: Member) -> dict[str, Any]:
        since = self.service.clock.wall_ms() / 1000 - (self.service.sight.clock() - member.since)
        node = {} if member.node is None else {"node": member.node if member.life is not None else None}
        return {
            "name": member.name,
            **node,
            "offset": member.offset,
            "status": str(member.status),
            "since": datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "latency_ms": None if member.latency is None else round(member.latency * 1000, 3),
            "last_error": member.reason or None,
        }

    def servers(self) -> list[dict[str, Any]]:
        """Return the other live ticket servers: their `name`, and the `databases` that they have in sight, by name.

        `databases` is None where a server's heartbeat cannot be read.
        """
        names = {member.offset: member.name for member in self.service.sight.members}
        found = []
        for server in self.service.probe.servers():
            offsets = None if server.said is UNREADABLE else sorted(server.said.lives)
            databases = None if offsets is None else [names.get(offset, f"offset {offset}") for offset in offsets]
            found.append({"name": server.name, "databases": databases})
        return found

    async def sequence(self, name: str) -> dict[str, Any]:
        """Return what GET /sequence/{name} says, with the present positions. Raises TicketError."""
        return self._described(await self.service.catalog.find(name, fresh=True))

    async def page(self, search: str, after: str, count: int) -> tuple[list[dict[str, Any]], int]:
        """Return a page of the sequences, as the background tasks know them, and how many match in all.

        The arguments are those of `Listing.page`. Raises TicketError.
        """
        entries, total = await self.service.listing.page(search, after, count)
        return [self._described(entry) for entry in entries], total

    def _described(self, entry: Entry) -> dict[str, Any]:
        kind, is_ticket = KINDS[entry.definition.kind], entry.definition.kind == TICKET
        parameters = {} if is_ticket else dict(entry.definition.parameters)
        ceiling = entry.ceiling if is_ticket else kind.ceiling(parameters)
        members = self.service.sight.members if entry.is_counted else []
        databases = [self._counter(entry, member, is_ticket=is_ticket) for member in members]
        odds = kind.odds(parameters)
        return {
            "sequence": entry.name,
            "kind": kind.name,
            "unique": kind.unique,
            **({} if odds is None else {"odds": odds}),
            **parameters,
            "bits": entry.bits if is_ticket else kind.bits,
            "ceiling": ceiling,
            "ceiling_str": None if ceiling is None else str(ceiling),
            "exhausted": bool(databases) and all(database["headroom"] == 0 for database in databases),
            "databases": databases,
        }

    def _counter(self, entry: Entry, member: Member, *, is_ticket: bool) -> dict[str, Any]:
        """Return what one database has of a sequence: the last of its ids, and how many it can still draw."""
        step, counter, last = self.step, entry.counters.get(member), self.last(entry, member)
        last -= (last - member.offset) % step
        known = last if last > 0 and counter is not None and is_ticket else None
        start = max(last, member.offset - step)
        headroom = None if counter is None or not is_ticket else max(0, (counter.ceiling - start) // step)
        return {
            "name": member.name,
            "offset": member.offset,
            "status": str(member.status),
            "last": known,
            "last_str": None if known is None else str(known),
            "headroom": headroom,
            "headroom_str": None if headroom is None else str(headroom),
        }

    @property
    def step(self) -> int:
        """The ring's increment; the number of databases while the ring is not known."""
        record = self.service.sight.record
        return record.increment if record is not None else len(self.service.sight.members)

    def is_ready(self) -> bool:
        """Whether the server can hand out ids of any sequence, and is not draining."""
        sight, desk, refuses = self.service.sight, self.service.desk, self.service.refuses
        may_draw = sight.stamp is not None and any(
            member.life is not None and not (refuses and self.unprotected(member)) for member in sight.members
        )
        has_stock = any(lane.in_stock for lane in desk.lanes)
        return not self.is_draining and (may_draw or has_stock or self.service.memory.gives)

    def unprotected(self, member: Member) -> str | None:
        """Return why what this database draws now could come twice if it came back older; None where it could not."""
        sight = self.service.sight
        if member.status is not Status.UP or self.service.settings.is_embedded:
            return None
        if len(sight.members) == 1:
            return "unprotected: it is the only ticket database, so none keeps its high-water marks"
        if sight.alone(member):
            return "unprotected: no other ticket database can keep its high-water marks now"
        if not sight.whole and any(lane.member is member and lane.is_unprotected for lane in self.service.desk.lanes):
            return "unprotected: sequences were opened there while a database of the ring was away, which still is"
        return None

    def lanes(self, entry: Entry) -> dict[Member, Lane]:
        """Return the lanes of a sequence, if somebody asked for it."""
        source = self.service.desk.source(entry.key)
        return {lane.member: lane for lane in source.lanes} if source is not None else {}

    def last(self, entry: Entry, member: Member) -> int:
        """Return the largest number that this database's counter of a sequence is known to have passed; 0 for none."""
        counter, lane = entry.counters.get(member), self.lanes(entry).get(member)
        return max(counter.position if counter is not None else 0, lane.highest if lane is not None else 0)

    def warnings(self) -> list[Warned]:
        """Return what to warn of, databases first."""
        now = self.service.sight.clock()
        if now >= self._until:
            self._until = now + REFRESH
            found = self._warned_sequences()
            self._about_sequences = list(islice(found, LISTED))
            if more := sum(1 for _ in found):
                self._about_sequences.append(_warned(f"{more:,} more warnings about sequences are not listed"))
        return [*self._warned_databases(), *self._about_sequences]

    def _warned_databases(self) -> Iterator[Warned]:
        service, record, members = self.service, self.service.sight.record, self.service.sight.members
        for member in members:
            if (reason := self.unprotected(member)) is not None:
                yield _warned(reason, member.name)
            yield from (_warned(reason, member.name) for reason in member.warnings)
        yield from (_warned(reason, name) for name, reason in service.levels.warnings)
        if record is not None and not record.drawn:
            yield _warned("the ring is being changed, and nobody draws meanwhile")
        if service.worker.is_unprotected:
            yield _warned("unprotected: the worker number of snowflake ids was leased while a database was away")
        for offset in record.offsets if record is not None else ():
            if offset > len(members):
                yield _warned(f"the ring has a database at offset {offset}, which TICKETS_DATABASES does not list")
        yield from map(_warned, service.memory.warnings())

    def _warned_sequences(self) -> Iterator[Warned]:
        for entry in self.service.catalog.entries.values():
            ends_at = KINDS[entry.definition.kind].ends_at(entry.definition.parameters)
            if ends_at is not None and min(ends_at, LATEST_MS) - self.service.clock.wall_ms() < ENDS_SOON_MS:
                yield _warned(f"its ids end at {time_text(ends_at)}", sequence=entry.name)
            for member, counter in entry.counters.items() if entry.definition.kind == TICKET else ():
                if counter.position >= counter.ceiling:
                    yield _warned("exhausted: every id has been used", member.name, entry.name)
                elif (used := counter.position / counter.ceiling) > NEAR_END:
                    yield _warned(f"{used:.0%} of its ids are used up", member.name, entry.name)
        yield from (_warned(reason, database, name) for name, database, reason in self.service.listing.warnings)


def _warned(reason: str, database: str | None = None, sequence: str | None = None) -> Warned:
    return {"sequence": sequence, "database": database, "reason": reason}
