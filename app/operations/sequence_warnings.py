"""The warnings about sequences in /healthz: at most a hundred, however many sequences a fault has hit."""

from collections.abc import Iterable
from typing import Any

LISTED = 100

Warned = dict[str, Any]


class SequenceWarnings:
    """Collects warnings. Current ones are listed before permanent ones, which are about how a table was created: ten
    thousand old tables do not hide a sequence at its end."""

    def __init__(self) -> None:
        self._current: list[Warned] = []
        self._permanent: list[Warned] = []
        self._count = 0

    def add(self, warnings: Iterable[Warned]) -> None:
        self._add(self._current, warnings)

    def add_permanent(self, warnings: Iterable[Warned]) -> None:
        self._add(self._permanent, warnings)

    def _add(self, kept: list[Warned], warnings: Iterable[Warned]) -> None:
        for each in warnings:
            self._count += 1
            if len(kept) < LISTED:
                kept.append(each)

    def listed(self) -> list[Warned]:
        """The first hundred, and one that counts the others."""
        listed = [*self._current, *self._permanent][:LISTED]
        if self._count > len(listed):
            reason = f"{self._count - len(listed):,} more warnings about sequences are not listed"
            listed.append({"sequence": None, "database": None, "reason": reason})
        return listed
