"""The kinds whose ids hold a time and a counter that no two servers use together.

`instagram` and `instagram32` draw both from the ticket databases. `snowflake`, `flake` and `objectid` count in memory,
under a number that no other server has.
"""

from typing import Any, ClassVar, Literal

from app.errors import Exhausted, InvalidRequest
from app.kinds.kind import TICKET_LIMIT, Kind, Parameter, Parameters, epoch
from app.kinds.notation import decimal, hexadecimal

INSTAGRAM_EPOCH = 1_314_220_021_721
"""The epoch of the article's code: 2011-08-24T21:07:01.721Z."""
SNOWFLAKE_EPOCH = 1_288_834_974_657
"""Twitter's epoch: 2010-11-04T01:42:54.657Z."""
LONGEST_NUMBER = 64
"""Ids of more bits than this, the sign included, are strings."""


class TimedKind(Kind):
    """A kind whose ids are a time, a part and a counter, from high to low.

    Time and counter together are a *tick*: time * 2^counter_bits + counter, with the time in units since the epoch. A
    sequence uses each tick once, or each part does, so each id is made once.

    part: what the part says. unit_ms: the unit of the time. time_bits: without the bit that would make ids negative.
    field: the part's name in a decoded id, which has it in hexadecimal digits.
    """

    unique = "certainly"
    ordered = True
    part: ClassVar[Literal["shard", "worker", "instance"]]
    field: ClassVar[str]
    unit_ms: ClassVar[int] = 1
    time_bits: ClassVar[int]
    part_bits: ClassVar[int]
    counter_bits: ClassVar[int]

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
        """Return the id. Raises Exhausted where the tick is above the last one, ValueError where that is no id."""
        if tick > self.last_tick:
            raise Exhausted(f"ids of kind {self.name} with this epoch have come to their end")
        if tick < 0 or part < 0 or part >> self.part_bits:
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
        digits = self.bits // 4
        number = decimal(id_text, self.name, ceiling) if ceiling else hexadecimal(id_text, self.name, digits)
        counter = number & (1 << self.counter_bits) - 1
        part = number >> self.counter_bits & (1 << self.part_bits) - 1
        time = number >> self.part_bits + self.counter_bits
        said = self._timed(self._text(number), self.time_of(parameters, time << self.counter_bits))
        return said | self._told(parameters, part) | {"counter": counter}

    def _told(self, parameters: Parameters, part: int) -> dict[str, Any]:
        """Return the fields of the part. Raises InvalidRequest where no id of these parameters has it."""
        return {self.field: f"{part:0{self.part_bits // 4}x}"}

    def _text(self, number: int) -> str:
        return str(number) if self.bits <= LONGEST_NUMBER else f"{number:0{self.bits // 4}x}"


class Instagram(TimedKind):
    """Instagram's sharded ids: 41 bits of milliseconds, 13 of the shard, 10 of the counter.

    The topmost bit would make an id negative in a signed 64-bit number. It stays 0, and the time ends after 40 bits.
    """

    name, bits = "instagram", 64
    part = "shard"
    time_bits, part_bits, counter_bits = 40, 13, 10
    parameters: ClassVar = {"epoch": epoch(INSTAGRAM_EPOCH), "shards": Parameter(8192, 1, 8192)}

    def shard_of(self, parameters: Parameters, key: int | None, shard: int | None) -> int:
        shards = parameters["shards"]
        if key is not None and shard is not None:
            raise InvalidRequest("a request names its shard by key or by shard, not by both")
        if key is not None:
            if not 0 <= key <= TICKET_LIMIT:
                raise InvalidRequest(f"key is a whole number from 0 to {TICKET_LIMIT}")
            return key % shards
        shard = shard or 0
        if not 0 <= shard < shards:
            raise InvalidRequest(f"shard is a whole number from 0 to {shards - 1} for this sequence")
        return shard

    def _told(self, parameters: Parameters, part: int) -> dict[str, Any]:
        if part >= parameters["shards"]:
            raise InvalidRequest(f"the id is of shard {part}; there are {parameters['shards']} shards, from 0")
        return {"shard": part}


class Instagram32(Instagram):
    """Ids of 32 bits: 25 bits of seconds, 2 of the shard, 5 of the counter. They last for 388 days."""

    name, bits = "instagram32", 32
    unit_ms = 1000
    time_bits, part_bits, counter_bits = 25, 2, 5
    parameters: ClassVar = {"epoch": epoch(None), "shards": Parameter(4, 1, 4)}


class Snowflake(TimedKind):
    """41 bits of milliseconds, 10 of the worker (5 of the data centre, 5 of the worker in it), 12 of the counter."""

    name, bits = "snowflake", 64
    part = "worker"
    time_bits, part_bits, counter_bits = 41, 10, 12
    parameters: ClassVar = {"epoch": epoch(SNOWFLAKE_EPOCH)}

    def _told(self, parameters: Parameters, part: int) -> dict[str, Any]:
        return {"datacenter": part >> 5, "worker": part & 31}


class Flake(TimedKind):
    """64 bits of milliseconds since 1970, 48 of the worker, 16 of the counter: 32 hexadecimal digits.

    Boundary's ids have a network card's address where these have a ticket.
    """

    name, bits = "flake", 128
    part, field = "instance", "worker"
    time_bits, part_bits, counter_bits = 64, 48, 16


class ObjectId(TimedKind):
    """32 bits of seconds since 1970, 40 that MongoDB makes at random and that are a ticket here, 24 of the counter."""

    name, bits = "objectid", 96
    part, field = "instance", "random"
    unit_ms = 1000
    time_bits, part_bits, counter_bits = 32, 40, 24
