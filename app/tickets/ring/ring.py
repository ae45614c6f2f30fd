"""The ring: the ticket databases in turn order, and the state of each. No I/O; the clock is passed in.

`take_turn` is on the way of every ticket, so the lanes that can be asked are worked out once for each change of any
state (`generation`), not once for each request.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from app.common.log import event
from app.databases.protocol import ProbeResult, RingRecord, TicketDatabase, Use, place_named

log = logging.getLogger(__name__)

NEVER = "not looked at yet"


class Status(StrEnum):
    """What a ticket database can be."""

    UP = "up"
    DOWN = "down"
    QUARANTINED = "quarantined"


UP = Status.UP
"""By itself: on the way of a ticket it takes too long to look a member of an enum up."""


@dataclass(eq=False)
class Member:
    """One ticket database of the ring and what is known of it.

    `since`: seconds since the epoch of the last change of status. `last_error`: in this server's words. `incarnation`:
    of the last admission. `settled`: false from the moment it goes down until the first probe after that has
    concluded; requests that find no database wait for that. `residue_of`: the sequence whose id had a wrong residue.
    `marks_trouble`: why it cannot keep marks for the others, though it draws. `folds_names`: whether it folds table
    names to lower case, None before the first probe that said so.
    """

    database: TicketDatabase
    since: float
    status: Status = Status.DOWN
    last_error: str | None = NEVER
    probe_result: ProbeResult | None = None
    incarnation: str = ""
    settled: bool = False
    residue_of: str | None = None
    marks_trouble: str | None = None
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


class TurnTaker(Protocol):
    """A lane, as far as the ring looks at it."""

    @property
    def member(self) -> Member: ...

    @property
    def can_be_asked(self) -> bool: ...


L = TypeVar("L", bound=TurnTaker)


@dataclass(slots=True, eq=False)
class Rotation(Generic[L]):
    """One sequence's place in the ring: its lanes in offset order, and whose turn is next."""

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
        """What an operator should know of the ring, and nothing has to be done about."""
        self.unaccounted: dict[tuple[Member, Member], int] = {}
        """Pairs of which the first may not keep marks for every sequence of the second yet, by the generation that saw
        one of them come up, or keep marks again."""
        self.is_changing = False
        """Whether this server itself is agreeing on another ring now, and writes its record."""
        self.generation = 0
        self._changed = asyncio.Event()
        self._followers: list[Callable[[Member], None]] = []

    def __repr__(self) -> str:
        return "<Ring " + ", ".join(f"{m.name} {m.status}" for m in self.members) + ">"

    def take_turn(self, rotation: Rotation[L]) -> tuple[L, ...]:
        """The lanes that can be asked, the one whose turn it is first; empty if there is none."""
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
        """Every other database that is up and keeps marks for `member`."""
        return [m for m in self.members if m is not member and m.status is UP and m.marks_trouble is None]

    def has_witness(self, member: Member) -> bool:
        """Whether any other database is up and keeps marks for `member`."""
        for other in self.members:  # noqa: SIM110  (`any` takes twice as long, and every draw asks)
            if other is not member and other.status is UP and other.marks_trouble is None:
                return True
        return False

    def absent_for(self, member: Member, asked: Container[Member]) -> str:
        """The other databases that may hold marks about `member` and are not among those asked: their names, or their
        offsets where this server does not know them. Empty where there is none.

        Those that are listed and not recorded count, too: the record may have been made while they were away.
        """
        names = {other.database.offset: other.name for other in self.members}
        offsets = {*names, *(self.record.offsets if self.record is not None else ())}
        held = {other.database.offset for other in self.members if other in asked} | {member.database.offset}
        return ", ".join(names.get(offset, f"offset {offset}") for offset in sorted(offsets - held))

    def keeps_no_marks(self, member: Member, reason: str) -> None:
        """It draws, but cannot keep marks: the others are protected by the rest of the ring, if there is any."""
        if member.marks_trouble is None:
            member.marks_trouble = reason
            self._tell(member)
            member.wake.set()

    def keeps_marks_again(self, member: Member) -> None:
        """It draws, and keeps marks as well from now on. What was found of the others before does not count for it."""
        member.marks_trouble = None
        self.generation += 1
        self._tell(member)

    @property
    def number(self) -> int:
        """The number of the ring that this server draws in; 0 before it knows it."""
        return 0 if self.record is None else self.record.number

    def uses(self, server: str) -> tuple[Use, ...]:
        """The bodies of data that this server uses, announced under its host name and port."""
        return tuple(
            Use(member.database.offset, member.probe_result.record.body, place_named(member.name), place_named(server))
            for member in self.members
            if member.up and member.probe_result is not None and member.probe_result.record is not None
        )

    @property
    def folds_names(self) -> bool:
        """Whether the databases fold sequences' names to lower case: all of which it is known."""
        known = {member.folds_names for member in self.members} - {None}
        return known == {True}

    def folds_alone(self, member: Member) -> str:
        """Why a database that folds names may not be in this ring, in words; empty where it may."""
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
        """A lane can be asked now that could not, or the other way round."""
        self.generation += 1
        self._wake_waiters()

    def mark_up(self, member: Member, result: ProbeResult) -> None:
        member.probe_result, member.incarnation, member.residue_of = result, result.incarnation, None
        if member.last_error == NEVER:
            member.last_error = None
        self._set(member, Status.UP, None)

    def mark_down(self, member: Member, reason: str) -> None:
        """Take it out of the ring and have it probed at once."""
        if member.up:
            member.settled = False
            member.wake.set()
        if member.status is not Status.QUARANTINED:
            self._set(member, Status.DOWN, reason)

    def records_another_ring(self, number: int, reason: str) -> None:
        """A database has refused the ring of this number: nothing is drawn until all of them have been looked at anew.

        With that database alone taken out, nobody would keep marks for the others, and they would be drawn from
        unprotected: among them maybe a body of data that another one has replaced. Not where the server itself has
        changed the ring since, or is changing it: then the databases are well.
        """
        if number == self.number and not self.is_changing:
            for member in self.members:
                self.mark_down(member, reason)

    def quarantine(self, member: Member, reason: str, *, residue_of: str | None = None) -> None:
        """Take it out until what is wrong has been put right; `residue_of` names the sequence a bad id was drawn in."""
        member.residue_of = residue_of or member.residue_of
        if member.status is not Status.QUARANTINED:
            member.quarantines += 1
        self._set(member, Status.QUARANTINED, reason)

    def unreachable(self, member: Member, reason: str) -> None:
        """A probe got no answer: down, unless it is in quarantine for a bad id, which ends by a right draw only."""
        if member.residue_of is None:
            self._set(member, Status.DOWN, reason)

    def settle(self, member: Member) -> None:
        """A probe has concluded: whoever waits for it can go on."""
        if not member.settled:
            member.settled = True
            self._wake_waiters()

    async def wait_for_change(self, seconds: float, *, expected: bool = False) -> bool:
        """Wait until a state changes, or so many seconds; false if no database is about to be looked at.

        `expected`: a change of a lane is to be expected, whatever the databases' states.
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
        """Wait until a database is up or all have been looked at, at most so long: a server listens before it looks."""
        until = asyncio.get_running_loop().time() + seconds
        while not self.any_up and any(member.last_error == NEVER for member in self.members):
            if not await self.wait_for_change(until - asyncio.get_running_loop().time()):
                return

    def _set(self, member: Member, status: Status, reason: str | None) -> None:
        changed = member.status is not status or (reason is not None and member.last_error != reason)
        if reason is not None:
            member.last_error = reason  # it stays when the database comes up: operators have to see it
        if member.status is not status:
            member.status, member.since = status, self._now()
        if changed:
            self.generation += 1
            self._tell(member)
            self._wake_waiters()

    def follow(self, follower: Callable[[Member], None]) -> None:
        """Have `follower` told of every change of a database's state, at once."""
        self._followers.append(follower)

    def _tell(self, member: Member) -> None:
        level = logging.INFO if member.up else logging.WARNING
        reason = member.marks_trouble if member.up else member.last_error
        fields = {"reason": reason} if reason else {}
        event(log, level, f"database {member.status}", None, name=member.name, offset=member.database.offset, **fields)
        for follower in self._followers:
            follower(member)

    def _wake_waiters(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
