"""`flake`: Boundary's 128-bit ids, with a ticket where they have a network card's address."""

from collections.abc import Mapping
from typing import Any

from app.kinds.kind import TimedKind


class Flake(TimedKind):
    """64 bits of milliseconds since 1970, 48 of the worker, 16 of the counter: 32 hexadecimal digits."""

    name = "flake"
    bits = 128
    parts = "instance"
    time_bits, part_bits, counter_bits = 64, 48, 16

    def _told(self, parameters: Mapping[str, int], part: int) -> dict[str, Any]:
        return {"worker": f"{part:012x}"}
