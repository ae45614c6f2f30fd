"""The report: what /healthz, /readyz, GET /sequence and the status page say."""

from datetime import UTC, datetime
from typing import Any

from app.kinds.table import KINDS
from app.operations.metrics import Metrics
from app.operations.state import State
from app.operations.tally import Tally
from app.service import Service
from app.tickets.catalog import Entry
from app.tickets.definitions import TICKET
from app.tickets.sight import Member


class Report(State):
    """Tells how a server is. service, tally: are asked, and never changed. version: of this server."""

    def __init__(self, service: Service, *, tally: Tally, version: str) -> None:
        super().__init__(service)
        self._version = version
        self.metrics = Metrics(self, tally, version).text
        """Returns what /metrics says, in Prometheus' text format."""

    def health(self) -> dict[str, Any]:
        """Return what /healthz says."""
        members, warnings, is_ready = self.service.sight.members, self.warnings(), self.is_ready()
        is_well = not warnings and all(member.life is not None for member in members)
        return {
            "status": "fail" if not is_ready else "pass" if is_well else "warn",
            "version": self._version,
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
            offsets = None if server.said is None else sorted(server.said.lives)
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
