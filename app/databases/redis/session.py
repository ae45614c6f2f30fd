"""The session of Redis and Valkey, see `app.databases.session`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import hiredis

from app.databases.address import Address
from app.databases.record import new_word
from app.databases.redis import facts, scripts
from app.databases.redis.errors import translated
from app.databases.redis.line import Line, open_line
from app.databases.redis.notes import pack, unpack
from app.databases.redis.url import RedisAddress
from app.databases.session import (
    EMPTIED,
    ENDS,
    Book,
    Counter,
    Drawn,
    Facts,
    Look,
    Mark,
    Marked,
    Note,
    Residue,
    RingRow,
    Want,
    Write,
)
from app.errors import DatabaseError, DatabaseFailed, SequenceExhausted, SequenceMissing, SequenceUnusable

_BITS = {str(bits) for bits in ENDS}
UNUSABLE = "its value is no whole number of at most 63 bits, or its bits are not 32, 53 or 64"
LOST = "has lost the ticket server's own keys"


async def connect(address: Address, residue: Residue | None, seconds: float) -> "RedisSession":
    """See `app.databases.session.Connect`. It has no deadline: the caller cancels it."""
    assert isinstance(address, RedisAddress)
    line = await log_in(address, seconds)
    try:
        session = RedisSession(line, residue)
        await session.prepare()
    except BaseException:
        line.abort()
        raise
    return session


async def log_in(address: RedisAddress, seconds: float) -> Line:
    """Connect, log in and choose the database. Raises DatabaseFailed, DatabaseRefused."""
    line = await open_line(await _primary(address, seconds), seconds)
    try:
        if address.password is not None or address.user != "default":
            await line.ask("AUTH", address.user, address.password or "")
        facts.check(facts.read_info((await line.call(facts.INFO))[0]))
        if address.database != "0":
            await line.ask("SELECT", address.database)
    except BaseException:
        line.abort()
        raise
    return line


async def _primary(address: RedisAddress, seconds: float) -> RedisAddress:
    """Return the address of the server itself: a Sentinel says which server its group writes to."""
    if address.group is None:
        return address
    line = await open_line(address, seconds)
    try:
        if address.sentinel_password is not None:
            await line.ask("AUTH", address.sentinel_password)
        found = await line.ask("SENTINEL", "get-master-addr-by-name", address.group)
    finally:
        line.abort()
    if not found:
        raise DatabaseFailed(f"is a Sentinel that knows no group {address.group}")
    return replace(address, host=str(found[0]), port=int(found[1]), group=None)


class RedisSession:
    """Implements `app.databases.session.Session`, where its methods are described."""

    facts: Facts

    def __init__(self, line: Line, residue: Residue | None) -> None:
        self.residue = residue
        self.life = ""
        self._line = line

    async def prepare(self) -> None:
        """Make the own keys where there are none, and read the facts."""
        body, *_ = await self._run(scripts.OPEN, new_word())
        info, settings, time = await self._line.call(facts.INFO, facts.SETTINGS, ("TIME",))
        self.facts = facts.facts_of(facts.read_info(info), settings, body, _seconds(time))

    def abort(self) -> None:
        self._line.abort()

    async def _run(self, script: str, *values: str | int) -> Any:
        """Run a script and return its reply. Raises DatabaseFailed, DatabaseRefused."""
        (reply,) = await self._line.call(("EVALSHA", scripts.digest(script), 0, *values))
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT"):
            return await self._line.ask("EVAL", script, 0, *values)
        if isinstance(reply, hiredis.ReplyError):
            raise translated(str(reply))
        return reply

    # --- counters ----------------------------------------------------------------------------------------------------

    async def draw(self, wanted: Sequence[Want]) -> list[Drawn | DatabaseError]:
        assert self.residue is not None, "this session draws nothing"
        offset, increment = self.residue
        values: list[str | int] = [new_word(), offset, increment]
        for want in wanted:
            values += [want.sequence, want.count, want.above, want.last, want.ceiling, int(want.drawn)]
        replies = await self._run(scripts.DRAW, *values)
        return [_drawn(want, reply, increment) for want, reply in zip(wanted, replies, strict=True)]

    async def sequences(self, names: Sequence[str] | None) -> dict[str, Counter | DatabaseError]:
        return await self.counters(names, new_word())

    async def counters(self, names: Sequence[str] | None, fresh: str) -> dict[str, Counter | DatabaseError]:
        """See `sequences`. fresh: the birth of a counter that has none; empty: nothing is written."""
        found: dict[str, Counter | DatabaseError] = {}
        if names is not None and not names:
            return found
        for name, bits, value, birth in await self._run(scripts.SEQUENCES, fresh, *(names or ())):
            key = name.lower()
            if key in found:
                found[key] = SequenceUnusable(f"there are two sequences {key}, whose names differ by case alone")
            elif not birth or bits not in _BITS:
                found[key] = SequenceUnusable(UNUSABLE)
            else:
                found[key] = Counter(name, int(bits), ENDS[int(bits)], int(value), birth)
        return found

    async def make(self, name: str, bits: int, above: int) -> None:
        await self._run(scripts.MAKE, new_word(), name, bits, above)

    async def raise_above(self, floors: Mapping[str, int]) -> dict[str, DatabaseError | None]:
        if not floors:
            return {}
        values = [part for floor in floors.items() for part in floor]
        replies = await self._run(scripts.RAISE, new_word(), *values)
        return {
            name: None if reply == "done" else _wrong(name, reply) for name, reply in zip(floors, replies, strict=True)
        }

    # --- the notebook ------------------------------------------------------------------------------------------------

    async def look(self, server: str, beat: Note) -> Look:
        time, ring, beats, life, floors = await self._run(scripts.LOOK, server, pack(beat), self.facts.machine)
        info, settings = await self._line.call(facts.INFO, facts.SETTINGS)
        found = facts.read_info(info)
        facts.check(found)
        ring_row = _ring(ring)
        self.facts = facts.facts_of(found, settings, ring_row.body, _seconds(time))
        heartbeats = {name: note for name, kept in zip(beats[::2], beats[1::2], strict=True) if (note := unpack(kept))}
        return Look(self.facts, ring_row, unpack(life), heartbeats, (unpack(floors) or Note()).high)

    async def read(self, book: Book, names: Sequence[str]) -> dict[str, Note]:
        if not names:
            return {}
        kept = await self._line.ask("HMGET", f"{scripts.PREFIX}{book}", *names)
        return {name: note for name, each in zip(names, kept, strict=True) if each and (note := unpack(each))}

    async def page(self, book: Book, after: str, count: int) -> list[tuple[str, Note]]:
        start = f"({after}" if after else "-"
        names = await self._line.ask("ZRANGEBYLEX", f"{scripts.PREFIX}{book}:names", start, "+", "LIMIT", 0, count)
        return list((await self.read(book, names)).items())

    async def read_ring(self) -> RingRow:
        return _ring(await self._line.ask("HMGET", f"{scripts.PREFIX}ring", "body", "offset", "stamp", "text"))

    async def write_ring(self, old: RingRow, new: RingRow) -> bool:
        return bool(await self._run(scripts.WRITE_RING, *old, *new) == 1)

    async def mark(self, marks: Sequence[Mark], stamp: str) -> list[Marked]:
        values: list[str | int] = [stamp]
        for mark in marks:
            values += [mark.name, mark.tenure, mark.limit, mark.issued, int(mark.sure)]
        return [Marked(reply) for reply in await self._run(scripts.MARK, *values)]

    async def write(self, writes: Sequence[Write], stamp: str | None) -> list[bool]:
        values: list[str | int] = [int(stamp is not None), stamp or ""]
        for each in writes:
            values += [each.book, each.name, pack(each.old), pack(each.new)]
        return [reply == 1 for reply in await self._run(scripts.WRITE, *values)]


def _drawn(want: Want, reply: str, increment: int) -> Drawn | DatabaseError:
    if not reply.isdecimal():
        return _wrong(want.sequence, reply)
    return Drawn(int(reply) - (want.count - 1) * increment, want.count)


def _wrong(name: str, word: str) -> DatabaseError:
    """Return what a script's word says of a sequence."""
    if word == "emptied":
        return SequenceMissing(EMPTIED)
    if word == "exhausted":
        return SequenceExhausted(f"{name} has not as many ids left")
    return SequenceMissing(f"there is no sequence {name}") if word == "missing" else SequenceUnusable(UNUSABLE)


def _ring(values: Sequence[str | None]) -> RingRow:
    body, offset, stamp, text = values
    if not body or offset is None or not offset.isdecimal() or stamp is None or text is None:
        raise DatabaseFailed(LOST)
    return RingRow(body, int(offset), stamp, text)


def _seconds(time: Sequence[str]) -> float:
    return int(time[0]) + int(time[1]) / 1e6
