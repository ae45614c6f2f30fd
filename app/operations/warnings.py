"""The warnings of /healthz: what an operator has to know, and what to do about it."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from app.kinds.notation import LATEST_MS, time_text
from app.kinds.table import KINDS
from app.operations.state import State
from app.tickets.definitions import TICKET

LISTED = 100
"""The most warnings about sequences that are listed; one more says how many others there are."""
NEAR_END = 0.9
"""A sequence warns when this part of its ids is used up."""
ENDS_SOON_MS = 90 * 86_400_000
REFRESH = 5.0
"""Seconds for which the warnings about sequences stand, since there may be thousands."""

Warned = dict[str, Any]


def _warned(reason: str, database: str | None = None, sequence: str | None = None) -> Warned:
    return {"sequence": sequence, "database": database, "reason": reason}


class Warnings:
    """Finds what to warn of."""

    def __init__(self, state: State) -> None:
        self._state, self._service = state, state.service
        self._about_sequences: list[Warned] = []
        self._until = float("-inf")

    def listed(self) -> list[Warned]:
        """Return all warnings, those about databases first."""
        now = self._service.sight.clock()
        if now >= self._until:
            self._until = now + REFRESH
            found = self._sequences()
            self._about_sequences = list(islice(found, LISTED))
            if more := sum(1 for _ in found):
                self._about_sequences.append(_warned(f"{more:,} more warnings about sequences are not listed"))
        return [*self._databases(), *self._about_sequences]

    def _databases(self) -> Iterator[Warned]:
        service = self._service
        members, record = service.sight.members, service.sight.record
        for member in members:
            if (reason := self._state.unprotected(member)) is not None:
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

    def _sequences(self) -> Iterator[Warned]:
        """Those that need somebody soon come first."""
        for entry in self._service.catalog.entries.values():
            ends_at = KINDS[entry.definition.kind].ends_at(entry.definition.parameters)
            if ends_at is not None and min(ends_at, LATEST_MS) - self._service.clock.wall_ms() < ENDS_SOON_MS:
                yield _warned(f"its ids end at {time_text(ends_at)}", sequence=entry.name)
            for member, counter in entry.counters.items() if entry.definition.kind == TICKET else ():
                if counter.position >= counter.ceiling:
                    yield _warned("exhausted: every id has been used", member.name, entry.name)
                elif (used := counter.position / counter.ceiling) > NEAR_END:
                    yield _warned(f"{used:.0%} of its ids are used up", member.name, entry.name)
        yield from (_warned(reason, database, name) for name, database, reason in self._service.listing.warnings)
