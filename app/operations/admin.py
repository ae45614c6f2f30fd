"""The operators' view: the health report and the sequences, which they list, create and bump."""

import asyncio
import datetime
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from app.common.errors import (
    Draining,
    NoTicketDatabase,
    TicketDatabaseError,
    Unavailable,
    Unverified,
)
from app.common.log import event
from app.common.sequences import Width
from app.common.slices import SLICE, in_slices
from app.common.version import VERSION
from app.databases.protocol import OLDER
from app.kinds.notation import LATEST_MS, time_text
from app.kinds.table import kind_named
from app.operations.decoding import Decoding
from app.operations.metrics import Exposition, Metrics
from app.operations.sequence_warnings import SequenceWarnings
from app.operations.state_metrics import StateMetrics
from app.tickets.domain import Domain
from app.tickets.lanes.lane import Lane
from app.tickets.lanes.state import LaneState
from app.tickets.ring.ring import Member
from app.tickets.sequences.bumps import FORCE_SHARE
from app.tickets.sequences.entry import TICKET, Entry
from app.tickets.sources.kind_sources import RefusingSource

log = logging.getLogger(__name__)

ENDS_SOON_MS = 90 * 86_400_000
"""A kind whose ids end so soon has a warning."""

REFRESH_SECONDS = 1.0
"""The least time between two checks of all sequences, however often /healthz is requested."""


