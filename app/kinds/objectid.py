"""`objectid`: MongoDB's ObjectId, with a ticket where it has a random number."""

from collections.abc import Mapping
from typing import Any

from app.kinds.kind import TimedKind


class ObjectId(TimedKind):
    """32 bits of seconds since 1970, 40 that are random elsewhere, 24 of the counter: 24 hexadecimal digits."""

    name = "objectid"
    bits = 96
    parts = "instance"
    unit_ms = 1000
    time_bits, part_bits, counter_bits = 32, 40, 24

    def _told(self, parameters: Mapping[str, int], part: int) -> dict[str, Any]:
        return {"random": f"{part:010x}"}
