"""A connection to a `FakeServer`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from app import errors
from app.databases import session as base
from app.databases.address import Address
from app.databases.session import Book, Connect, Counter, Drawn, Look, Mark, Marked, Note, Residue, RingRow, Want, Write
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused
from tests.fakes.server import FakeCounter, FakeServer

T = TypeVar("T")
Wait = Callable[[str, FakeServer, str], Awaitable[None]]
"""Awaited with the client, the server and the call's name before the effect, and with the name and " answer" behind."""


async def no_wait(_client: str, _server: FakeServer, _what: str) -> None:
    """Give other tasks a turn."""
    await asyncio.sleep(0)


def fake_connect(server: FakeServer, client: str = "client", wait: Wait = no_wait) -> Connect:
    """Return the function that opens sessions of this client on this server."""

    async def connect(address: Address, residue: Residue | None, seconds: float) -> FakeSession:
        server.connects += 1
        await wait(client, server, "connect")
        while (event := server.standstill(client)) is not None:
            await event.wait()
        if not server.reaches(client):
            raise DatabaseFailed("cannot be reached")
        if server.login_rejected:
            raise DatabaseRefused("refuses the login: check user and password")
        if server.max_connections is not None and len(server.open) >= server.max_connections:
            raise DatabaseFailed("has no connection to give")
        session = FakeSession(server, client, wait, residue)
        await wait(client, server, "connect answer")
        if not server.reaches(client):
            session.abort()
            raise DatabaseFailed("cannot be reached")
        return session

    return connect