class Admin:
    """The operators' view of the server."""

    def __init__(self, domain: Domain, metrics: Metrics, *, embedded: bool) -> None:
        self._ring = ring = domain.ring
        self._catalog = catalog = domain.catalog
        self._ledger = domain.ledger
        self._sources = sources = domain.sources
        self._clock = clock = domain.clock
        self._reserves = domain.reserves
        self._bumps = domain.bumps
        self._embedded = {"embedded": True} if embedded else {}
        self.decoding = Decoding(ring, catalog, clock)
        state = StateMetrics(
            ring, catalog, sources=sources, clock=clock, ready=lambda: self.ready, unprotected=self._unprotected
        )
        self._exposition = Exposition(metrics, state.families)
        self._refreshed: list[dict[str, Any]] = []
        self._refreshed_at = -REFRESH_SECONDS
        self._refreshing = asyncio.Lock()
        self.draining = False
        self.client_warnings: Callable[[], Iterable[str]] = tuple
        """Why clients are refused that have done nothing wrong; whoever accepts their connections sets it."""

    # --- health ----------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether a load balancer should send requests here."""
        if self.draining:
            return False
        if any(self._ledger.may_draw(member) for member in self._ring.members if member.up):
            return True
        return self._sources.any_gives or self._reserves.any_gives

    @property
    def why_not_ready(self) -> Unavailable:
        """The answer to a load balancer while the server is not `ready`."""
        if self.draining:
            return Draining("this server is draining")
        error = Unverified if self._ring.any_up else NoTicketDatabase
        return error("no ticket database can draw")

    def health(self) -> dict[str, Any]:
        """The report of /healthz, from what the background tasks know. With many sequences, the warnings about them
        are those of the last `refresh_warnings`."""
        entries = self._catalog.entries
        about_sequences = self._refreshed if len(entries) > SLICE else self._check(entries.values()).listed()
        warnings = [*self._warnings(), *about_sequences]
        all_up = all(member.up for member in self._ring.members)
        status = "fail" if not self.ready else "pass" if all_up and not warnings else "warn"
        return {
            "status": status,
            "version": VERSION,
            "databases": [_database(member) for member in self._ring.members],
            "warnings": warnings,
            "notes": [] if self._ring.note is None else [{"database": None, "reason": self._ring.note}],
            **self._embedded,
        }

    def _warnings(self) -> Iterable[dict[str, Any]]:
        for member in self._ring.members:
            for reason in self._unprotected(member):
                yield _warning(None, member, f"unprotected: {reason}")
            if member.marks_error is not None:
                yield _warning(None, member, f"cannot keep high-water marks: {member.marks_error}")
            for reason in member.probe_result.warnings if member.probe_result is not None else ():
                yield _warning(None, member, reason)
            for release in member.probe_result.older if member.probe_result is not None else ():
                yield _warning(None, member, _older(release))
        for member, reason in self._reserves.warnings:
            yield _warning(None, member, reason)
        for reason in (*self._sources.warnings(), *self.client_warnings()):
            yield {"sequence": None, "database": None, "reason": reason}
        for sequence, member, reason in self._catalog.overruled():
            yield _warning(sequence, member, reason)
        for sequence, member, count in self._reserves.unprotected():
            reason = f"unprotected: of its tickets in reserve, {count:,} were drawn while nobody kept marks"
            yield _warning(sequence, member, reason)

    def _unprotected(self, member: Member) -> Iterable[str]:
        yield from self._ledger.unprotected(member)
        yield from self._sources.unprotected(member)

    async def refresh_warnings(self) -> None:
        """Check all sequences for `health`. Many sequences are checked a slice at a time, and not again within
        REFRESH_SECONDS."""
        now = asyncio.get_running_loop().time
        async with self._refreshing:
            if len(self._catalog.entries) > SLICE and now() >= self._refreshed_at + REFRESH_SECONDS:
                found = SequenceWarnings()
                async for part in in_slices(self._catalog.entries.values()):
                    self._check(part, found)
                self._refreshed, self._refreshed_at = found.listed(), now()

    def _check(self, entries: Iterable[Entry], found: SequenceWarnings | None = None) -> SequenceWarnings:
        found = SequenceWarnings() if found is None else found
        for entry in entries:
            for lane in entry.rotation.lanes:
                found.add(self._lane_warnings(entry, lane))
            if entry.kind is not TICKET:
                found.add(_kind_warnings(entry, self._clock.wall_ms()))
            found.add_permanent(_table_warnings(entry))
        return found

    def _lane_warnings(self, entry: Entry, lane: Lane) -> Iterable[dict[str, Any]]:
        if lane.is_suspended:
            yield _warning(entry.name, lane.member, f"suspended: {lane.reason}")
        elif lane.state is LaneState.EXHAUSTED:
            yield _warning(entry.name, lane.member, "exhausted: every id has been used")
        else:
            last = self._catalog.counters.last(entry, lane)
            if last > FORCE_SHARE * entry.ceiling:
                yield _warning(entry.name, lane.member, f"{last / entry.ceiling:.0%} of its ids are used up")

    @property
    def other_servers(self) -> dict[str, list[str]]:
        """The other ticket servers, by host name and port, with the databases that they reach. A server announces
        itself on each database that it reaches. Only databases that are up tell."""
        found: dict[str, list[str]] = {}
        for member in self._ring.members:
            result = member.probe_result
            for server in sorted({use.server for use in result.uses}) if member.up and result is not None else ():
                found.setdefault(server, []).append(member.name)
        return dict(sorted(found.items()))

    @property
    def older_servers(self) -> list[str]:
        """The releases of ticket servers that do not announce their host name and port."""
        results = [member.probe_result for member in self._ring.members if member.up]
        return sorted({_release(release) for result in results if result is not None for release in result.older})

    # --- sequences -------------------------------------------------------------------------------------------------

    def progress(self) -> Iterable[tuple[str, int, tuple[int, ...]]]:
        """Of every sequence: its name, the tickets this server has issued, and how many ids each database has used up
        (0 if unknown)."""
        for entry in list(self._catalog.entries.values()):  # a copy: the reader yields to the event loop meanwhile
            lanes = entry.rotation.lanes
            used = tuple(self._catalog.counters.last(entry, lane) // lane.residue.increment for lane in lanes)
            yield entry.name, entry.issued, used

    @property
    def count(self) -> int:
        """How many sequences there are."""
        return len(self._catalog.entries)

    @property
    def issued(self) -> int:
        """How many tickets this server has issued, of all present sequences."""
        return sum(entry.issued for entry in self._catalog.entries.values())

    @property
    def worker(self) -> dict[str, Any] | None:
        """The worker number in snowflake ids, None where this server has none, and for how many seconds it holds yet;
        None where no sequence needs one."""
        seconds, lease = self._sources.worker_seconds, self._sources.worker
        return None if seconds is None else {"number": None if lease is None else lease.number, "seconds": seconds}

    @property
    def instance_number(self) -> int | None:
        """The number in flake and objectid ids of this life of the server; None before it is drawn."""
        return self._sources.instance_number

    def names(self, search: str = "") -> list[str]:
        """The sorted names that contain `search`, ignoring case."""
        part = search.lower()
        return sorted(name for name in self._catalog.entries if part in name.lower())

    def described(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """These sequences, from what the background tasks know; without those that are gone."""
        entries = self._catalog.entries
        return [self._describe(entries[name]) for name in names if name in entries]

    async def sequence(self, name: str) -> dict[str, Any]:
        """One sequence, with its present positions. Raises UnknownSequence."""
        entry = await self._catalog.find(name)
        for member, table in list(entry.tables.items()):
            if member.up:
                try:
                    position = await member.database.position(table.sequence)
                except TicketDatabaseError as error:
                    event(log, logging.DEBUG, "could not read a position", database=member.name, reason=error)
                else:
                    self._catalog.counters.note(entry, member, position.next_id)
        return self._describe(entry)

    def _describe(self, entry: Entry) -> dict[str, Any]:
        databases = []
        for lane in entry.rotation.lanes:
            guard = lane.guard
            table = entry.tables.get(lane.member)
            if table is not None:
                guard.set_ceiling(table.ceiling, table.last)
            last = self._catalog.counters.last(entry, lane)
            step = lane.residue.increment
            last -= (last - lane.residue.offset) % step
            known = last if last > 0 and table is not None and entry.supply.gives_plain_tickets else None
            first_free = guard.next_after(max(last, 0))
            headroom = None if table is None else max(0, (guard.last_allowed - first_free) // step + 1)
            if lane.state is LaneState.EXHAUSTED:
                headroom = 0
            databases.append(
                {
                    "name": lane.member.name,
                    "offset": lane.residue.offset,
                    "status": str(lane.member.status),
                    "last": known,
                    "last_str": None if known is None else str(known),
                    "headroom": headroom,
                    "headroom_str": None if headroom is None else str(headroom),
                }
            )
        ceiling = entry.ceiling if entry.kind is TICKET else entry.kind.ceiling(entry.parameters)
        odds = entry.kind.odds(entry.parameters)
        ends_at = entry.kind.ends_at(entry.parameters)
        if ends_at is not None and ends_at > LATEST_MS:
            ends_at = None  # no calendar says it
        lanes = entry.rotation.lanes
        return {
            "sequence": entry.name,
            "bits": int(entry.width) if entry.kind is TICKET else entry.kind.bits,
            "ceiling": ceiling,
            "ceiling_str": None if ceiling is None else str(ceiling),
            "exhausted": bool(lanes) and all(lane.state is LaneState.EXHAUSTED for lane in lanes),
            "databases": databases,
            "kind": entry.kind.name,
            "unique": entry.kind.unique,
            **({} if odds is None else {"odds": odds}),
            **({} if ends_at is None else {"ends": time_text(ends_at)}),
            **entry.parameters,
            **_reserved(entry),
        }

    async def make(self, name: str, kind_name: str | None, given: Mapping[str, int]) -> tuple[bool, dict[str, Any]]:
        """Create the sequence. `given`: the parameters that were named; without a kind they are of that which the
        sequence has, or of `ticket`. Returns whether it was created, and its description.

        Raises as Maker.make does.
        """
        named = None if kind_name is None else kind_named(kind_name)
        known = await self._catalog.known(name)
        name = self._catalog.given(name)
        kind = named or (TICKET if known is None else known.kind)
        if kind is TICKET:
            kind.complete({name: value for name, value in given.items() if name != "start"}, 0)
            width = Width(given["bits"]) if "bits" in given else None
            _, made = await self._catalog.maker.make(name, width, given.get("start"), named)
        else:
            now_ms = self._clock.now_ms() if "epoch" in kind.parameters else 0  # a wrong clock would be its beginning
            _, made = await self._catalog.maker.make_of_kind(name, kind, given, now_ms)
        return made, await self.sequence(name)

    async def bump(self, name: str, above: int, *, force: bool) -> dict[str, Any]:
        """Bump the sequence above a number, and describe it. Raises as Bumps.bump does."""
        name = (await self._bumps.bump(name, above, force=force)).name
        found = await self.sequence(name)
        return {"sequence": name, "above": above, "above_str": str(above), "databases": found["databases"]}

    # --- metrics ---------------------------------------------------------------------------------------------------

    async def metrics_text(self) -> bytes:
        """Prometheus' text."""
        return await self._exposition.text()


def _reserved(entry: Entry) -> dict[str, Any]:
    """How many tickets lie in reserve, and for how many seconds they last; nothing where none are drawn ahead."""
    if entry.reserve is None:
        return {}
    lasts = entry.reserve.lasts
    return {"reserve": entry.reserve.left, "reserve_seconds": None if lasts is None else round(lasts, 3)}


def _release(release: str) -> str:
    return "an earlier release" if release == OLDER else f"release {release}"


def _older(release: str) -> str:
    """The warning about what a server of an earlier release leaves unprotected."""
    return (
        f"a ticket server of {_release(release)} uses it, and does not announce which data: upgrade that server before "
        "a ticket database is replaced"
    )


def _kind_warnings(entry: Entry, now_ms: int) -> Iterable[dict[str, Any]]:
    if isinstance(entry.supply, RefusingSource):
        yield {"sequence": entry.name, "database": None, "reason": entry.supply.reason}
    ends_at = entry.kind.ends_at(entry.parameters)
    if ends_at is not None and ends_at - now_ms < ENDS_SOON_MS:
        yield {"sequence": entry.name, "database": None, "reason": f"its ids end at {time_text(ends_at)}"}


def _table_warnings(entry: Entry) -> Iterable[dict[str, Any]]:
    if entry.differs:
        yield {"sequence": entry.name, "database": None, "reason": "its columns differ between the databases"}
    for member, table in entry.tables.items():
        for reason in table.warnings:
            yield _warning(entry.name, member, reason)


def _database(member: Member) -> dict[str, Any]:
    since = datetime.datetime.fromtimestamp(member.since, datetime.UTC).isoformat(timespec="seconds")
    return {
        "name": member.name,
        "offset": member.database.offset,
        "status": str(member.status),
        "since": since.replace("+00:00", "Z"),
        "latency_ms": round(member.probe_result.latency * 1000, 3) if member.probe_result is not None else None,
        "last_error": member.last_error,
    }


def _warning(sequence: str | None, member: Member, reason: str) -> dict[str, Any]:
    return {"sequence": sequence, "database": member.name, "reason": reason}
