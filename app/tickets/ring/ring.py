"""The ring: the ticket databases in turn order, and the state of each. No I/O; the clock is passed in.

Every ticket takes a turn. So `take_turn` works out the lanes that can be asked once for each change of any state
(`generation`), not once for each request.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from app.common.errors import TicketDatabaseError
from app.common.log import event
from app.databases.protocol import ProbeResult, RingRecord, TicketDatabase, Use, place_named
from app.tickets.ring.failures import Asked, Effect, effect_of

log = logging.getLogger(__name__)

NEVER = "not looked at yet"


class Status(StrEnum):
    """The states of a ticket database."""

    UP = "up"
    DOWN = "down"
    QUARANTINED = "quarantined"


UP = Status.UP
"""An alias: looking up the member of an enum takes too long on the way of a ticket."""


@dataclass(eq=False)
class Member:
    """One ticket database of the ring and what the server knows of it.

    Attributes:
        since: when the status changed last, in seconds since 1970.
        last_error: why it was not up the last time, in this server's words.
        probe_result: what the last probe found, completed by what the server has recorded there since.
        incarnation: the database's incarnation when it came up last.
        settled: false from the moment it goes down until the next probe has ended. Requests that find no database
            wait for that.
        residue_of: the sequence in which it gave an id of a wrong residue.
        marks_error: why it cannot keep marks for the others, None where it can. It draws all the same.
        sure_until: how long what the last look said of it counts, in seconds on a clock that goes on while this process
            stands still; see `Ring.unsure`.
        folds_names: whether it folds table names to lower case, None before the first probe.
        failovers: how many draws failed over to the next database.
        quarantines: how often it was quarantined.
        wake: set when it has to be probed at once.
    """

    database: TicketDatabase
    since: float
    status: Status = Status.DOWN
    last_error: str | None = NEVER
    probe_result: ProbeResult | None = None
    incarnation: str = ""
    settled: bool = False
    residue_of: str | None = None
    marks_error: str | None = None
    sure_until: float = -math.inf
    folds_names: bool | None = None
    failovers: int = 0
    quarantines: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def name(self) -> str:
        return self.database.name

    @property
    def up(self) -> bool:
        return self.status is UP

    @property
    def is_witness(self) -> bool:
        """Whether it is up and keeps marks for the others."""
        return self.status is UP and self.marks_error is None


class TurnTaker(Protocol):
    """The part of a lane that the ring uses."""

    @property
    def member(self) -> Member: ...

    @property
    def can_be_asked(self) -> bool: ...


L = TypeVar("L", bound=TurnTaker)


@dataclass(slots=True, eq=False)
class Rotation(Generic[L]):
    """The lanes of one sequence in offset order, and the lane whose turn is next."""

    lanes: tuple[L, ...]
    turn: int = 0
    generation: int = -1
    orders: tuple[tuple[L, ...], ...] = ()


class Ring:
    """The ticket databases in offset order."""

    def __init__(self, databases: Sequence[TicketDatabase], now: Callable[[], float]) -> None:
        self._now = now
        self.members = tuple(Member(database, since=now()) for database in databases)
        self.record: RingRecord | None = None
        self.note: str | None = None
        """Facts about the ring that an operator should know and need not act on."""
        self.incomplete: dict[tuple[Member, Member], int] = {}
        """Pairs of a witness and a database whose live counters the witness has not been told yet, so that the
        witness's marks about that database are incomplete. The value is the generation in which that began."""
        self.taking_in: dict[Member, str] = {}
        """Databases whose bodies of data this server is about to use, and the words of these bodies."""
        self.is_changing = False
        """Whether this server is agreeing on a ring at the moment, and may be writing ring records."""
        self.generation = 0
        self._changed = asyncio.Event()
        self._followers: list[Callable[[Member], None]] = []

    @property
    def increment(self) -> int:
        """The increment that the databases are drawn with: of the ring record, once that is known."""
        return self.members[0].database.increment

    def __repr__(self) -> str:
        return "<Ring " + ", ".join(f"{m.name} {m.status}" for m in self.members) + ">"

    def take_turn(self, rotation: Rotation[L]) -> tuple[L, ...]:
        """The lanes that can be asked, beginning with the lane whose turn it is; empty if none can be asked."""
        if rotation.generation != self.generation:
            lanes = tuple(lane for lane in rotation.lanes if lane.member.status is UP and lane.can_be_asked)
            rotation.orders = tuple(lanes[i:] + lanes[:i] for i in range(len(lanes)))
            rotation.generation = self.generation
        orders = rotation.orders
        if not orders:
            return ()
        rotation.turn = turn = (rotation.turn + 1) % len(orders)
        return orders[turn - 1]

    def witnesses(self, member: Member) -> list[Member]:
        """The witnesses of `member`: every other database that is up and keeps marks."""
        return [m for m in self.members if m is not member and m.is_witness]

    def has_witness(self, member: Member) -> bool:
        """Whether `member` has any witness."""
        for other in self.members:  # noqa: SIM110  (`any` takes twice as long, and every draw calls this)
            if other is not member and other.status is UP and other.marks_error is None:
                return True
        return False

    def not_asked(self, member: Member, asked: Container[Member]) -> str:
        """The databases beside `member` that may keep marks about it and are not among `asked`. Empty if there is none.

        Returns their names, or their offsets if the server does not list them. A database that is listed counts even
        if the ring record lacks its offset: the record may have been made while that database was away.
        """
        names = {other.database.offset: other.name for other in self.members}
        offsets = {*names, *(self.record.offsets if self.record is not None else ())}
        held = {other.database.offset for other in self.members if other in asked} | {member.database.offset}
        return ", ".join(names.get(offset, f"offset {offset}") for offset in sorted(offsets - held))

    def unsure(self, member: Member, asked: Container[Member], now: float) -> str:
        """The other databases that are not among those asked, and may have heard by now that another body of data
        replaced that of `member`: their names. Empty where there is none.

        A database that has been looked at keeps an announcement of this server, beside which no other body is taken
        in, or could not be reached. When this process has stood still, neither is true any more.
        """
        others = (other for other in self.members if other is not member and other not in asked)
        return ", ".join(other.name for other in others if now > other.sure_until)

    def keeps_no_marks(self, member: Member, reason: str) -> None:
        """From now on the database is no witness; it goes on drawing."""
        kept, member.marks_error = member.marks_error is None, reason
        if kept and member.up:
            self._tell(member)
            member.wake.set()

    def keeps_marks_again(self, member: Member) -> None:
        """From now on the database is a witness again."""
        member.marks_error = None
        self.generation += 1
        self._tell(member)

    @property
    def number(self) -> int:
        """The number of the ring that this server draws in; 0 before it knows a ring."""
        return 0 if self.record is None else self.record.number

    def uses(self, server: str) -> tuple[Use, ...]:
        """The bodies of data that this server uses or is about to use. `server`: its host name and port."""
        words = {
            member: member.probe_result.record.body
            for member in self.members
            if member.up and member.probe_result is not None and member.probe_result.record is not None
        } | self.taking_in
        return tuple(
            Use(member.database.offset, words[member], place_named(member.name), place_named(server))
            for member in self.members
            if member in words
        )

    @property
    def folds_names(self) -> bool:
        """Whether the databases fold the names of sequences to lower case. Unprobed databases do not count."""
        known = {member.folds_names for member in self.members} - {None}
        return known == {True}

    def folds_alone(self, member: Member) -> str:
        """Why a database that folds names may not be in this ring, in words; empty if it may."""
        plain = next((each.name for each in self.members if each.folds_names is False), "")
        if not (member.folds_names and plain):
            return ""
        return (
            f"folds table names to lower case (lower_case_table_names is not 0), and {plain} does not; "
            "all ticket databases have to do the same"
        )

    @property
    def any_up(self) -> bool:
        return any(member.up for member in self.members)

    def lanes_changed(self) -> None:
        """Note that a lane has begun or ceased to take requests."""
        self.generation += 1
        self._wake_waiters()

    def mark_up(self, member: Member, result: ProbeResult) -> None:
        member.probe_result, member.incarnation, member.residue_of = result, result.incarnation, None
        if member.last_error == NEVER:
            member.last_error = None
        self._set(member, Status.UP, None)

    def failed(
        self,
        member: Member,
        error: TicketDatabaseError,
        asked: Asked,
        number: int | None = None,
        *,
        drawn_in: str | None = None,
    ) -> Effect:
        """Carry out what `failures` says about this error of a database that was asked for `asked`. Returns the effect.

        `number`: the ring number that the server sent along, None if it sent none. `drawn_in`: the sequence, if a draw
        gave an id of a wrong residue.
        """
        effect = effect_of(error, asked)
        reason = f"{error} (sequence {drawn_in})" if drawn_in else str(error)
        if effect is Effect.DOWN:
            self.mark_down(member, reason)
        elif effect is Effect.UNREACHABLE:
            self.unreachable(member, reason)
        elif effect is Effect.QUARANTINED:
            self.quarantine(member, reason, residue_of=drawn_in)
        elif effect is Effect.KEEPS_NO_MARKS:
            self.keeps_no_marks(member, reason)
        elif effect is Effect.ALL_DOWN:
            self.records_another_ring(self.number if number is None else number, reason)
        return effect

    def mark_down(self, member: Member, reason: str) -> None:
        """Stop drawing from the database and probe it at once. A quarantine stands."""
        if member.up:
            member.settled = False
            member.wake.set()
        if member.status is not Status.QUARANTINED:
            self._set(member, Status.DOWN, reason)

    def records_another_ring(self, number: int, reason: str) -> None:
        """Take every database out until a probe has looked at each: one of them refused the ring of this number.

        With that database alone taken out, the server would draw from the others unprotected, perhaps from a body of
        data that has been replaced. If this server has changed the ring since, or is changing it, the databases are
        well and nothing happens.
        """
        if number == self.number and not self.is_changing:
            for member in self.members:
                self.mark_down(member, reason)

    def quarantine(self, member: Member, reason: str, *, residue_of: str | None = None) -> None:
        """Stop drawing from the database until an operator has put it right.

        `residue_of`: the sequence in which it gave an id of a wrong residue.
        """
        member.residue_of = residue_of or member.residue_of
        if member.status is not Status.QUARANTINED:
            member.quarantines += 1
        self._set(member, Status.QUARANTINED, reason)

    def unreachable(self, member: Member, reason: str) -> None:
        """A probe failed. The database is down, unless it is quarantined for an id of a wrong residue: only a draw that
        gives a right one ends that."""
        if member.residue_of is None:
            self._set(member, Status.DOWN, reason)

    def settle(self, member: Member) -> None:
        """A probe has ended, so requests that wait for it can go on."""
        if not member.settled:
            member.settled = True
            self._wake_waiters()

    async def wait_for_change(self, seconds: float, *, expected: bool = False) -> bool:
        """Wait until a state changes, at most `seconds`. Returns whether one did.

        Returns false at once if no probe is due, unless `expected`: then a lane is about to change.
        """
        if not expected and all(member.settled or member.up for member in self.members):
            return False
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def wait_for_first_look(self, seconds: float) -> None:
        """Wait until a database is up or all have been probed, at most `seconds`: a server listens before it probes."""
        until = asyncio.get_running_loop().time() + seconds
        while not self.any_up and any(member.last_error == NEVER for member in self.members):
            if not await self.wait_for_change(until - asyncio.get_running_loop().time()):
                return

    def _set(self, member: Member, status: Status, reason: str | None) -> None:
        changed = member.status is not status or (reason is not None and member.last_error != reason)
        if reason is not None:
            member.last_error = reason  # stays when the database comes up, so that operators see it
        if member.status is not status:
            member.status, member.since = status, self._now()
        if changed:
            self.generation += 1
            self._tell(member)
            self._wake_waiters()

    def follow(self, follower: Callable[[Member], None]) -> None:
        """Call `follower` at every change of a database's state, before anything else happens."""
        self._followers.append(follower)

    def _tell(self, member: Member) -> None:
        level = logging.INFO if member.up else logging.WARNING
        reason = member.marks_error if member.up else member.last_error
        fields = {"reason": reason} if reason else {}
        event(log, level, f"database {member.status}", None, name=member.name, offset=member.database.offset, **fields)
        for follower in self._followers:
            follower(member)

    def _wake_waiters(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
