"""Make a sequence: agree with other servers on what it is, then make its counters.

The database of the lowest offset is asked to keep the definition unless it has one, and decides. So all servers that
make one sequence at the same moment, and reach that database, go by one definition. The other databases get it before
their counters are made.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from app.databases.record import State, new_word
from app.databases.session import ENDS
from app.errors import AboveCeiling, Growing, NoTicketDatabase, SequenceConflict
from app.kinds.table import kind_named
from app.tickets.catalog import Catalog, Entry
from app.tickets.definitions import TICKET, Definition, Row, key_of
from app.tickets.everywhere import everywhere, lives_in_sight
from app.tickets.sight import Sight


class Maker:
    """Makes sequences. catalog, sight: of this server. now_ms: the time for new ones, in milliseconds since 1970."""

    def __init__(self, catalog: Catalog, sight: Sight, now_ms: Callable[[], int]) -> None:
        self._catalog, self._sight, self._now_ms = catalog, sight, now_ms

    async def create(self, name: str, kind: str | None, given: Mapping[str, int]) -> tuple[Entry, bool]:
        """Make a sequence, unless it is there. Returns the sequence, and whether this call has made it.

        kind, given: what the client named; None or left out stands for `ticket` and the kind's own values. One that is
        there is compared with what the client named, except for a `start`. Raises InvalidRequest, SequenceConflict,
        AboveCeiling for a `start` at the end of the sequence, NoTicketDatabase where no database could make it, and
        what `now_ms` raises, for a kind with an epoch.
        """
        key, known = key_of(name), kind_named(kind or TICKET)
        now_ms = self._now_ms() if "epoch" in known.parameters else 0
        wanted = Definition(known.name, known.complete(given, now_ms))
        await self._catalog.first_look()
        entry, made = await self._catalog.look_up(key), False
        if entry is None:
            if key in self._catalog.troubles:
                raise NoTicketDatabase(f"no ticket database can serve {name}: {self._catalog.troubles[key]}")
            known.check_new(wanted.parameters, now_ms)
            entry, made = await self._make(key, Row(name, wanted, new_word()))
        if not made:
            _compare(entry, kind, given)
        return entry, made

    async def _make(self, key: str, mine: Row) -> tuple[Entry, bool]:
        """Agree on a definition, and make the counters. Returns the sequence, and whether `mine` has been agreed on."""
        _check_start(mine.definition)
        self._catalog.making.add(key)
        try:
            row = await self._agree(key, mine)
            entry = await self._catalog.look_up(key)
            if entry is None:
                raise NoTicketDatabase(f"no ticket database could make the sequence {mine.name}")
            members = self._sight.in_sight
            reasons = await asyncio.gather(*(self._catalog.ensure(entry, member) for member in members))
        finally:
            self._catalog.making.discard(key)
        if None not in reasons:
            why = next(iter(reasons), "none is in sight")
            raise NoTicketDatabase(f"no ticket database could make the sequence {mine.name}: {why}")
        return entry, row.word == mine.word and entry.row == row

    async def _agree(self, key: str, mine: Row) -> Row:
        """Have the first database in sight that answers keep a definition; return the one that it has then.

        A definition whose counters were dropped stands. A database that fails may have taken the row all the same; it
        is the row that the next one is given too.
        """
        record = self._sight.record
        if record is not None and record.state is State.CHANGING:
            raise Growing
        agreed = self._catalog.standing_row(key)
        define = partial(self._catalog.define, key, mine)
        for member, life in lives_in_sight(self._sight).items():
            if agreed is None:
                agreed = (await everywhere(self._sight, {member: life}, define)).get(member)
        if agreed is None:
            raise NoTicketDatabase(f"no ticket database could keep the definition of {mine.name}; ask again")
        return agreed


def _check_start(definition: Definition) -> None:
    """Raise AboveCeiling where no id would be left."""
    if definition.kind == TICKET:
        bits = definition.parameters["bits"]
        if definition.start >= ENDS[bits]:
            raise AboveCeiling(f"start has to be below {ENDS[bits]}, the end of a sequence of {bits} bits")


def _compare(entry: Entry, kind: str | None, given: Mapping[str, int]) -> None:
    """Raise SequenceConflict where the sequence is not what the client named."""
    there = entry.definition.parameters
    if entry.definition.kind == TICKET:
        there = {"bits": entry.bits}
    named = {name: value for name, value in given.items() if name != "start"}
    is_kind = entry.definition.kind == (kind or TICKET) or (kind is None and not given)
    if not is_kind or any(there.get(name) != value for name, value in named.items()):
        raise SequenceConflict(f"the sequence {entry.name} exists as {Definition(entry.definition.kind, there)}")
