"""Growth: change the ring's increment, and which databases are in it, while ticket servers run (rule 10).

The record `changing` fences every database: from then on nobody draws a new limit, because marks name the number of the
record before. Then the largest limit, floor and position of each sequence becomes its floor, on every database. The
record `drawn` with the new increment, written on the database of offset 1, decides. Until then anybody may go back, and
after it anybody finishes. The lanes go above the floors when somebody asks, by rule 4.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from app.databases.database import Database
from app.databases.record import Body, Record, State
from app.databases.session import Book, Counter, Note, RingRow, Write
from app.errors import DatabaseError, DatabaseFailed, TicketError
from app.tickets.everywhere import all_rows, packets
from app.tickets.floors import Floors
from app.tickets.level import Levels
from app.tickets.probe import Probe
from app.tickets.sight import Member, Sight
from app.tickets.situation import Standing

log = logging.getLogger(__name__)

Say = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

READY = 60.0
"""Seconds for which `grow` waits until everything that it needs is there."""


class GrowthRefused(TicketError, code="growing"):
    """The ring cannot be changed now."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """A database that has the record `changing`: the life in which it took it, and its ring row since."""

    member: Member
    life: str
    row: RingRow


class Growth:
    """One run of `ticketd grow`.

    databases: the longer of the two lists. increment: the new one. name: of this process, in heartbeats. interval,
    timeout: of the probe and of the databases, in seconds. clock: seconds by a clock that counts suspension. say: shows
    how far it is.
    """

    def __init__(
        self,
        databases: Sequence[Database],
        increment: int,
        name: str,
        *,
        interval: float,
        timeout: float,
        clock: Callable[[], float],
        say: Say = lambda _what, _done, _all: None,
    ) -> None:
        self._increment, self._say = increment, say
        members = [Member(offset, database) for offset, database in enumerate(databases, 1)]
        self._sight = Sight(members, interval, timeout, clock)
        self._levels = Levels(self._sight)
        self._probe = Probe(
            self._sight, name, increment=None, levels=self._levels, floors=Floors(self._sight), grow=True
        )

    async def run(self) -> None:
        """Change the ring. Raises GrowthRefused, and DatabaseError where a database failed: run it again then."""
        async with _Running(self._sight, self._probe, self._levels):
            await self._ready()
            record = self._record()
            if record.drawn and (record.increment, record.offsets) == (self._increment, self._wanted()):
                return
            await self._make_sequences()
            fenced = await self._fence()
            try:
                await self._keep_floors(fenced)
                decided = await self._decide(fenced)
            except BaseException:
                await self._go_back(fenced[0])
                raise
            await self._finish(fenced, decided)

    async def status(self) -> list[str]:
        """Return what is left of a change, a line each; none where nothing is under way. Raises GrowthRefused."""
        async with _Running(self._sight, self._probe, self._levels):
            await self._until(self._unknown)
            record, left = self._record(), []
            if record.state is State.CHANGING:
                left.append("a change of the ring is not decided: run `ticketd grow` again, or leave it to the servers")
            for member in self._sight.members:
                row, _ = self._probe.found(member)
                if row is None:
                    left.append(f"{member.name} cannot be asked: {member.reason}")
                elif member.offset in record.offsets and row.stamp != record.stamp:
                    left.append(f"{member.name} has not taken the ring's record yet: {member.reason}")
            return left

    # --- what has to be there ----------------------------------------------------------------------------------------

    def _record(self) -> Record:
        record = self._sight.record
        if record is None:
            raise GrowthRefused("the ring is not known any more: run it again")
        return record

    def _wanted(self) -> tuple[int, ...]:
        """The offsets of the new ring that are in use."""
        return tuple(member.offset for member in self._sight.members if member.offset <= self._increment)

    async def _ready(self) -> None:
        """Wait until all that the change needs is there. Raises GrowthRefused, which says what is missing."""
        await self._until(self._unknown)
        record = self._record()
        leaving = [offset for offset in record.offsets if offset > self._increment]
        if len(leaving) > 1:
            raise GrowthRefused(f"only the last database can leave the ring, and {len(leaving)} have larger offsets")
        if missing := [offset for offset in record.offsets if offset > len(self._sight.members)]:
            raise GrowthRefused(f"TICKETS_DATABASES does not list the database of offset {missing[0]}, which is in use")
        if wrong := [*self._set_otherwise(), *self._misplaced()]:
            raise GrowthRefused("; ".join(wrong))
        await self._until(self._lacking)

    async def _until(self, lacking: Callable[[], list[str]]) -> None:
        deadline = self._sight.clock() + READY
        while reasons := lacking():
            self._say(f"waiting: {reasons[0]}", 0, 1)
            if self._sight.clock() > deadline:
                raise GrowthRefused("; ".join(reasons))
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._sight.moved()

    def _unknown(self) -> list[str]:
        """Why the ring is not known yet: a first look at every database has to end."""
        if any(member.looked == float("-inf") for member in self._sight.members):
            return ["the first looks at the ticket databases have not ended"]
        return [] if self._sight.record else self._unreachable() or ["no ring is formed yet: start the ticket servers"]

    def _unreachable(self) -> list[str]:
        found = [(member, self._probe.found(member)[0]) for member in self._sight.members]
        return [f"{member.name} cannot be used: {member.reason}" for member, row in found if row is None]

    def _lacking(self) -> list[str]:
        """What is missing now, a line each."""
        record, reasons = self._record(), self._unreachable()
        for member in self._sight.members:
            if member.offset in record.offsets and member.life is None:
                reasons.append(f"{member.name} is not in sight: {member.reason}")
        reasons += self._set_otherwise()
        if not reasons and not self._levels.is_level:
            reasons.append("the high-water marks are being compared")
        return reasons

    def _set_otherwise(self) -> list[str]:
        """The ticket servers that would draw nothing in the new ring, or whose heartbeats cannot be read."""
        found = []
        for server in self._probe.servers():
            if server.said is None:
                found.append(f"the ticket server {server.name} has a heartbeat that cannot be read: restart it")
            elif server.said.increment not in {None, self._increment}:
                found.append(f"the ticket server {server.name} has TICKETS_INCREMENT set: unset it, and restart it")
        return found

    def _misplaced(self) -> list[str]:
        """The new databases that hold the data of another ring, of another entry, or of another place in the list."""
        offsets, verdicts = self._record().offsets, self._probe.agreement_under(self._increment).verdicts
        return [
            f"{member.name} {verdicts[member.offset].reason}"
            for member in self._sight.members
            if member.offset in self._wanted()
            and member.offset not in offsets
            and verdicts[member.offset].standing is Standing.QUARANTINED
        ]

    # --- the steps ---------------------------------------------------------------------------------------------------

    async def _make_sequences(self) -> None:
        """Make on the new databases what the others have, so that no request waits for that later."""
        record, members = self._record(), self._sight.members
        old = [member for member in members if member.offset in record.offsets]
        rows: dict[str, Note] = {}
        counters: dict[str, Counter] = {}
        for member in reversed(old):  # the definition of the lowest offset stands
            life = self._life(member)
            rows |= await all_rows(member, life, Book.DEFINITIONS)
            found = await member.database.sequences(None, life)
            counters |= {name: counter for name, counter in found.items() if isinstance(counter, Counter)}
        new = [member for member in members if member.offset in self._wanted() and member not in old]
        for place, member in enumerate(new):
            row, life = self._probe.found(member)
            writes = [Write(Book.DEFINITIONS, name, None, note) for name, note in rows.items()]
            for packet in packets(writes):
                await member.database.write(packet, row.stamp if row is not None else "", life)
            there = await member.database.sequences(None, life)
            for done, (name, counter) in enumerate(counters.items()):
                self._say("making the sequences", place * len(counters) + done, len(new) * len(counters))
                if name not in there:
                    await member.database.make(counter.name, counter.bits, 0, life)

    def _life(self, member: Member) -> str:
        if member.life is None:
            raise DatabaseFailed(f"{member.name} is not in sight")
        return member.life

    async def _fence(self) -> list[Fenced]:
        """Write the record `changing` on every database, offset 1 first; return them with their lives."""
        changing = self._record().next(self._probe.agreement_under(self._increment).number + 1, state=State.CHANGING)
        fenced: list[Fenced] = []
        for member in self._sight.members:
            self._say("stopping the draws", len(fenced), len(self._sight.members))
            row, life = self._probe.found(member)
            if row is None:
                raise GrowthRefused(f"{member.name} cannot be used: {member.reason}")
            wanted = row._replace(stamp=changing.stamp, text=changing.dump())
            await self._write(member, life, row, wanted)
            fenced.append(Fenced(member, life, wanted))
        return fenced

    async def _write(self, member: Member, life: str, old: RingRow, new: RingRow) -> None:
        """Write a ring row, unless a ticket server has. Raises GrowthRefused where another row is there."""
        done = await member.database.write_ring(old, new, life)
        if not done and await member.database.read_ring(life) != new:
            raise GrowthRefused(f"somebody else changed the ring record of {member.name} meanwhile: run it again")

    async def _keep_floors(self, fenced: Sequence[Fenced]) -> None:
        """Keep the largest limit, floor and position of each sequence, and of each worker number, as its floor."""
        floors: dict[str, int] = {}
        kept: list[dict[str, Note]] = []
        for done, each in enumerate(fenced):
            self._say("reading the high-water marks", done, len(fenced))
            database, life = each.member.database, each.life
            kept.append(await all_rows(each.member, life, Book.FLOORS))
            found = [(name, note.high) for name, note in kept[-1].items()]
            for name, note in (await all_rows(each.member, life, Book.MARKS)).items():
                found.append((name.rpartition("/")[0], note.high))
            for name, counter in (await database.sequences(None, life)).items():
                found += [(name, counter.position)] if isinstance(counter, Counter) else []
            for name, high in found:
                floors[name] = max(high, floors.get(name, 0))
        for done, (each, there) in enumerate(zip(fenced, kept, strict=True)):
            self._say("writing the floors", done, len(fenced))
            writes = [
                Write(Book.FLOORS, name, there.get(name), Note(high))
                for name, high in floors.items()
                if high > (there[name].high if name in there else 0)
            ]
            for packet in packets(writes):
                if not all(await each.member.database.write(packet, each.row.stamp, each.life)):
                    raise GrowthRefused(f"{each.member.name} did not take the floors: run it again")

    async def _decide(self, fenced: Sequence[Fenced]) -> Record:
        """Write the record `drawn` on the database of offset 1, if every database still is as it was fenced."""
        changing = Record.load(fenced[0].row.text)
        number = changing.number + 1
        bodies = [body for body in changing.bodies if body.offset <= self._increment]
        bodies += [
            Body(each.member.offset, each.row.body, number)
            for each in fenced
            if changing.at(each.member.offset) is None and each.member.offset <= self._increment
        ]
        ordered = tuple(sorted(bodies))
        decided = changing.next(number, state=State.DRAWN, increment=self._increment, bodies=ordered)
        for each in fenced:
            if await each.member.database.read_ring(each.life) != each.row:
                raise GrowthRefused(f"{each.member.name} was changed meanwhile: run it again")
        await self._write_decided(fenced[0], decided)
        return decided

    async def _write_decided(self, each: Fenced, decided: Record) -> None:
        member, offset = each.member, each.member.offset
        place = offset if decided.at(offset) is not None else each.row.offset
        wanted = RingRow(each.row.body, place, decided.stamp, decided.dump())
        await self._write(member, each.life, each.row, wanted)

    async def _go_back(self, first: Fenced) -> None:
        """Take an undecided change back; the ticket servers do it otherwise. A decided one stays."""
        changing = Record.load(first.row.text)
        back = changing.next(changing.number + 1, state=State.DRAWN)
        with suppress(DatabaseError, GrowthRefused):
            await self._write_decided(first, back)

    async def _finish(self, fenced: Sequence[Fenced], decided: Record) -> None:
        """Write the record on the other databases. Where that fails, the ticket servers do it."""
        for done, each in enumerate(fenced[1:], 1):
            self._say("starting the draws", done, len(fenced))
            try:
                await self._write_decided(each, decided)
            except (DatabaseError, GrowthRefused) as error:
                log.warning("%s gets the ring's record from the ticket servers: %s", each.member.name, error)
        self._say("the ring is changed", 1, 1)


class _Running:
    """Runs the probe and the levels meanwhile."""

    def __init__(self, sight: Sight, probe: Probe, levels: Levels) -> None:
        self._sight, self._probe, self._levels = sight, probe, levels
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(part.run()) for part in (self._probe, self._levels)]

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._probe.close()
        await asyncio.gather(*(member.database.close() for member in self._sight.members))
