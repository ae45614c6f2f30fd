"""`instagram` and `instagram32`: the article's sharded ids, their ticks drawn as tickets."""

from collections.abc import Mapping
from typing import Any, ClassVar

from app.common.errors import InvalidRequest
from app.common.sequences import TICKET_LIMIT
from app.kinds.kind import Parameter, TimedKind, epoch

EPOCH = 1_314_220_021_721
"""The epoch of the article's code: 2011-08-24T21:07:01.721Z."""


class Instagram(TimedKind):
    """41 bits of milliseconds, 13 of the shard, 10 of the counter.

    The topmost bit would make an id negative in a signed 64-bit number. It stays 0, and the time ends after 40 bits.
    """

    name = "instagram"
    bits = 64
    parts = "shard"
    time_bits, part_bits, counter_bits = 40, 13, 10
    parameters: ClassVar[Mapping[str, Parameter]] = {"epoch": epoch(EPOCH), "shards": Parameter(8192, 1, 8192)}

    def shard_of(self, parameters: Mapping[str, int], key: int | None, shard: int | None) -> int:
        shards = parameters["shards"]
        if key is not None and shard is not None:
            raise InvalidRequest("a request names its shard by key or by shard, not by both")
        if key is not None:
            if not 0 <= key <= TICKET_LIMIT:
                raise InvalidRequest(f"key is a whole number from 0 to {TICKET_LIMIT}")
            return key % shards
        if shard is None:
            return 0
        if not 0 <= shard < shards:
            raise InvalidRequest(f"shard is a whole number from 0 to {shards - 1} for this sequence")
        return shard

    def _told(self, parameters: Mapping[str, int], part: int) -> dict[str, Any]:
        if part >= parameters["shards"]:
            raise InvalidRequest(f"the id is of shard {part}; there are {parameters['shards']} shards, from 0")
        return {"shard": part}


class Instagram32(Instagram):
    """Ids of 32 bits made like that: 25 bits of seconds, 2 of the shard, 5 of the counter. They last 388 days."""

    name = "instagram32"
    bits = 32
    unit_ms = 1000
    time_bits, part_bits, counter_bits = 25, 2, 5
    parameters: ClassVar[Mapping[str, Parameter]] = {"epoch": epoch(None), "shards": Parameter(4, 1, 4)}
