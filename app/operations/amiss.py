"""What is amiss with sequences, as /healthz lists it: a hundred warnings at the most, however many a fault has hit."""

from collections.abc import Iterable
from typing import Any

LISTED = 100

Warned = dict[str, Any]


class Amiss:
    """Collects warnings. Those of the moment are listed ahead of those that have always been there, which are about how
    a table was made: ten thousand old tables do not hide a sequence at its end."""

    def __init__(self) -> None:
        self._now: list[Warned] = []
        self._lasting: list[Warned] = []
        self._count = 0

    def add(self, warnings: Iterable[Warned]) -> None:
        self._add(self._now, warnings)

    def add_lasting(self, warnings: Iterable[Warned]) -> None:
        self._add(self._lasting, warnings)

    def _add(self, kept: list[Warned], warnings: Iterable[Warned]) -> None:
        for each in warnings:
            self._count += 1
            if len(kept) < LISTED:
                kept.append(each)

    def listed(self) -> list[Warned]:
        """As many as are listed, and one that says how many are not."""
        listed = [*self._now, *self._lasting][:LISTED]
        if self._count > len(listed):
            reason = f"{self._count - len(listed):,} more warnings about sequences are not listed"
            listed.append({"sequence": None, "database": None, "reason": reason})
        return listed
