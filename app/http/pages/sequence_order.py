"""In which order the status page shows the sequences."""

import asyncio
import time

from app.clients.turns import Turns
from app.common.slices import in_slices
from app.http.pages.rows import seconds_left, share_left
from app.operations.admin import Admin
from app.operations.rates import Rates

AT_ONCE = 20
"""How many sequences are examined in one turn of the event loop: about a millisecond."""
KEPT_SECONDS = 10.0
"""For how long an order is kept: an open page asks every two seconds, and the order of thousands takes a while."""


class SequenceOrder:
    """Sorts the sequences. `many`: beyond this number of names, sequences in use come before the others."""

    def __init__(self, admin: Admin, rates: Rates, turns: Turns, many: int) -> None:
        self._admin = admin
        self._rates = rates
        self._turns = turns
        self._many = many
        self._kept: dict[str, tuple[float, dict[str, float]]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def names(self, search: str, sort: str) -> list[str]:
        """The names that contain `search`. `sort`: a key of SORTS, or empty for the order of names."""
        names = self._admin.names(search)
        if sort == "rate" or (not sort and len(names) > self._many):
            rest = dict.fromkeys(names)
            first = [name for name in self._rates.busiest if rest.pop(name, name) is None]
            return [*first, *rest]
        if sort:
            keys = await self._keys(sort)
            names.sort(key=lambda name: keys.get(name, float("inf")))
        return names

    async def _keys(self, sort: str) -> dict[str, float]:
        """The values that the page sorts the sequences by, at most KEPT_SECONDS old."""
        async with self._one_at_a_time:
            kept_at, keys = self._kept.get(sort, (float("-inf"), {}))
            clock = asyncio.get_running_loop().time
            if clock() < kept_at + KEPT_SECONDS:
                return keys
            keys, now = {}, time.time()
            async for part in in_slices(self._admin.names(), AT_ONCE, self._turns.wait_for_another):
                for each in self._admin.described(part):
                    name = each["sequence"]
                    key = share_left(each) if sort == "headroom" else seconds_left(each, self._rates.used(name), now)
                    if each["exhausted"]:
                        key = -1.0
                    keys[name] = float("inf") if key is None else key
            self._kept[sort] = clock(), keys
            return keys
