"""The facts of a run beside its figures."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """When, how, on what."""

    engine: str
    command: str
    date: str
    rounds: int
    seconds: int
    hardware: dict[str, str]
    versions: dict[str, str]
    busy: str
    """A warning if the machine was busy when the run began; else the empty string."""
