"""Growth: change the ring's increment, and which databases are in it, while ticket servers run (rule 10).

The record `changing` fences every database: from then on no limit rises, because marks name the number of the
record before. Then the largest limit, floor and position of each sequence becomes its floor, on every database. The
record `drawn` with the new increment, written on the database of offset 1, decides. Until then anybody may go back, and
after it anybody finishes; the ticket servers do either where `ticketd grow` ends too early. They also make the
sequences on new databases, and their lanes go above the floors, by rule 4.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from app.databases.record import Body, Record, State
from app.databases.session import Book, Counter, RingRow
from app.errors import DatabaseError, TicketError
from app.tickets.agreement import Standing
from app.tickets.everywhere import all_rows, raise_rows
from app.tickets.floors import Floors
from app.tickets.heartbeats import UNREADABLE
from app.tickets.level import Levels
from app.tickets.probe import Probe
from app.tickets.sight import NEVER, Member, Sight
from app.tickets.tasks import Tasks

log = logging.getLogger(__name__)

Say = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

READY = 60.0
"""Seconds for which `grow` waits until everything that it needs is there."""


class GrowthRefused(TicketError, code="growing"):
    """The ring cannot be changed now."""


Fenced = tuple[Member, str, RingRow]
"""A database that has the record `changing`, the life in which it took it, and its ring row since."""


class Growth:
    """One run of `ticketd grow`.

    sight: of the longer of the two lists, with nothing in sight yet. increment: the new one. name: of this process, in
    heartbeats. say: shows how far it is.
    """

    def __init__(self, sight: Sight, increment: int, name: str, say: Say = lambda _what, _done, _all: None) -> None:
        self._sight, self._members, self._increment, self._say = sight, sight.members, increment, say
        self._wanted = tuple(range(1, 1 + min(increment, len(sight.members))))
        """The offsets of the new ring that are in use."""
        self._levels = Levels(sight)
        self._probe = Probe(sight, name, increment=None, floors=Floors(sight), grow=True)

    async def run(self) -> None:
        """Change the ring. Raises GrowthRefused, and DatabaseError where a database failed: run it again then."""
        async with self._looking():
            record = await self._until(self._lacking)
            if record.drawn and (record.increment, record.offsets) == (self._increment, self._wanted):
                return
            changing = replace(record, number=record.number + 1, writer=self._probe.word, state=State.CHANGING)
            positions = await self._positions()
            fenced = await self._fence(changing)
            await self._keep_floors(fenced, positions)
            await self._decide(changing, fenced)

    async def status(self) -> list[str]:
        """Return what is left of a change, a line each; none where nothing is under way. Raises GrowthRefused."""
        async with self._looking():
            record, left = await self._until(lambda _record: []), []
            if record.state is State.CHANGING:
                left.append("a change of the ring is not decided: run `ticketd grow` again, or leave it to the servers")
            for member in self._members:
                stamp = member.row.stamp if member.row is not None else ""
                if member.offset in record.offsets and stamp != record.stamp:
                    left.append(f"{member.name} is not seen to have the ring's record: {member.reason}")
            return left

    @asynccontextmanager
    async def _looking(self) -> AsyncIterator[None]:
        """Look at the databases and make them level meanwhile."""
        tasks = Tasks()
        for part in (self._probe, self._levels):
            tasks.start(part.run())
        try:
            yield
        finally:
            await tasks.end()
            await self._probe.close()
            await asyncio.gather(*(member.database.close() for member in self._members))

    # --- what has to be there ----------------------------------------------------------------------------------------

    async def _until(self, lacking: Callable[[Record], list[str]]) -> Record:
        """Return the ring's record once it is known and nothing is lacking. Raises GrowthRefused: what is missing."""
        deadline = self._sight.clock() + READY
        while True:
            record = self._sight.record
            if any(member.looked == NEVER for member in self._members):
                reasons = ["the first looks at the ticket databases have not ended"]
            elif record is None:
                reasons = self._unusable() or ["no ring is formed yet: start the ticket servers"]
            elif not (reasons := lacking(record)):
                return record
            self._say(f"waiting: {reasons[0]}", 0, 1)
            if self._sight.clock() > deadline:
                raise GrowthRefused("; ".join(reasons))
            await self._sight.moved(1.0)

    def _unusable(self) -> list[str]:
        return [f"{member.name} cannot be used: {member.reason}" for member in self._members if member.row is None]

    def _lacking(self, record: Record) -> list[str]:
        """Return what `grow` waits for now, a line each. Raises GrowthRefused: what an operator has to change first.

        That is a list that does not fit, a ticket server that would draw nothing in the new ring, or whose heartbeat
        cannot be read, or a new database that holds the data of another ring, entry or place in the list.
        """
        leaving = sum(offset > self._increment for offset in record.offsets)
        wrong = [f"only the last database can leave the ring, and {leaving} have larger offsets"] * (leaving > 1)
        for offset in record.offsets:
            if offset > len(self._members):
                wrong.append(f"TICKETS_DATABASES does not list the database of offset {offset}, which is in use")
        for server in self._probe.servers():
            if server.said is UNREADABLE:
                wrong.append(f"the ticket server {server.name} has a heartbeat that cannot be read: restart it")
            elif server.said.increment not in {None, self._increment}:
                wrong.append(f"the ticket server {server.name} has TICKETS_INCREMENT set: unset it, and restart it")
        verdicts = self._probe.decide(replace(record, increment=self._increment)).verdicts
        for offset in set(self._wanted).difference(record.offsets):
            if verdicts[offset].standing is Standing.QUARANTINED:
                wrong.append(f"{self._members[offset - 1].name} {verdicts[offset].reason}")
        if wrong:
            raise GrowthRefused("; ".join(wrong))
        reasons = self._unusable()
        for member in self._members:
            if member.offset in record.offsets and member.life is None:
                reasons.append(f"{member.name} is not in sight: {member.reason}")
        if not reasons and not self._levels.is_level:
            reasons.append("the high-water marks are being compared")
        return reasons

    # --- the steps ---------------------------------------------------------------------------------------------------

    async def _fence(self, changing: Record) -> list[Fenced]:
        """Write the record `changing` on every database, offset 1 first; return them with their lives."""
        fenced: list[Fenced] = []
        for member in self._members:
            self._say("stopping the draws", len(fenced), len(self._members))
            row, life = member.row, member.found
            if row is None:
                raise GrowthRefused(f"{member.name} cannot be used: {member.reason}")
            fenced.append((member, life, row._replace(stamp=changing.stamp, text=changing.dump())))
            await self._write(member, life, row, fenced[-1][2])
        return fenced

    async def _write(self, member: Member, life: str, old: RingRow, new: RingRow) -> None:
        """Write a ring row, unless a ticket server has. Raises GrowthRefused where another row is there."""
        done = await member.database.write_ring(old, new, life)
        if not done and await member.database.read_ring(life) != new:
            raise GrowthRefused(f"somebody else changed the ring record of {member.name} meanwhile: run it again")

    async def _positions(self) -> dict[str, int]:
        """Return the largest position of each sequence.

        To read those of thousands of tables takes seconds, so it comes before the draws are stopped: every id that
        this ring has issued is at or below a limit. Only what others drew, or wrote by hand, may be above.
        """
        self._say("reading the positions", 0, 1)
        found = await asyncio.gather(*(each.database.sequences(None, each.found) for each in self._members))
        return _largest(
            (name, each.position) for counters in found for name, each in counters.items() if isinstance(each, Counter)
        )

    async def _keep_floors(self, fenced: Sequence[Fenced], positions: Mapping[str, int]) -> None:
        """Keep the largest limit, floor and position of each sequence, and of each worker number, as its floor."""
        self._say("reading the high-water marks", 0, 1)
        found = await asyncio.gather(
            *(all_rows(member, life, book) for book in (Book.FLOORS, Book.MARKS) for member, life, _ in fenced)
        )
        highs = [(name.partition("/")[0], note.high) for rows in found for name, note in rows.items()]
        floors = _largest([*positions.items(), *highs])
        self._say("writing the floors", 0, 1)
        taken = await asyncio.gather(
            *(raise_rows(member, life, Book.FLOORS, floors, stamp=row.stamp) for member, life, row in fenced)
        )
        for (member, _, _), is_taken in zip(fenced, taken, strict=True):
            if not is_taken:
                raise GrowthRefused(f"{member.name} did not take the floors: run it again")

    async def _decide(self, changing: Record, fenced: Sequence[Fenced]) -> None:
        """Write the record `drawn`, on offset 1 first, if every database still is as it was fenced.

        That write decides. Where another one fails, the ticket servers do it.
        """
        number = changing.number + 1
        bodies = tuple(
            changing.at(member.offset) or Body(member.offset, row.body, number)
            for member, _, row in fenced
            if member.offset <= self._increment
        )
        decided = changing.next(number, state=State.DRAWN, increment=self._increment, bodies=bodies)
        for member, life, row in fenced:
            if await member.database.read_ring(life) != row:
                raise GrowthRefused(f"{member.name} was changed meanwhile: run it again")
        for member, life, row in fenced:
            self._say("starting the draws", member.offset - 1, len(fenced))
            place = member.offset if decided.at(member.offset) is not None else row.offset
            try:
                await self._write(member, life, row, RingRow(row.body, place, decided.stamp, decided.dump()))
            except (DatabaseError, GrowthRefused) as error:
                if member.offset == 1:
                    raise
                log.warning("%s gets the ring's record from the ticket servers: %s", member.name, error)
        self._say("the ring is changed", 1, 1)


def _largest(values: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the largest value of each name."""
    found: dict[str, int] = {}
    for name, value in values:
        found[name] = max(value, found.get(name, 0))
    return found
