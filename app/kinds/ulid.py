"""`ulid`: the ULID specification, its monotonic part included.

Our own for the same reasons as `uuid7`; a clock that has gone back is a case that packages have got wrong.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from app.kinds.increasing import TIME_BITS, Increasing
from app.kinds.kind import RandomKind
from app.kinds.notation import ulid_number, ulid_text

RANDOM_BITS = 80


class Ulid(RandomKind):
    """48 bits of milliseconds since 1970, 80 random, one more for each further id of the same millisecond."""

    name = "ulid"
    bits = 128
    ordered = True

    def odds(self, parameters: Mapping[str, int]) -> str:
        return "two servers' ids of one millisecond are equal once in 2^80 (10^24) pairs; those of one server, while it runs, never"

    def ends_at(self, parameters: Mapping[str, int]) -> int | None:
        return 1 << TIME_BITS

    def make(self, parameters: Mapping[str, int], now_ms: Callable[[], int]) -> Callable[[int], list[str]]:
        pairs = Increasing(RANDOM_BITS, lambda: secrets.randbits(RANDOM_BITS))

        def take(count: int) -> list[str]:
            return [ulid_text(ms << RANDOM_BITS | random) for ms, random in pairs.take(count, now_ms())]

        return take

    def decode(self, parameters: Mapping[str, int], id_text: str) -> dict[str, Any]:
        number = ulid_number(id_text)
        random = number & (1 << RANDOM_BITS) - 1
        return self._timed(ulid_text(number), number >> RANDOM_BITS) | {"random": f"{random:020x}"}
