"""The case that the doctor's checks examine, and the findings that they yield."""

from collections.abc import Sequence
from typing import NamedTuple

from app.common.sequences import counter_table, is_inner_name
from app.databases.inspection import Inspection
from app.tickets.sources.instance_number import TABLE as INSTANCE_NUMBERS


class Finding(NamedTuple):
    """`wrong`: what is wrong, in one sentence without its subject. `fix`: how to fix it."""

    wrong: str
    fix: str


class Case(NamedTuple):
    """One database, all databases, TICKETS_DATABASE_TIMEOUT, TICKETS_INCREMENT (None: unset), and what time it is, in
    milliseconds since 1970."""

    database: Inspection
    everyone: Sequence[Inspection]
    timeout: float
    increment: int | None = None
    now_ms: int = 0

    @property
    def others(self) -> list[Inspection]:
        return [each for each in self.everyone if each is not self.database]

    @property
    def earlier(self) -> list[Inspection]:
        return list(self.everyone[: self.everyone.index(self.database)])

    def called(self, table: str) -> str:
        """Whose table it is: for an inner one, what it counts."""
        if not is_inner_name(table):
            return table
        if table == INSTANCE_NUMBERS:
            return "the instance numbers"
        counted = (name for each in self.everyone for name in each.definitions if counter_table(name) == table)
        return next((f"{name} ({table})" for name in counted), table)
