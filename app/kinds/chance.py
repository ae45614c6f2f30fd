"""The kinds that leave uniqueness to random numbers: each server makes its ids without the others.

Why no package makes the ids: packages read the clock themselves, begin again with an earlier time where the clock goes
back, or leave the counter out where they are told the time.
"""

import secrets
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar
from uuid import uuid4

from app.errors import ClockAhead, Exhausted
from app.kinds.kind import Kind, Parameter, Parameters, epoch, number_ceiling
from app.kinds.notation import decimal, ulid_number, ulid_text, uuid_number, uuid_text

TIME_BITS = 48
"""Of the milliseconds of a UUID or a ULID. They end in the year 10889."""
SIMPLEFLAKE_EPOCH = 946_702_800_000
"""The epoch of the original code: 2000-01-01T05:00:00Z."""


class RandomKind(Kind):
    """One kind of this family."""

    unique = "probably"

    @abstractmethod
    def make(self, parameters: Parameters, now_ms: Callable[[], int]) -> Callable[[int], list[int] | list[str]]:
        """Return the generator of one sequence on one server: called with a count, it returns that many ids.

        It raises Exhausted where the time has come to its end, and what `now_ms` raises.
        """


class Increasing:
    """Pairs of a time in ms and a counter, each above the pair before, whatever the clock does.

    A new millisecond begins with a new seed. Within a millisecond, and while the clock has gone back, the counter rises
    by 1. Where the counter is full, the next millisecond begins early.
    """

    def __init__(self, counter_bits: int, seed: Callable[[], int]) -> None:
        self._limit, self._seed = 1 << counter_bits, seed
        self._ms, self._counter = -1, 0

    def take(self, count: int, now_ms: int) -> list[tuple[int, int]]:
        """Return the next pairs. Raises Exhausted where there is no further millisecond."""
        taken = []
        for _ in range(count):
            if now_ms > self._ms:
                self._ms, self._counter = now_ms, self._seed()
            elif self._counter + 1 < self._limit:
                self._counter += 1
            else:
                self._ms, self._counter = self._ms + 1, self._seed()
            if self._ms >> TIME_BITS:
                raise Exhausted("a time of 48 bits has come to its end")
            taken.append((self._ms, self._counter))
        return taken


class Uuid4(RandomKind):
    """RFC 9562's version 4: 122 random bits; no time, and no order."""

    name, bits = "uuid4", 128
    ordered = False

    def odds(self, parameters: Parameters) -> str:
        return "122 random bits: among 10^12 ids the odds of one equal pair are 1 to 10^13"

    def make(self, parameters: Parameters, now_ms: Callable[[], int]) -> Callable[[int], list[str]]:
        return lambda count: [str(uuid4()) for _ in range(count)]

    def decode(self, parameters: Parameters, id_text: str) -> dict[str, Any]:
        return {"kind": self.name, "id_str": uuid_text(uuid_number(id_text, self.name, 4))}


class _Rising(RandomKind):
    """128 bits: 48 of milliseconds since 1970, then a counter with a random start. The ids of one server rise.

    counter_bits: of the counter. seed_bits: of its start. pairs: of how many pairs one has equal ids.
    """

    bits = 128
    ordered = True
    counter_bits: ClassVar[int]
    seed_bits: ClassVar[int]
    pairs: ClassVar[str]

    def odds(self, parameters: Parameters) -> str:
        return f"two servers' ids of one millisecond are equal once in {self.pairs} pairs; those of one server never"

    def ends_at(self, parameters: Parameters) -> int | None:
        return 1 << TIME_BITS

    def make(self, parameters: Parameters, now_ms: Callable[[], int]) -> Callable[[int], list[str]]:
        rising = Increasing(self.counter_bits, lambda: secrets.randbits(self.seed_bits))
        return lambda count: [self._text(*pair) for pair in rising.take(count, now_ms())]

    @abstractmethod
    def _text(self, ms: int, counter: int) -> str:
        """Return the id."""


class Uuid7(_Rising):
    """RFC 9562's version 7: its longest counter, then 32 random bits. The counter's start leaves room above it."""

    name = "uuid7"
    counter_bits, seed_bits = 42, 41
    pairs = "2^73 (10^22)"

    def _text(self, ms: int, counter: int) -> str:
        high, low = counter >> 30, counter & (1 << 30) - 1
        return uuid_text(ms << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low << 32 | secrets.randbits(32))

    def decode(self, parameters: Parameters, id_text: str) -> dict[str, Any]:
        """See Kind.decode. `random`: the 74 bits of rand_a and rand_b as one number."""
        number = uuid_number(id_text, self.name, 7)
        random = (number >> 64 & 0xFFF) << 62 | number & (1 << 62) - 1
        return self._timed(uuid_text(number), number >> 80) | {"random": f"{random:019x}"}


class Ulid(_Rising):
    """The ULID specification."""

    name = "ulid"
    counter_bits, seed_bits = 80, 80
    pairs = "2^80 (10^24)"

    def _text(self, ms: int, counter: int) -> str:
        return ulid_text(ms << 80 | counter)

    def decode(self, parameters: Parameters, id_text: str) -> dict[str, Any]:
        number = ulid_number(id_text)
        return self._timed(ulid_text(number), number >> 80) | {"random": f"{number & (1 << 80) - 1:020x}"}


class Simpleflake(RandomKind):
    """A time and a random number: 41 bits of milliseconds, then `random_bits`.

    With 23 random bits, as the original has, the topmost bit of the time would make an id negative, so it stays 0.
    """

    name, bits = "simpleflake", 64
    ordered = False
    parameters: ClassVar = {"epoch": epoch(SIMPLEFLAKE_EPOCH), "random_bits": Parameter(22, 1, 23)}

    def odds(self, parameters: Parameters) -> str:
        pairs = 86_400_000 / 2 / (1 << parameters["random_bits"])
        return (
            f"luck alone: of ids made by several servers at 1,000 a second together, {pairs:,.0f} pairs a day are "
            f"equal, and at 10,000 a second {100 * pairs:,.0f}"
        )

    def ceiling(self, parameters: Parameters) -> int:
        return number_ceiling(41 + parameters["random_bits"])

    def ends_at(self, parameters: Parameters) -> int:
        return parameters["epoch"] + (self.ceiling(parameters) >> parameters["random_bits"]) + 1

    def make(self, parameters: Parameters, now_ms: Callable[[], int]) -> Callable[[int], list[int]]:
        bits, since = parameters["random_bits"], parameters["epoch"]
        last, moment = self.ceiling(parameters) >> bits, -1
        made: set[int] = set()

        def random() -> int:
            """Return a number that is new in this millisecond, until half of the numbers are used."""
            while (number := secrets.randbits(bits)) in made and 2 * len(made) < 1 << bits:
                pass
            made.add(number)
            return number

        def take(count: int) -> list[int]:
            nonlocal moment
            now = now_ms() - since
            if now < 0:
                raise ClockAhead("this server's clock stands before the sequence's epoch")
            if now > last:
                raise Exhausted("ids of kind simpleflake with this epoch have come to their end")
            if now != moment:
                moment = now
                made.clear()
            return [now << bits | random() for _ in range(count)]

        return take

    def decode(self, parameters: Parameters, id_text: str) -> dict[str, Any]:
        bits = parameters["random_bits"]
        number = decimal(id_text, self.name, self.ceiling(parameters))
        time = parameters["epoch"] + (number >> bits)
        return self._timed(str(number), time) | {"random": number & (1 << bits) - 1}
