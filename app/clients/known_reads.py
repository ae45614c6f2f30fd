"""Reads that have come before, and what they meant: clients send the same ones again and again, and there is nothing in
them to parse twice."""

from typing import Generic, TypeVar

LONGEST = 1_024
"""Bytes of a read that is kept."""
MANY = 2_048
"""How many are kept: a few kinds of clients times the sequences that they use."""

T = TypeVar("T")


class KnownReads(Generic[T]):
    """Meanings by the bytes of a whole read that stands for itself. `get`: what some bytes mean, None where that is not
    known."""

    def __init__(self) -> None:
        self._meanings: dict[bytes, T] = {}
        self.get = self._meanings.get

    def keep(self, data: bytes, meaning: T) -> None:
        """Keep what these bytes mean, and nothing else."""
        if len(data) > LONGEST:
            return
        if len(self._meanings) >= MANY:  # some clients never send the same twice
            del self._meanings[next(iter(self._meanings))]
        self._meanings[data] = meaning
