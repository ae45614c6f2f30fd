"""One case of the benchmark."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.model import Sample
from bench.stage import Stage


@dataclass(frozen=True, slots=True)
class Case:
    """Something to measure: `run(stage, seconds)`."""

    name: str
    group: str
    title: str
    run: Callable[[Stage, float], Sample]
    note: str = ""
    steady: bool = True
    """Whether its rounds should agree. They do not where deadlocks decide how many tickets there are."""

    @property
    def ours(self) -> bool:
        """Is it the ticket server that is measured?"""
        groups = "server", "ahead", "two-servers", "count", "block", "sequences", "embedded", "snowflake", "instagram"
        return self.name.startswith((*(f"{group}-" for group in groups), "redis-server-", "redis-ahead-"))
