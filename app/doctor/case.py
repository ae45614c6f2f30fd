"""The findings of all ticket databases, and the ring as their records describe it. No I/O."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from app.databases.examination import Examination
from app.databases.session import RingRow
from app.tickets.agreement import agree
from app.tickets.situation import Agreement, Entry, Situation, Standing


class Examined(NamedTuple):
    """One entry of the list of databases.

    found: None where it could not be examined; `failure` then says why, and `refused` whether an operator has to act.
    """

    offset: int
    name: str
    found: Examination | None
    failure: str = ""
    refused: bool = False

    def entry(self) -> Entry:
        """Return what the decision about the ring needs. A database that no server has used yet has a body of its own.

        What only time can tell is taken for settled: how long the database has been in sight, and its record unchanged.
        """
        found = self.found
        if found is None or found.unread:
            reason = found.unread if found is not None else self.failure
            return Entry(self.offset, self.name, failure=reason, refused=found is not None or self.refused)
        row = found.ring or RingRow(f"new {self.offset}")
        return Entry(self.offset, self.name, row, in_sight_for=math.inf, unchanged_for=math.inf)


@dataclass(frozen=True)
class Case:
    """All databases, in the order of their offsets, examined once or twice.

    earlier, databases: as they were found first and last; the same where once was enough. timeout: of the database, in
    seconds. increment: TICKETS_INCREMENT, None where it is unset. now_ms: the time, in milliseconds since 1970.
    """

    earlier: Sequence[Examined]
    databases: Sequence[Examined]
    timeout: float
    increment: int | None
    now_ms: int

    @cached_property
    def agreement(self) -> Agreement:
        """The decision that every server makes on the ring, once it has looked at all databases for long enough."""
        entries = [each.entry() for each in self.databases]
        return agree(Situation(entries, self.increment, ("doctor", ""), "doctor"))

    @property
    def expected_increment(self) -> int:
        """The ring's increment: the recorded one, or the one that a new ring gets."""
        record = self.agreement.record or self.agreement.seen
        return record.increment if record is not None else self.increment or len(self.databases)

    @property
    def found(self) -> Iterator[tuple[Examined, Examination]]:
        """The databases that could be examined."""
        return ((each, each.found) for each in self.databases if each.found is not None)

    @property
    def read(self) -> Iterator[tuple[Examined, Examination]]:
        """The databases whose tables could be read."""
        return ((each, found) for each, found in self.found if not found.unread)

    @property
    def inside(self) -> Iterator[tuple[Examined, Examination, Examination]]:
        """The databases of the ring that could be read, with what was found first and last."""
        for each, found in self.read:
            before = self.earlier[each.offset - 1].found
            is_in = self.agreement.verdicts[each.offset].standing in {Standing.IN, Standing.LAGS}
            if is_in and found.ring and before is not None and before.ring:
                yield each, before, found
