"""The kinds that leave uniqueness to random numbers: each server makes its ids without the others.

Why no package makes the ids: packages read the clock themselves, begin again with an earlier time where the clock goes
back, or leave the counter out where they are told the time.
"""

import secrets
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar
from uuid import UUID, uuid4

from app.errors import ClockAhead, Exhausted
from app.kinds.kind import Kind, Parameter, Parameters, epoch
from app.kinds.notation import decimal, ulid_number, ulid_text, uuid_of

TIME_BITS = 48
"""Of the milliseconds of a UUID or a ULID. They end in the year 10889."""


class RandomKind(Kind):
    """One kind of this family."""

    unique = "probably"

    @abstractmethod
    def make(self, parameters: Parameters, now_ms: Callable[[], int]) -> Callable[[int], list[int] | list[str]]:
        """Return the generator of one sequence on one server: called with a count, it returns that many ids.

        It raises Exhausted where the time has come to its end, and what `now_ms` raises.
        """


class Uuid4(RandomKind):
    """RFC 9562's version 4: 122 random bits; no time, and no order."""

    name, bits = "uuid4", 128

    def odds(self, parameters: Parameters) -> str:
        return "122 random bits: among 10^12 ids the odds of one equal pair are 1 to 10^13"

    def make(self, parameters: Parameters, now_ms: Callable[[], int]) -> Callable[[int], list[str]]:
        return lambda count: [str(uuid4()) for _ in range(count)]

    def decode(self, parameters: Parameters, id_text: str) -> dict[str, Any]:
        return {"kind": self.name, "id_str": str(uuid_of(id_text, self.name, 4))}


class Rising(RandomKind):
    """128 bits: 48 of milliseconds since 1970, then a counter with a random start. The ids of one server rise.

    A new millisecond begins with a new start. Within a millisecond, and while the clock has gone back, the counter
    rises by 1. Where the counter is full, the next millisecond begins early, at 0.

    counter_bits: of the counter. start_bits: of its start. pairs: of how many pairs one has equal ids.
    """

    bits = 128
    counter_bits: ClassVar[int]
    start_bits: ClassVar[int]
    pairs: ClassVar[str]

    def odds(self, parameters: Parameters) -> str:
        return f"two servers' ids of one millisecond are equal once in {self.pairs} pairs; those of one server never"

    def ends_at(self, parameters: Parameters) -> int | None:
        return 1 << TIME_BITS

    def make(self, parameters: Parameters, now_ms: Callable[[], int]) -> Callable[[int], list[str]]:
        tick, bits = -1, self.counter_bits

        def take(count: int) -> list[str]:
            nonlocal tick
            now, made = now_ms(), []
            for _ in range(count):
                tick = tick + 1 if now <= tick >> bits else now << bits | secrets.randbits(self.start_bits)
                if tick >> bits >> TIME_BITS:
                    raise Exhausted("a time of 48 bits has come to its end")
                made.append(self._text(tick))
            return made

        return take

    @abstractmethod
    def _text(self, tick: int) -> str:
        """Return the id of a time and a counter."""


class Uuid7(Rising):
    """RFC 9562's version 7: its longest counter, then 32 random bits. The counter's start leaves room above it."""

    name = "uuid7"
    counter_bits, start_bits = 42, 41
    pairs = "2^73 (10^22)"

    def _text(self, tick: int) -> str:
        high, low = tick >> 30 & (1 << 12) - 1, tick & (1 << 30) - 1
        number = tick >> 42 << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low << 32 | secrets.randbits(32)
        return str(UUID(int=number))

    def decode(self, parameters: Parameters, id_text: str) -> dict[str, Any]:
        """See Kind.decode. `random`: the 74 bits of rand_a and rand_b as one number."""
        found = uuid_of(id_text, self.name, 7)
        number = found.int
        random = (number >> 64 & 0xFFF) << 62 | number & (1 << 62) - 1
        return self._timed(str(found), number >> 80) | {"random": f"{random:019x}"}


class Ulid(Rising):
    """The ULID specification."""

    name = "ulid"
    counter_bits, start_bits = 80, 80
    pairs = "2^80 (10^24)"

    def _text(self, tick: int) -> str:
        return ulid_text(tick)

    def decode(self, parameters: Parameters, id_text: str) -> dict[str, Any]:
        number = ulid_number(id_text)
        return self._timed(ulid_text(number), number >> 80) | {"random": f"{number & (1 << 80) - 1:020x}"}


class Simpleflake(RandomKind):
    """A time and a random number: 41 bits of milliseconds, then `random_bits`.

    With 23 random bits, as the original has, the topmost bit of the time would make an id negative, so it stays 0. The
    epoch of the original code is 2000-01-01T05:00:00Z.
    """

    name, bits = "simpleflake", 64
    parameters: Mapping[str, Parameter] = {"epoch": epoch(946_702_800_000), "random_bits": Parameter(22, 1, 23)}

    def odds(self, parameters: Parameters) -> str:
        pairs = 86_400_000 / 2 / (1 << parameters["random_bits"])
        return (
            f"luck alone: of ids made by several servers at 1,000 a second together, {pairs:,.0f} pairs a day are "
            f"equal, and at 10,000 a second {100 * pairs:,.0f}"
        )

    def ceiling(self, parameters: Parameters) -> int:
        return (1 << min(63, 41 + parameters["random_bits"])) - 1

    def ends_at(self, parameters: Parameters) -> int:
        return parameters["epoch"] + (self.ceiling(parameters) >> parameters["random_bits"]) + 1

    def make(self, parameters: Parameters, now_ms: Callable[[], int]) -> Callable[[int], list[int]]:
        bits, since = parameters["random_bits"], parameters["epoch"]
        last, moment, made = self.ceiling(parameters) >> bits, -1, set[int]()

        def take(count: int) -> list[int]:
            """Repeat no number within a millisecond, until half of the numbers are used."""
            nonlocal moment
            now = now_ms() - since
            if now < 0:
                raise ClockAhead("this server's clock stands before the sequence's epoch")
            if now > last:
                raise Exhausted("ids of kind simpleflake with this epoch have come to their end")
            if now != moment:
                moment = now
                made.clear()
            taken: list[int] = []
            while len(taken) < count:
                number = secrets.randbits(bits)
                if number not in made or 2 * len(made) >= 1 << bits:
                    made.add(number)
                    taken.append(now << bits | number)
            return taken

        return take

    def decode(self, parameters: Parameters, id_text: str) -> dict[str, Any]:
        bits = parameters["random_bits"]
        number = decimal(id_text, self.name, self.ceiling(parameters))
        time = parameters["epoch"] + (number >> bits)
        return self._timed(str(number), time) | {"random": number & (1 << bits) - 1}
