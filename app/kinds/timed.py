"""The kinds whose ids hold a time and a counter that no two servers use together.

`instagram` and `instagram32` draw both from the ticket databases. `snowflake`, `flake` and `objectid` count in memory,
under a number that no other server has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from app.errors import InvalidRequest
from app.kinds.kind import Kind, Parameter, Parameters, epoch
from app.kinds.notation import decimal, hexadecimal

LONGEST_NUMBER = 64  # ids of more bits than this, the sign included, are strings


@dataclass(frozen=True)
class TimedKind(Kind):
    """A kind whose ids are a time, a part and a counter, from high to low.

    Time and counter together are a *tick*: time * 2^counter_bits + counter, with the time in units since the epoch. A
    sequence uses each tick once, or each part does, so each id is made once.

    part: what the part says. time_bits: without the bit that would make ids negative. unit_ms: the unit of the time.
    told: the part's name in a decoded id, which has it in hexadecimal digits.
    """

    unique: ClassVar = "certainly"
    name: str
    bits: int
    part: Literal["shard", "worker", "instance"]
    time_bits: int
    part_bits: int
    counter_bits: int
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    unit_ms: int = 1
    told: str = ""

    def tick_at(self, parameters: Parameters, ms: int) -> int:
        """Return the first tick of a moment; it is negative before the epoch."""
        return (ms - parameters.get("epoch", 0)) // self.unit_ms << self.counter_bits

    def time_of(self, parameters: Parameters, tick: int) -> int:
        """Return the moment at which a tick's unit of time begins."""
        return parameters.get("epoch", 0) + (tick >> self.counter_bits) * self.unit_ms

    @property
    def last_tick(self) -> int:
        """The last tick that an id can be made of."""
        return (1 << self.time_bits + self.counter_bits) - 1

    def encode(self, tick: int, part: int) -> int | str:
        """Return the id. Raises ValueError where there is none of this tick and part."""
        if not (0 <= tick <= self.last_tick and 0 <= part < 1 << self.part_bits):
            raise ValueError(f"tick {tick} and {self.part} {part} are no id of kind {self.name}")
        counter = tick & (1 << self.counter_bits) - 1
        number = (tick >> self.counter_bits << self.part_bits | part) << self.counter_bits | counter
        return number if self.bits <= LONGEST_NUMBER else self._text(number)

    def ceiling(self, parameters: Parameters) -> int | None:
        return None if self.bits > LONGEST_NUMBER else (1 << self.time_bits + self.part_bits + self.counter_bits) - 1

    def ends_at(self, parameters: Parameters) -> int | None:
        return self.time_of(parameters, self.last_tick + 1)

    def decode(self, parameters: Parameters, id_text: str) -> dict[str, Any]:
        ceiling = self.ceiling(parameters)
        number = decimal(id_text, self.name, ceiling) if ceiling else hexadecimal(id_text, self.name, self.bits // 4)
        counter = number & (1 << self.counter_bits) - 1
        part = number >> self.counter_bits & (1 << self.part_bits) - 1
        time = self.time_of(parameters, number >> self.part_bits + self.counter_bits << self.counter_bits)
        said: dict[str, Any] = {self.told: f"{part:0{self.part_bits // 4}x}"}
        if self.part == "shard":
            if part >= parameters["shards"]:
                raise InvalidRequest(f"the id is of shard {part}; there are {parameters['shards']} shards, from 0")
            said = {"shard": part}
        elif self.part == "worker":
            said = {"datacenter": part >> 5, "worker": part & 31}
        return self._timed(self._text(number), time) | said | {"counter": counter}

    def _text(self, number: int) -> str:
        return str(number) if self.bits <= LONGEST_NUMBER else f"{number:0{self.bits // 4}x}"


TIMED = (
    # The topmost bit would make an id negative in a signed 64-bit number. It stays 0, and the time ends after 40 bits.
    # The epoch of the article's code is 2011-08-24T21:07:01.721Z.
    TimedKind(
        *("instagram", 64, "shard", 40, 13, 10),
        {"epoch": epoch(1_314_220_021_721), "shards": Parameter(8192, 1, 8192)},
    ),
    # its ids last for 388 days
    TimedKind("instagram32", 32, "shard", 25, 2, 5, {"epoch": epoch(None), "shards": Parameter(4, 1, 4)}, 1000),
    # Twitter's epoch is 2010-11-04T01:42:54.657Z. A worker is 5 bits of the data centre and 5 of the worker in it.
    TimedKind("snowflake", 64, "worker", 41, 10, 12, {"epoch": epoch(1_288_834_974_657)}),
    # Boundary's ids have a network card's address where these have a ticket.
    TimedKind("flake", 128, "instance", 64, 48, 16, told="worker"),
    # MongoDB makes 40 bits at random that are a ticket here.
    TimedKind("objectid", 96, "instance", 32, 40, 24, unit_ms=1000, told="random"),
)
"""All kinds of this family."""
