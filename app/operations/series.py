"""Which sequences have series of their own in /metrics: some hundreds. All others are folded into one series.

A counter must never go backwards. So a sequence whose tickets have been counted in the fold stays there, and one with
series of its own keeps them, as long as the process runs and the sequence exists. A sequence gets a place with its
first ticket, first come, first served; among those that come at once, the ones with the most tickets go first. Free
places are lent to sequences without a ticket, whose count is 0 either way.
"""

from app.common.slices import in_slices

OTHER = "_other"
"""The label of the fold. No sequence has such a name."""
PLACES = 500
AT_ONCE = 1_000
"""How many sequences are checked in one turn of the event loop: about a millisecond."""


class OwnSeries:
    """Which sequences have a place, and the sum of the others' tickets."""

    def __init__(self, places: int = PLACES) -> None:
        self._places = places
        self._own: set[str] = set()
        self._folded: dict[str, int] = {}
        """The tickets of each sequence in the fold, as they are counted in it."""
        self._total = 0
        self._has_fold = False

    async def choose(self, issued: dict[str, int]) -> tuple[set[str], int | None]:
        """The sequences with series of their own, and the tickets of all others; None if there never were others.

        `issued`: how many tickets this server has issued, by sequence. One call at a time.
        """
        self._own &= issued.keys()
        for name in self._folded.keys() - issued.keys():
            del self._folded[name]
        new: list[str] = []
        async for part in in_slices(issued.items(), AT_ONCE):
            for name, count in part:
                before = self._folded.get(name)
                if before is not None:
                    self._total += count - before if count >= before else count  # fewer: dropped and created again
                    self._folded[name] = count
                elif count and name not in self._own:
                    new.append(name)
        new.sort(key=lambda name: -issued[name])
        free = self._places - len(self._own)
        self._own.update(new[:free])
        for name in new[free:]:
            self._folded[name] = issued[name]
            self._total += issued[name]
        own = set(self._own)
        for name, count in issued.items():
            if len(own) == self._places:
                break
            if not count:
                own.add(name)
        self._has_fold = self._has_fold or len(own) < len(issued)
        return own, self._total if self._has_fold else None
