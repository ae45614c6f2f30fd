"""The session of Redis and Valkey, see `app.databases.session`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import hiredis

from app import errors
from app.databases import session as base
from app.databases.record import new_word
from app.databases.redis.line import CLUSTER, Line, checked, open_line
from app.databases.redis.scripts import DIGEST, PREFIX, SCRIPT
from app.databases.redis.url import RedisAddress
from app.databases.session import Book, Counter, Drawn, Facts, Look, Mark, Marked, Note, Residue, RingRow, Want, Write

WANTED = (
    ("appendfsync", "always", "a power cut loses the tickets of the last moments"),
    ("no-appendfsync-on-rewrite", "no", "a power cut while the file is rewritten loses tickets"),
)
"""The settings that make an append-only file durable, and what is lost otherwise."""
UNREADABLE = "its user may not read appendfsync, so it is unknown whether a power cut loses tickets"
UNUSABLE = "its value is no whole number of at most 63 bits, or its bits are not 32, 53 or 64"


async def connect(address: RedisAddress, residue: Residue | None, seconds: float) -> "RedisSession":
    """See `app.databases.session.Connect`. It has no deadline: the caller cancels it."""
    line = await log_in(address, seconds)
    try:
        session = RedisSession(line, await read_facts(line), residue)
        body, *_ = await session.run("open", new_word())
    except BaseException:
        line.abort()
        raise
    session.facts = replace(session.facts, births=body)
    return session


async def log_in(address: RedisAddress, seconds: float) -> Line:
    """Connect, log in and choose the database. Raises DatabaseFailed, DatabaseRefused."""
    line = await open_line(await _primary(address, seconds), seconds)
    try:
        if address.password is not None or address.user != "default":
            await line.ask("AUTH", address.user, address.password or "")
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
        raise errors.DatabaseFailed(f"is a Sentinel that knows no group {address.group}")
    return replace(address, host=str(found[0]), port=int(found[1]), group=None)


async def read_facts(line: Line) -> Facts:
    """Return the facts, but for `births`: the data says when it was made.

    The run and the history of replication both get another word when a server starts, and the history when a replica
    is promoted. So the two name one term in which this data was written to. Raises DatabaseRefused where this is no
    server for a ticket database, DatabaseFailed where it takes no writes.
    """
    info, settings, time = await line.call(("INFO",), ("CONFIG", "GET", "*append*"), ("TIME",))
    read = dict(row.split(":", 1) for row in checked(info).splitlines() if ":" in row and row[0] != "#")
    version = read["redis_version"]
    if tuple(map(int, version.split(".")[:2])) < (6, 2):
        raise errors.DatabaseRefused(f"is Redis {version}: a ticket database needs 6.2 or later")
    if read.get("cluster_enabled") == "1":
        raise errors.DatabaseRefused(CLUSTER)
    if read.get("role") != "master":
        raise errors.DatabaseFailed("is a replica, which is read-only")
    machine = f"{read.get('run_id', '')[:32]}.{read.get('master_replid', '')[:32]}"
    seconds, microseconds = map(int, checked(time))
    now = seconds + microseconds / 1e6
    product = f"Valkey {read['valkey_version']}" if "valkey_version" in read else f"Redis {version}"
    started = now - float(read.get("uptime_in_seconds", "0"))
    return Facts(machine, started, "", now, product, tuple(_weaknesses(read, settings)))


def _weaknesses(info: Mapping[str, str], settings: Any) -> Iterator[str]:
    """Say in words what makes it less than durable. settings: the reply to CONFIG GET."""
    policy = info.get("maxmemory_policy", "")
    if policy.startswith("allkeys"):
        yield f"maxmemory-policy is {policy}, which evicts counters: set noeviction"
    if info.get("aof_enabled") != "1":
        yield "appendonly is not yes: a restart loses what was drawn since the last snapshot"
    elif isinstance(settings, hiredis.ReplyError):
        yield UNREADABLE
    else:
        values = dict(zip(settings[::2], settings[1::2], strict=False))
        yield from (f"{name} is not {value}: {lost}" for name, value, lost in WANTED if values.get(name) != value)


class RedisSession:
    """Implements `app.databases.session.Session`, where its methods are described."""

    def __init__(self, line: Line, facts: Facts, residue: Residue | None) -> None:
        self.residue = residue
        self.facts = facts
        self.life = ""
        self._line = line

    def abort(self) -> None:
        self._line.abort()

    async def run(self, function: str, *values: str | int) -> Any:
        """Run a function of the script and return its reply. Raises DatabaseFailed, DatabaseRefused."""
        (reply,) = await self._line.call(("EVALSHA", DIGEST, 0, function, *values))
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT"):
            return await self._line.ask("EVAL", SCRIPT, 0, function, *values)
        return checked(reply)

    # --- counters ----------------------------------------------------------------------------------------------------

    async def draw(self, wanted: Sequence[Want]) -> list[Drawn | errors.DatabaseError]:
        assert self.residue is not None, "this session draws nothing"
        offset, increment = self.residue
        values = [value for want in wanted for value in (*want[:5], int(want.drawn), want.birth)]
        replies = await self.run("draw", new_word(), offset, increment, *values)
        return [
            Drawn(int(reply) - (want.count - 1) * increment, want.count)
            if reply.isdecimal()
            else _wrong(want.sequence, reply)
            for want, reply in zip(wanted, replies, strict=True)
        ]

    async def sequences(
        self, names: Sequence[str] | None, fresh: str | None = None
    ) -> dict[str, Counter | errors.DatabaseError]:
        """See `Session.sequences`. fresh: the birth of a counter that has none; empty: nothing is written."""
        found: dict[str, Counter | errors.DatabaseError] = {}
        if names is not None and not names:
            return found
        fresh = new_word() if fresh is None else fresh
        for name, bits, value, birth in await self.run("sequences", fresh, *(names or ())):
            key = name.lower()
            if key in found:
                found[key] = errors.SequenceUnusable(f"there are two sequences {key}, whose names differ by case alone")
            elif not value:
                found[key] = _wrong(key, bits)
            else:
                found[key] = Counter(name, int(bits), base.ENDS[int(bits)], int(value), birth)
        return found

    async def make(self, name: str, bits: int, above: int) -> None:
        await self.run("make", new_word(), name, bits, above)

    async def raise_above(self, floors: Mapping[str, int]) -> dict[str, errors.DatabaseError | None]:
        words = await self.run("raise", new_word(), *(value for floor in floors.items() for value in floor))
        return {name: None if word == "done" else _wrong(name, word) for name, word in zip(floors, words, strict=True)}

    # --- the notebook ------------------------------------------------------------------------------------------------

    async def look(self, server: str, beat: Note) -> Look:
        facts = await read_facts(self._line)
        ring, beats, life, floors = await self.run("look", server, _pack(beat), facts.machine)
        row = _ring(ring)
        self.facts = replace(facts, births=row.body)
        heartbeats = {name: note for name, kept in zip(beats[::2], beats[1::2], strict=True) if (note := _unpack(kept))}
        return Look(self.facts, row, _unpack(life), heartbeats, (_unpack(floors) or Note()).high)

    async def read(self, book: Book, names: Sequence[str]) -> dict[str, Note]:
        kept = await self._line.ask("HMGET", f"{PREFIX}{book}", *names) if names else []
        return {name: note for name, each in zip(names, kept, strict=True) if (note := _unpack(each))}

    async def page(self, book: Book, after: str, count: int) -> list[tuple[str, Note]]:
        start = f"({after}" if after else "-"
        names = await self._line.ask("ZRANGEBYLEX", f"{PREFIX}{book}:names", start, "+", "LIMIT", 0, count)
        return list((await self.read(book, names)).items())

    async def read_ring(self) -> RingRow:
        return _ring(await self._line.ask("HMGET", f"{PREFIX}ring", *RingRow._fields))

    async def write_ring(self, old: RingRow, new: RingRow) -> bool:
        return bool(await self.run("write_ring", *old, *new))

    async def mark(self, marks: Sequence[Mark], stamp: str) -> list[Marked]:
        values: list[str | int] = []
        for mark in marks:
            values += [mark.name, json.dumps(mark.tenure), mark.limit, mark.issued, int(mark.sure)]
        return [Marked(word) for word in await self.run("mark", stamp, *values)]

    async def write(self, writes: Sequence[Write], stamp: str | None) -> list[bool]:
        values = [value for book, name, old, new in writes for value in (book, name, _pack(old), _pack(new))]
        return list(map(bool, await self.run("write", int(stamp is not None), stamp or "", *values)))


def _wrong(name: str, word: str) -> errors.DatabaseError:
    """Return what a word of the script says of a sequence."""
    return {
        "emptied": errors.SequenceMissing(base.EMPTIED),
        "exhausted": errors.SequenceExhausted(f"{name} has not as many ids left"),
        "missing": errors.SequenceMissing(f"there is no sequence {name}"),
    }.get(word) or errors.SequenceUnusable(UNUSABLE)


def _ring(values: Sequence[str | None]) -> RingRow:
    body, offset, stamp, text = values
    if not body or offset is None or not offset.isdecimal() or stamp is None or text is None:
        raise errors.DatabaseFailed("has lost the ticket server's own keys")
    return RingRow(body, int(offset), stamp, text)


def _pack(note: Note | None) -> str:
    """Return a note as it is kept, as a JSON array; empty for no note."""
    return "" if note is None else json.dumps(note)


def _unpack(kept: str | None) -> Note | None:
    return Note(*json.loads(kept)) if kept else None
