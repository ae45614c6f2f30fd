"""Reads that have been parsed before: clients send the same ones again and again."""

from typing import NamedTuple

LONGEST = 1_024
"""Bytes of a read that is kept."""
MANY = 2_048
"""How many are kept: a few kinds of clients times the sequences that they use."""


class Run(NamedTuple):
    """So many commands in a row, each for one ticket of the sequence."""

    sequence: str
    times: int


class KnownRuns:
    """Runs by the bytes of a whole read that asks for nothing else."""

    def __init__(self) -> None:
        self._runs: dict[bytes, Run] = {}
        self.get = self._runs.get

    def keep(self, data: bytes, run: Run) -> None:
        """Keep what these bytes mean: this run, and nothing else."""
        if len(data) > LONGEST:
            return
        if len(self._runs) >= MANY:  # some clients never send the same twice
            del self._runs[next(iter(self._runs))]
        self._runs[data] = run