class FakeSession:
    """Implements `app.databases.session.Session`, where its methods are described."""

    def __init__(self, server: FakeServer, client: str, wait: Wait, residue: Residue | None) -> None:
        self.server = server
        self.residue = residue
        self.facts = server.facts
        self.life = ""
        self._client = client
        self._wait = wait
        self._incarnation = server.incarnation
        self._task: asyncio.Task[Any] | None = None
        self._closed = self._cancelled = False
        server.open.add(self)

    def abort(self) -> None:
        """Close the connection. The call under way ends with DatabaseFailed."""
        self._closed = True
        self.server.open.discard(self)
        if self._task is not None and not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    async def _call(self, what: str, effect: Callable[[], T], *, writes: bool = False) -> T:
        """Send a request, apply its effect, and bring the answer back."""
        assert self._task is None, "a session runs one call at a time"
        if self._closed:
            self.server.misused += 1
            raise DatabaseFailed("the connection is closed")
        task = self._task = asyncio.current_task()
        assert task is not None
        cancelling = task.cancelling()
        try:
            await self._wait(self._client, self.server, what)
            await self._arrive(effect, writes)
            result = self._apply(effect, writes)
            await self._wait(self._client, self.server, f"{what} answer")
            await self.server.answer(self._client, what)
            if not self.server.reaches(self._client):
                raise DatabaseFailed("the connection was lost")
        except BaseException as error:
            aborted, self._cancelled, self._task = self._cancelled, False, None
            if not isinstance(error, errors.SequenceError):
                self.abort()
            if aborted and task.uncancel() <= cancelling:
                raise DatabaseFailed("the connection was closed") from None
            raise
        self._task = None
        return result

    async def _arrive(self, effect: Callable[[], object], writes: bool) -> None:
        """Wait while the server stands still."""
        while (event := self.server.standstill(self._client)) is not None:
            try:
                await event.wait()
            except asyncio.CancelledError:
                self.server.late.append((self._client, lambda: self._apply(effect, writes)))
                raise

    def _apply(self, effect: Callable[[], T], writes: bool) -> T:
        if not self.server.reaches(self._client) or self._incarnation != self.server.incarnation:
            raise DatabaseFailed("the connection was lost")
        if writes and self.server.read_only:
            raise DatabaseFailed("is read-only")
        return effect()

    # --- counters ----------------------------------------------------------------------------------------------------

    async def draw(self, wanted: Sequence[Want]) -> list[Drawn | DatabaseError]:
        return await self._call("draw", lambda: [self._draw(want) for want in wanted], writes=True)

    def _draw(self, want: Want) -> Drawn | DatabaseError:
        counter = self._usable(want.sequence)
        if isinstance(counter, DatabaseError):
            return counter
        assert self.residue is not None, "this session draws nothing"
        assert want.count >= 1
        if want.birth not in ("", counter.birth) or (want.drawn and counter.last < want.last):
            return errors.SequenceMissing(base.EMPTIED)
        offset, increment = self.residue
        count, gap = want.count, 0
        if self.server.like_mysql and count > 8:
            apart = -(-(count - 1) // 7)
            count, gap = 7 * apart + 1, apart - 1
        above = max(counter.last, want.above)
        first = above + 1 + (offset - above - 1) % increment
        if (last := first + (count - 1) * increment) > min(want.ceiling, counter.ceiling):
            return errors.SequenceExhausted()
        counter.last = min(last + gap * increment, counter.ceiling)
        return Drawn(first, count)

    def _usable(self, name: str) -> FakeCounter | errors.SequenceError:
        counter = self.server.data.counters.get(name)
        if counter is None:
            return errors.SequenceMissing()
        if name in self.server.locked:
            return errors.SequenceBusy()
        return counter if counter.broken is None else errors.SequenceUnusable(counter.broken)

    async def sequences(self, names: Sequence[str] | None) -> dict[str, Counter | DatabaseError]:
        return await self._call("sequences", lambda: self._sequences(names))

    def _sequences(self, names: Sequence[str] | None) -> dict[str, Counter | DatabaseError]:
        found: dict[str, Counter | DatabaseError] = {}
        for counter in self.server.data.counters.values():
            name = counter.name.lower()
            if names is not None and name not in names:
                continue
            if name in found:
                found[name] = errors.SequenceUnusable("two tables whose names differ by case alone")
            elif counter.broken is not None:
                found[name] = errors.SequenceUnusable(counter.broken)
            else:
                found[name] = Counter(counter.name, counter.bits, counter.ceiling, counter.last, counter.birth)
        return found

    async def make(self, name: str, bits: int, above: int) -> None:
        await self._call("make", lambda: self._make(name, bits, above), writes=True)

    def _make(self, name: str, bits: int, above: int) -> None:
        if all(there.lower() != name.lower() for there in self.server.data.counters):
            self.server.add(name, bits, above)

    async def raise_above(self, floors: Mapping[str, int]) -> dict[str, DatabaseError | None]:
        return await self._call("raise_above", lambda: {n: self._raise(n, f) for n, f in floors.items()}, writes=True)

    def _raise(self, name: str, floor: int) -> DatabaseError | None:
        counter = self._usable(name)
        if isinstance(counter, FakeCounter):
            counter.last = max(counter.last, min(floor, counter.ceiling))
        return counter if isinstance(counter, DatabaseError) else None

    # --- the notebook ------------------------------------------------------------------------------------------------

    async def look(self, server: str, beat: Note) -> Look:
        return await self._call("look", lambda: self._look(server, beat), writes=True)

    def _look(self, server: str, beat: Note) -> Look:
        self._put(Book.HEARTBEATS, server, beat)
        data, facts = self.server.data, self.server.facts
        beats = dict(data.notes[Book.HEARTBEATS])
        number = data.notes[Book.COUNTS].get("floors", Note()).high
        return Look(facts, data.ring, data.notes[Book.LIVES].get(facts.machine), beats, number)

    def _put(self, book: Book, name: str, note: Note | None) -> None:
        if note is None:
            self._rows(book).pop(name, None)
            return
        assert 0 < len(name) <= 80, name
        assert name.isascii(), name
        assert note.tenure is None or (len(note.tenure) <= 200 and note.tenure.isascii()), note
        assert min(note.high, note.issued) >= 0, note
        assert max(note.high, note.issued).bit_length() <= 63, note
        assert len(note.text) <= 4000, note
        self._rows(book)[name] = note

    async def read(self, book: Book, names: Sequence[str]) -> dict[str, Note]:
        return await self._call("read", lambda: {n: row for n, row in self._rows(book).items() if n in names})

    def _rows(self, book: Book) -> dict[str, Note]:
        return self.server.data.notes[book]

    async def page(self, book: Book, after: str, count: int) -> list[tuple[str, Note]]:
        return await self._call("page", lambda: sorted(r for r in self._rows(book).items() if r[0] > after)[:count])

    async def read_ring(self) -> RingRow:
        return await self._call("read_ring", lambda: self.server.data.ring)

    async def write_ring(self, old: RingRow, new: RingRow) -> bool:
        return await self._call("write_ring", lambda: self._write_ring(old, new), writes=True)

    def _write_ring(self, old: RingRow, new: RingRow) -> bool:
        if self.server.data.ring != old:
            return False
        self.server.data.ring = new._replace(body=old.body)
        return True

    async def mark(self, marks: Sequence[Mark], stamp: str) -> list[Marked]:
        return await self._call("mark", lambda: [self._mark(mark, stamp) for mark in marks], writes=True)

    def _mark(self, mark: Mark, stamp: str) -> Marked:
        if self.server.data.ring.stamp != stamp:
            return Marked.RING
        row = self._rows(Book.MARKS).get(mark.name)
        if row is None or row.tenure != mark.tenure:
            return Marked.TENURE
        high, issued = max(row.high, mark.limit), max(row.issued, mark.issued)
        self._put(Book.MARKS, mark.name, Note(high, issued, row.tenure, row.sure or mark.sure, row.text))
        return Marked.DONE

    async def write(self, writes: Sequence[Write], stamp: str | None) -> list[bool]:
        return await self._call("write", lambda: [self._write(each, stamp) for each in writes], writes=True)

    def _write(self, write: Write, stamp: str | None) -> bool:
        if stamp not in (None, self.server.data.ring.stamp) or self._rows(write.book).get(write.name) != write.old:
            return False
        self._put(write.book, write.name, write.new)
        return True
