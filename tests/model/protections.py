"""The protections of the rules, each as a patch that takes it out: without it the model has to find a duplicate.

The names are those of the explored state machines: each stands for one condition of the rules 1 to 7. Where the ticket
servers have no single place for a condition, the fake database stops asking for it.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from app.databases import life as lives
from app.databases.connections import Connections
from app.databases.database import Database
from app.databases.record import Record, State
from app.databases.session import Book, Mark, Marked, Note, Write
from app.tickets import agreement, everywhere, growth, lane, level, marks, opening, probe
from app.tickets.agreement import Agreement, Kind, Step
from app.tickets.everywhere import lives_in_sight
from app.tickets.lane import Lane
from app.tickets.level import make_level
from app.tickets.sight import Member, Sight, Status
from tests.fakes.session import FakeSession
from tests.model.network import Wire

Patches = list[Any]
TakeOut = Callable[[], Patches]
TAKE_OUT: dict[str, TakeOut] = {}
"""By name, what makes the patches that take a protection out."""


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Take protections out."""
    with ExitStack() as stack:
        for name in names:
            for patch in TAKE_OUT[name]():
                stack.enter_context(patch)
        yield


def protection(take_out: TakeOut) -> TakeOut:
    """Register what takes out the protection of this name."""
    TAKE_OUT[take_out.__name__] = take_out
    return take_out


def put(owner: Any, name: str, value: Any) -> Any:
    """Put this in place of what is there."""
    return mock.patch.object(owner, name, value)


# --- lanes and their rows ---------------------------------------------------------------------------------------------


def _is_own(session: FakeSession, name: str) -> bool:
    """Whether a row is about a lane of the database that keeps it."""
    return name.endswith(f"/{session.server.data.ring.offset}")


def _unconditional(own: bool) -> Patches:
    """Let an opening replace the rows that it did not read: its own ones, or those of the others."""
    write = FakeSession._write

    def patched(session: FakeSession, wanted: Write, stamp: str | None) -> bool:
        new, old = wanted.new, wanted.old
        opens = new is not None and new.tenure is not None and (old is None or old.tenure != new.tenure)
        if wanted.book is Book.MARKS and opens and _is_own(session, wanted.name) == own:
            wanted = wanted._replace(old=session._rows(Book.MARKS).get(wanted.name))
        return write(session, wanted, stamp)

    return [put(FakeSession, "_write", patched)]


@protection
def own() -> Patches:
    """The lane's own database keeps a row about it. Without, it shows the row of another database that is reached."""

    def rows(session: FakeSession, book: Book) -> dict[str, Note]:
        kept = session.server.data.notes[book]
        if book is not Book.MARKS:
            return kept
        assert isinstance(session, Wire)
        shown = {name: row for name, row in kept.items() if not _is_own(session, name)}
        for server in session.reached():
            if server.data.ring.offset != session.server.data.ring.offset:
                others = server.data.notes[Book.MARKS]
                return shown | {name: row for name, row in others.items() if _is_own(session, name)}
        return shown

    def put_row(session: FakeSession, book: Book, name: str, note: Note | None) -> None:
        kept = session.server.data.notes[book]
        if note is None:
            kept.pop(name, None)
        elif book is not Book.MARKS or not _is_own(session, name):
            kept[name] = note

    return [put(FakeSession, "_rows", rows), put(FakeSession, "_put", put_row)]


@protection
def life() -> Patches:
    """Marks, draws and all other calls only on connections of the life that they are meant for."""
    run, is_open = Connections.run, Lane._is_open

    async def any_life(self: Connections, call: Any, _life: str | None, seconds: Any = None, *items: Any) -> Any:
        return await run(self, call, None, seconds, *items)

    def open_in_any(self: Lane) -> bool:
        if self._opened is not None and self.member.life is not None:
            object.__setattr__(self._opened, "life", self.member.life)
        return is_open(self)

    return [
        put(Connections, "run", any_life),
        put(Lane, "_is_open", open_in_any),
        put(Database, "_found", lambda _database, _life: None),
    ]


@protection
def void() -> Patches:
    """A database that comes into sight ends all limits."""
    enter = Sight.enter

    def patched(sight: Sight, member: Member, word: str) -> None:
        generation = sight.generation
        enter(sight, member, word)
        sight.generation = generation

    return [put(Sight, "enter", patched)]


@protection
def all_marked() -> Patches:
    """A limit stands once every database in sight has the mark. Without, one beside the lane's own is enough."""
    mark_everywhere = marks.mark_everywhere
    marking: list[Member] = []

    async def patched(sight: Sight, member: Member, mark: Mark, era: int) -> marks.Outcome:
        marking[:] = [member]
        return await mark_everywhere(sight, member, mark, era)

    def two(sight: Sight) -> Mapping[Member, str]:
        found = lives_in_sight(sight)
        other = next((member for member in found if member not in marking), None)
        return {member: word for member, word in found.items() if member in marking or member is other}

    return [put(lane, "mark_everywhere", patched), put(marks, "lives_in_sight", two)]


def _full() -> Patches:
    make = level.Levels._level

    async def patched(self: level.Levels) -> bool:
        done = await make(self)
        for member in self._sight.in_sight:
            if done and self._sight.clock() >= member.came + level.SECOND_LEVEL:
                member.level = member.life or ""
        return done

    return [put(level.Levels, "_level", patched)]


# --- the ring ---------------------------------------------------------------------------------------------------------


