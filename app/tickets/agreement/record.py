"""The ring record: whether the settings agree with the ring that the ticket databases have been drawn in.

Decisions only, no I/O; `changes` carries them out. The ids that a database draws follow from its offset and the
increment. A server with another increment, or another order or length of the list, could draw an id again. Therefore
each database records the ring (`RingRecord`), and a server whose settings contradict the record draws nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import replace

from app.common.errors import TicketError
from app.databases.protocol import Body, RingRecord, RingState

UNFINISHED = "a change of the ring was begun and not finished: run `ticketd grow` again"

UNKNOWN = "no ring is recorded on it, and not every listed database can be asked for one: start the others as well"


class RingContradiction(TicketError):
    """The settings contradict the ring that the ticket databases record."""


def newest(records: Iterable[RingRecord]) -> RingRecord:
    """The ring that the databases record: the record with the highest number. Raises RingContradiction.

    Two servers that reached different databases may have used the highest number for different offsets. They may also
    have counted up to it twice, if a database had gone back. Then the increment that began last counts. A record of
    another increment is an earlier state of the ring, unless its number shows that this increment began without it.
    """
    records = list(records)
    number = max(record.number for record in records)
    latest = [record for record in records if record.number == number]
    best = max(latest, key=lambda record: record.since)
    for record in records:
        if record.increment != best.increment and record.number >= best.since:
            raise RingContradiction(
                f"the ticket databases record two rings, number {record.number} with increment {record.increment} and "
                f"number {number} with increment {best.increment}: stop all ticket servers and run `ticketd grow`"
            )
    offsets = {offset for record in latest if record.since == best.since for offset in record.offsets}
    former = former_increments(records, best.increment)
    return with_bodies(replace(best, offsets=tuple(sorted(offsets)), former=former), all_bodies(records))


def former_increments(records: Iterable[RingRecord], increment: int) -> tuple[int, ...]:
    """Every other increment that the ring has had, as far as any of these records says."""
    return tuple(sorted({each for record in records for each in (record.increment, *record.former)} - {increment}))


def contradiction(record: RingRecord, increment: int | None, listed: int) -> str | None:
    """Why the settings contradict the record, in a sentence; None if they agree.

    `increment`: TICKETS_INCREMENT, None where it is unset. `listed`: how many databases TICKETS_DATABASES lists.
    """
    if increment is not None and increment != record.increment and increment not in record.former:
        return (
            f"the recorded increment of the ring is {record.increment}, and TICKETS_INCREMENT is {increment}: unset "
            f"it, or stop all ticket servers and run `ticketd grow --increment {increment}`"
        )
    if listed > record.increment:
        return (
            f"the recorded increment of the ring is {record.increment}, and TICKETS_DATABASES lists {listed}: "
            f"list fewer, or stop all ticket servers and run `ticketd grow --increment {listed}`"
        )
    return None


def former_setting(record: RingRecord, increment: int | None) -> str | None:
    """A note for operators if TICKETS_INCREMENT is an increment that the ring had before; else None.

    Such a server was restarted with the environment from before a growth. It draws with the recorded increment.
    """
    if increment is None or increment == record.increment or increment not in record.former:
        return None
    return (
        f"TICKETS_INCREMENT is {increment}, which the ring had before; this server draws with the recorded increment, "
        f"{record.increment}: unset TICKETS_INCREMENT"
    )


def increment_of_marks(marks: Set[tuple[int, int]], increment: int | None, listed: int) -> int:
    """The increment of a ring that is not recorded: as set, else that of all marks, else the number of databases.

    `marks`: offset and increment of each mark that the databases keep.
    """
    found = {each for _, each in marks}
    if increment is not None:
        return increment
    return found.pop() if len(found) == 1 else listed


def contradiction_of_marks(marks: Set[tuple[int, int]], increment: int, own: int, listed: int) -> str | None:
    """Why the marks that a database keeps contradict the settings; None if they agree.

    `marks`: the offset and increment of each. `own`: the offset of the database that keeps them. A database keeps marks
    about the others only, so marks about its own offset mean that it has been drawn at another one.
    """
    for offset, found in sorted(marks):
        if found != increment:
            return (
                f"its high-water marks are of increment {found}, and the ring's is {increment}: set TICKETS_INCREMENT "
                f"to {found}, or stop all ticket servers and run `ticketd grow --increment {increment}`"
            )
        if offset == own:
            return (
                f"it keeps high-water marks about offset {offset}, at which TICKETS_DATABASES lists it: it has been "
                "drawn at another offset; put the URLs back in the order that they had"
            )
    if listed > increment:
        return (
            f"its high-water marks are of increment {increment}, and TICKETS_DATABASES lists {listed} databases: list "
            f"fewer, or stop all ticket servers and run `ticketd grow --increment {listed}`"
        )
    return None


def first_record(increment: int, offsets: Iterable[int]) -> RingRecord:
    """The first record of a ring."""
    return RingRecord(1, increment, 1, tuple(sorted(offsets)), own=0)


def with_offsets(record: RingRecord, offsets: Iterable[int]) -> RingRecord:
    """The ring with these offsets added, under the next number if that changes it."""
    used = tuple(sorted({*record.offsets, *offsets}))
    return record if used == record.offsets else replace(record, number=record.number + 1, offsets=used)


def begun(records: Collection[RingRecord], increment: int, offsets: Iterable[int], state: RingState) -> RingRecord:
    """The record of a change that has begun; no server draws until it is finished. `records`: the present ones."""
    number = max((record.number for record in records), default=0) + 1
    bodies = tuple(sorted(all_bodies(records).items()))
    former = former_increments(records, increment)
    used = tuple(sorted(offsets))
    return RingRecord(number, increment, number, used, own=0, state=state, bodies=bodies, former=former)


def finished(record: RingRecord) -> RingRecord:
    """The record that finishes this change."""
    return replace(record, number=record.number + 1, since=record.number + 1, state=RingState.DRAWN)


def with_bodies(record: RingRecord, bodies: Mapping[int, Body]) -> RingRecord:
    """The ring with these bodies of data at their offsets, under the next number if that changes it."""
    known = tuple(sorted({**dict(record.bodies), **bodies}.items()))
    return record if known == record.bodies else replace(record, number=record.number + 1, bodies=known)


def all_bodies(records: Iterable[RingRecord]) -> dict[int, Body]:
    """The body in use at each offset: the greatest one that any of these records names."""
    found: dict[int, Body] = {}
    for record in records:
        for offset, body in record.bodies:
            found[offset] = max(body, found.get(offset, body))
    return found


def same_ring(one: RingRecord | None, other: RingRecord | None) -> bool:
    """Whether two databases record the same ring, each for its own offset."""
    if one is None or other is None:
        return one is other
    return _shared(one) == _shared(other)


def overtakes(found: RingRecord | None, ours: RingRecord | None) -> bool:
    """Whether a database records a later ring than ours, or a body of data that stays where ours has to go."""
    if found is None or ours is None:
        return False
    bodies = dict(ours.bodies)
    return found.number > ours.number or any(body > bodies.get(offset, body) for offset, body in found.bodies)


def _shared(record: RingRecord) -> RingRecord:
    """The record without what a database says there about itself."""
    return replace(record, own=0, body="", life="")
