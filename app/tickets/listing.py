"""The list of all sequences: for GET /sequence, for warnings, and to make what a database lacks before it is needed.

A database that comes into sight may lack sequences that others have. The server makes them there at once, so that it
can serve them when the others fail.
"""

import asyncio
from random import Random

from app.errors import DatabaseError
from app.tickets.catalog import Catalog, Entry
from app.tickets.definitions import Seen
from app.tickets.everywhere import lives_in_sight
from app.tickets.sight import Member, Sight

INTERVAL, AGAIN, LONGEST = 10.0, 1.0, 30.0
"""Seconds between two lists, between one that failed and the next, and at most after one that took long."""
SHARE = 20  # a list that takes long is made less often: at most this part of the time goes into lists
SLICE = 500  # how many sequences are worked through before other tasks have their turn
AT_ONCE = 8  # how many counters are made at the same time
REST = 2.0  # between them the server waits so many times as long: to make a table keeps a database from draws


Warned = tuple[str | None, str | None, str]
"""A warning for /healthz: the sequence and the database that it is about, None for no certain one, and the reason."""


class Listing:
    """Lists the sequences of all databases in sight, again and again. One task runs `run`.

    chance: decides the order in which the server makes what is lacking.
    """

    def __init__(self, catalog: Catalog, sight: Sight, chance: Random) -> None:
        self._catalog, self._sight, self._chance = catalog, sight, chance
        self._refreshing = asyncio.Lock()
        self._has_listed = False
        self._failures: dict[Member, str] = {}

    async def run(self) -> None:
        """List the sequences whenever a database comes into sight, and from time to time, until this is cancelled."""
        sight, clock = self._sight, self._sight.clock
        while True:
            began, generation = clock(), sight.generation
            await self.refresh()
            wait = AGAIN if self._failures else INTERVAL
            due = clock() + max(wait, min(SHARE * (clock() - began), LONGEST))
            while generation == sight.generation and (left := due - clock()) > 0:
                await sight.moved(left)

    async def page(self, search: str, after: str, count: int) -> tuple[list[Entry], int]:
        """Return a page of the sequences, sorted by their names in lower case, and how many match in all.

        search: part of the name, in any case; empty for all. after: the page begins behind this name. count: the most
        sequences of a page.
        """
        if not self._has_listed:
            await self._catalog.first_look()
            await self.refresh()
        part = search.lower()
        keys = sorted(key for key in self._catalog.entries if part in key)
        following = [key for key in keys if key > after.lower()][:count]
        return [self._catalog.entries[key] for key in following], len(keys)

    @property
    def warnings(self) -> list[Warned]:
        """What is wrong with sequences, and with lists of them."""
        found: list[Warned] = [(None, member.name, reason) for member, reason in self._failures.items()]
        found += [(key, None, reason) for key, reason in self._catalog.troubles.items()]
        for entry in self._catalog.entries.values():
            found += [(entry.name, member.name, reason) for member, reason in entry.reasons.items()]
            for member, counter in entry.counters.items():
                found += [(entry.name, member.name, reason) for reason in counter.warnings]
            if len({(counter.bits, counter.ceiling) for counter in entry.counters.values()}) > 1:
                found.append((entry.name, None, "its columns differ between the databases"))
        return found

    async def refresh(self) -> None:
        """List the sequences of all databases in sight, and make what a database lacks."""
        failures: dict[Member, str] = {}
        lists: dict[Member, dict[str, Seen]] = {}

        async def read(member: Member, life: str) -> None:
            try:
                lists[member] = await self._catalog.read(None, member, life)
            except DatabaseError as error:
                # a list that takes too long is no reason to draw nothing, so such a database stays in sight
                if member.life == life:
                    failures[member] = f"its sequences could not be listed: {error}"

        async with self._refreshing:
            nothing = Seen(at=self._sight.clock())
            await asyncio.gather(*(read(member, life) for member, life in lives_in_sight(self._sight).items()))
            lacking = await self._take(lists, nothing)
            self._has_listed = self._has_listed or bool(lists)
            self._failures = failures | await self._make(lacking)

    async def _take(self, lists: dict[Member, dict[str, Seen]], nothing: Seen) -> list[tuple[Entry, Member]]:
        """Tell the catalog what the databases have, also of sequences that they have no more; return what they lack."""
        catalog, lacking = self._catalog, list[tuple[Entry, Member]]()
        for number, key in enumerate(sorted({*catalog.entries, *catalog.troubles}.union(*lists.values())), 1):
            views = {member: found.get(key, nothing) for member, found in lists.items()}
            entry = catalog.take(key, views)
            lacking += [(entry, each) for each, seen in views.items() if entry is not None and entry.lacks(each, seen)]
            if number % SLICE == 0:
                await asyncio.sleep(0)
        return lacking

    async def _make(self, lacking: list[tuple[Entry, Member]]) -> dict[Member, str]:
        """Make the counters and the rows that databases lack; return what could not be made."""
        failures: dict[Member, str] = {}
        self._chance.shuffle(lacking)  # other servers make them as well, in another order
        for start in range(0, len(lacking), AT_ONCE):
            part, began = lacking[start : start + AT_ONCE], self._sight.clock()
            reasons = await asyncio.gather(*(self._catalog.ensure(entry, member) for entry, member in part))
            for (entry, member), reason in zip(part, reasons, strict=True):
                if reason is not None:
                    failures[member] = f"sequences could not be made there, among them {entry.name}: {reason}"
            if start + AT_ONCE < len(lacking):
                await asyncio.sleep(REST * (self._sight.clock() - began))
        return failures
