"""`simpleflake`: a time and a random number, nothing else."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from app.common.errors import SequenceExhausted, WrongClock
from app.kinds.kind import Parameter, RandomKind, epoch, number_ceiling
from app.kinds.notation import decimal

EPOCH = 946_702_800_000
"""The original code's: 2000-01-01T05:00:00Z."""
TIME_BITS = 41
_DAY_MS = 86_400_000


def _last(random_bits: int) -> int:
    """The last millisecond since the epoch that an id can be of."""
    return number_ceiling(TIME_BITS + random_bits) >> random_bits


class Simpleflake(RandomKind):
    """41 bits of milliseconds, then `random_bits`.

    With 23, as the original has it, the time's topmost bit would make an id negative, so it stays 0.
    """

    name = "simpleflake"
    bits = 64
    ordered = False
    parameters: ClassVar[Mapping[str, Parameter]] = {"epoch": epoch(EPOCH), "random_bits": Parameter(22, 1, 23)}

    def odds(self, parameters: Mapping[str, int]) -> str:
        bits = parameters["random_bits"]
        pairs = _DAY_MS / 2 / (1 << bits)
        return (
            f"luck alone: of ids made by several servers at 1,000 a second together, {pairs:,.0f} pairs a day are "
            f"equal, and at 10,000 a second {100 * pairs:,.0f}"
        )

    def ceiling(self, parameters: Mapping[str, int]) -> int | None:
        return number_ceiling(TIME_BITS + parameters["random_bits"])

    def ends_at(self, parameters: Mapping[str, int]) -> int | None:
        return parameters["epoch"] + _last(parameters["random_bits"]) + 1

    def make(self, parameters: Mapping[str, int], now_ms: Callable[[], int]) -> Callable[[int], list[int]]:
        bits, since = parameters["random_bits"], parameters["epoch"]
        last = _last(bits)
        moment = -1
        made: set[int] = set()

        def random() -> int:
            """Not one that this server has given in the same millisecond, until half of them are gone."""
            number = secrets.randbits(bits)
            while number in made and 2 * len(made) < 1 << bits:
                number = secrets.randbits(bits)
            made.add(number)
            return number

        def take(count: int) -> list[int]:
            nonlocal moment
            now = now_ms() - since
            if now < 0:
                raise WrongClock("this server's clock stands before the sequence's epoch")
            if now > last:
                raise SequenceExhausted("ids of kind simpleflake with this epoch have come to their end")
            if now != moment:
                moment = now
                made.clear()
            return [now << bits | random() for _ in range(count)]

        return take

    def decode(self, parameters: Mapping[str, int], id_text: str) -> dict[str, Any]:
        bits = parameters["random_bits"]
        number = decimal(id_text, self.name, number_ceiling(TIME_BITS + bits))
        said = self._timed(str(number), parameters["epoch"] + (number >> bits))
        return said | {"random": number & (1 << bits) - 1}
