"""The list of all sequences: for GET /sequence, for warnings, and to make what a database lacks before it is needed.

A database that comes into sight may lack sequences that others have. The server makes them there at once, so that it
can serve them when the others fail.
"""

import asyncio
from contextlib import suppress
from typing import NamedTuple

from app.databases.session import Book
from app.errors import DatabaseError
from app.tickets.catalog import Catalog, Entry
from app.tickets.definitions import Seen, seen_of
from app.tickets.everywhere import all_rows, everywhere, lives_in_sight
from app.tickets.sight import Member, Sight

INTERVAL = 10.0
"""Seconds between two lists."""
AGAIN = 1.0
"""Seconds after which a list that failed is made again."""
SHARE = 20
"""A list that takes long is made less often: at most this part of the time goes into lists."""
LONGEST = 30.0
"""Seconds between two lists at most, however long a list took: the process may have stood still meanwhile."""
SLICE = 500
"""How many sequences are worked through before other tasks have their turn."""
AT_ONCE = 8
"""How many counters are made at the same time."""


class Warned(NamedTuple):
    """A warning for /healthz. sequence, database: what it is about, None where it is about no certain one."""

    sequence: str | None
    database: str | None
    reason: str


class Listing:
    """Lists the sequences of all databases in sight, again and again. One task runs `run`."""

    def __init__(self, catalog: Catalog, sight: Sight) -> None:
        self._catalog = catalog
        self._sight = sight
        self._refreshing = asyncio.Lock()
        self._has_listed = False
        self._generation = -1
        self._failures: dict[Member, str] = {}

    async def run(self) -> None:
        """List the sequences whenever a database comes into sight, and from time to time, until this is cancelled."""
        clock = self._sight.clock
        due = clock()
        while True:
            if self._generation != self._sight.generation or due <= clock():
                began = clock()
                await self.refresh()
                wait = AGAIN if self._failures else INTERVAL
                due = clock() + max(wait, min(SHARE * (clock() - began), LONGEST))
            with suppress(TimeoutError):
                async with asyncio.timeout(due - clock()):
                    await self._sight.moved()

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
        found = [Warned(None, member.name, reason) for member, reason in self._failures.items()]
        found += [Warned(key, None, reason) for key, reason in self._catalog.troubles.items()]
        for entry in self._catalog.entries.values():
            found += [Warned(entry.name, member.name, reason) for member, reason in entry.reasons.items()]
            for member, counter in entry.counters.items():
                found += [Warned(entry.name, member.name, reason) for reason in counter.warnings]
            if len({(counter.bits, counter.ceiling) for counter in entry.counters.values()}) > 1:
                found.append(Warned(entry.name, None, "its columns differ between the databases"))
        return found

    # --- one list -----------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """List the sequences of all databases in sight, and make what a database lacks."""
        async with self._refreshing:
            self._generation, at, lives = self._sight.generation, self._sight.clock(), lives_in_sight(self._sight)
            lists: dict[Member, dict[str, Seen]] = {}
            failures: dict[Member, str] = {}

            async def read(member: Member, life: str) -> None:
                try:
                    lists[member] = await _read(member, life, at)
                except DatabaseError as error:  # a list that takes too long is no reason to draw nothing
                    if member.life == life:
                        failures[member] = f"its sequences could not be listed: {error}"

            await everywhere(self._sight, lives, read)
            await self._take(lists, Seen(at=at))
            self._has_listed = self._has_listed or bool(lists)
            self._failures = failures | await self._mend(list(lists))

    async def _take(self, lists: dict[Member, dict[str, Seen]], nothing: Seen) -> None:
        """Tell the catalog what the databases have, also of sequences that they have no more."""
        catalog = self._catalog
        keys = {*catalog.entries, *catalog.troubles}.union(*lists.values())
        for number, key in enumerate(sorted(keys), 1):
            catalog.take(key, {member: views.get(key, nothing) for member, views in lists.items()})
            if number % SLICE == 0:
                await asyncio.sleep(0)

    async def _mend(self, members: list[Member]) -> dict[Member, str]:
        """Make the counters and the rows that these databases lack; return what could not be made."""
        lacking = [
            (entry, member)
            for entry in list(self._catalog.entries.values())
            for member in members
            if member not in entry.reasons and self._lacks(entry, member)
        ]
        failures: dict[Member, str] = {}
        for start in range(0, len(lacking), AT_ONCE):
            part = lacking[start : start + AT_ONCE]
            reasons = await asyncio.gather(*(self._catalog.ensure(entry, member) for entry, member in part))
            for (entry, member), reason in zip(part, reasons, strict=True):
                if reason is not None:
                    failures[member] = f"sequences could not be made there, among them {entry.name}: {reason}"
        return failures

    def _lacks(self, entry: Entry, member: Member) -> bool:
        seen = self._catalog.view(entry.key, member)
        return (entry.is_counted and seen.counter is None) or (entry.row is not None and seen.row is None)


async def _read(member: Member, life: str, at: float) -> dict[str, Seen]:
    """Read all counters of a database, and behind them all rows that define sequences."""
    counters = await member.database.sequences(None, life)
    rows = await all_rows(member, life, Book.DEFINITIONS)
    return {key: seen_of(key, counters.get(key), rows.get(key), at) for key in counters.keys() | rows.keys()}
