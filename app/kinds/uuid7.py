"""`uuid7`: RFC 9562's version 7, by its method 1, a counter.

Why our own: the packages read the clock by themselves, so nothing could be shown of a clock that goes back, and one that
is told the time leaves its counter out. `tests/unit/kinds/test_packages.py` compares the ids both ways.
"""

import secrets
from collections.abc import Callable, Mapping
from os import urandom
from typing import Any

from app.kinds.increasing import TIME_BITS, Increasing
from app.kinds.kind import RandomKind
from app.kinds.notation import uuid_number, uuid_text

COUNTER_BITS = 42
"""rand_a and the upper 30 bits of rand_b: the longest counter that the RFC has. Its seed leaves the topmost bit 0."""
_LOW_BITS = 30
_VERSION_7 = 0x7 << 76
_VARIANT = 0b10 << 62


class Uuid7(RandomKind):
    """48 bits of milliseconds since 1970, 42 of a counter with a random start, 32 random."""

    name = "uuid7"
    bits = 128
    ordered = True

    def odds(self, parameters: Mapping[str, int]) -> str:
        return "two servers' ids of one millisecond are equal once in 2^73 (10^22) pairs; those of one server, while it runs, never"

    def ends_at(self, parameters: Mapping[str, int]) -> int | None:
        return 1 << TIME_BITS

    def make(self, parameters: Mapping[str, int], now_ms: Callable[[], int]) -> Callable[[int], list[str]]:
        pairs = Increasing(COUNTER_BITS, lambda: secrets.randbits(COUNTER_BITS - 1))
        low = (1 << _LOW_BITS) - 1

        def take(count: int) -> list[str]:
            taken = pairs.take(count, now_ms())
            noise = urandom(4 * count)
            return [
                uuid_text(
                    ms << 80
                    | _VERSION_7
                    | counter >> _LOW_BITS << 64
                    | _VARIANT
                    | (counter & low) << 32
                    | int.from_bytes(noise[4 * place : 4 * place + 4])
                )
                for place, (ms, counter) in enumerate(taken)
            ]

        return take

    def decode(self, parameters: Mapping[str, int], id_text: str) -> dict[str, Any]:
        """`random`: the 74 bits of rand_a and rand_b as one number."""
        number = uuid_number(id_text, self.name, 7)
        random = (number >> 64 & 0xFFF) << 62 | number & (1 << 62) - 1
        return self._timed(uuid_text(number), number >> 80) | {"random": f"{random:019x}"}