@protection
def number_at_mark() -> Patches:
    """A database refuses a mark or an opening under another ring number. Without, under another tenure as well."""
    mark, write = FakeSession._mark, FakeSession._write

    def patched(session: FakeSession, wanted: Mark, _stamp: str) -> Any:
        row = session._rows(Book.MARKS).get(wanted.name)
        if row is not None and row.tenure is not None and not _is_own(session, wanted.name):
            wanted = wanted._replace(tenure=row.tenure)
        return mark(session, wanted, session.server.data.ring.stamp)

    any_number = put(FakeSession, "_write", lambda session, wanted, _stamp: write(session, wanted, None))
    return [put(FakeSession, "_mark", patched), any_number]


def _unhindered() -> Patches:
    """Take a body in although a database does not answer, and make level what answers."""
    decide, find_lives = Agreement._next_step, probe.Probe._lives

    def answering(self: probe.Probe, record: Record) -> dict[Member, str]:
        return {member: word for member, word in find_lives(self, record).items() if member.row is not None}

    return [
        put(Agreement, "_next_step", lambda self, record, _hindrance: decide(self, record, "")),
        put(probe.Probe, "_lives", answering),
    ]


@protection
def fence_first() -> Patches:
    """A body is made level after the others have the new record. Without, before that."""
    take = probe.Probe._take

    async def patched(self: probe.Probe, step: Step) -> bool:
        if step.kind is Kind.TAKE_IN:
            members = [self._sight.members[offset - 1] for offset in step.record.offsets]
            await make_level(self._sight, {member: member.found for member in members})
        return await take(self, replace(step, kind=Kind.BRING_UP))

    return [put(probe.Probe, "_take", patched)]


@protection
def body_last() -> Patches:
    """A body that is taken in gets the record after those that stay."""
    decide = Agreement._next_step

    def patched(self: Agreement, record: Record, hindrance: str) -> Step | None:
        step = decide(self, record, hindrance)
        if step is None or step.kind is not Kind.TAKE_IN:
            return step
        return replace(step, offset=next(body.offset for body in step.record.bodies if body.since > record.number))

    return [put(Agreement, "_next_step", patched)]


def _lanes_out() -> Patches:
    ask = everywhere.everywhere

    async def patched(sight: Sight, lives: Mapping[Member, str], call: Any) -> dict[Member, Any]:
        results = await ask(sight, lives, call)
        for member, result in results.items():
            if result is Marked.RING:
                sight.leave(member, Status.DOWN, "has another ring number")
        return results

    return [put(marks, "everywhere", patched), put(Sight, "refuse", lambda _sight: None)]


def _sure() -> Patches:
    opened = opening.Opened
    return [
        put(opening, "Opened", lambda *arguments: replace(opened(*arguments), sure=True)),
        put(opening._Found, "sure", property(lambda _found: True)),
    ]


def _memory() -> Patches:
    decide = probe.Probe.decide
    return [put(probe.Probe, "decide", lambda self, _seen: decide(self, None))]


def _forming() -> Patches:
    decide = Agreement._forming_step

    def patched(self: Agreement, increment: int) -> Step | None:
        step = decide(self, increment)
        return None if step is None else replace(step, record=replace(step.record, state=State.DRAWN))

    return [put(Agreement, "_forming_step", patched)]


def _floor_marks() -> Patches:
    read = everywhere.all_rows

    async def patched(member: Member, life: str, book: Book) -> dict[str, Note]:
        return {} if book is Book.MARKS else await read(member, life, book)

    return [put(growth, "all_rows", patched)]


SHORT: dict[str, TakeOut] = {
    # An opening replaces the lane's own row, or those of the others, only if it still is what was read.
    "own_cas": lambda: _unconditional(own=True),
    "cas": lambda: _unconditional(own=False),
    # A lane of another life or birth is not adopted.
    "life_in_tenure": lambda: [
        put(opening._Found, "is_of_this_life", property(lambda found: getattr(found.rows[found.own], "tenure", None)))
    ],
    # A lane that was opened without every database is unprotected, and is not kept once all are in sight.
    "sure": _sure,
    # A database that comes into sight is made level with the others.
    "levelled": lambda: [put(level, "make_level", mock.AsyncMock())],
    # A body that is taken in is made level before it gets the record.
    "body_levelled": lambda: [put(probe, "make_level", mock.AsyncMock())],
    # The second level is three seconds after the first, when every mark that began before has ended.
    "delay": lambda: [put(level, "SECOND_LEVEL", 0.0)],
    # The warning ends only with a level of all databases of the ring.
    "full": _full,
    # A database is not in sight while a live server's heartbeat names another life of it, or another body there.
    "beat": lambda: [put(Agreement, "_user_of_other_data", lambda *_: "")],
    # A body is taken in only while the databases at all other offsets in use answer.
    "all_answer": lambda: [put(Agreement, "_hindrance", lambda *_: ""), *_unhindered()],
    # A server finishes a taking in only while every database that stays answers, too.
    "finish_all": _unhindered,
    # A lane from before its body was taken in again is not adopted.
    "since": lambda: [put(lives, "_taken_in", lambda _ring: 0)],
    # Ids are issued only while the last looks are young.
    "looked": lambda: [put(Sight, "fresh_until", property(lambda _sight: math.inf, lambda _sight, _until: None))],
    # A mark that is refused for its ring number stops every lane until the server has looked.
    "lanes_out": _lanes_out,
    # A body is taken in only once the databases that stay have been in sight for ten seconds.
    "gate": lambda: [put(agreement, "IN_SIGHT", 0.0), put(agreement, "STILL", 0.0)],
    # A server never goes by a record lower than the highest that it has seen.
    "memory": _memory,
    # A ring is formed in two steps: `forming` on all databases before `drawn`.
    "forming": _forming,
    # Growth keeps what is known of each sequence as a floor on every database.
    "keep_floors": lambda: [put(growth.Growth, "_keep_floors", mock.AsyncMock())],
    # The floors that growth keeps are above every limit. Without, they are above the positions alone.
    "floor_marks": _floor_marks,
}
TAKE_OUT |= SHORT
