"""`snowflake`: Twitter's ids."""

from collections.abc import Mapping
from typing import Any, ClassVar

from app.kinds.kind import Parameter, TimedKind, epoch

EPOCH = 1_288_834_974_657
"""Twitter's: 2010-11-04T01:42:54.657Z."""


class Snowflake(TimedKind):
    """41 bits of milliseconds, 10 of the worker (5 of the data centre, 5 of the worker in it), 12 of the counter."""

    name = "snowflake"
    bits = 64
    parts = "worker"
    time_bits, part_bits, counter_bits = 41, 10, 12
    parameters: ClassVar[Mapping[str, Parameter]] = {"epoch": epoch(EPOCH)}

    def _told(self, parameters: Mapping[str, int], part: int) -> dict[str, Any]:
        return {"datacenter": part >> 5, "worker": part & 31}
