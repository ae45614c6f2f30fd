"""PostgreSQL as a ticket database: one session, which is one connection of asyncpg.

Every statement is prepared once for each session, and is a transaction by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import asyncpg

from app.databases.address import Address
from app.databases.examination import OLD_KINDS
from app.databases.postgresql import rows, sql
from app.databases.postgresql.errors import LOCKED, NO_TABLE, NONSENSE, UNDONE, Missing, code_of, translated
from app.databases.postgresql.login import login
from app.databases.postgresql.url import PostgreSQLAddress
from app.databases.record import new_word
from app.databases.session import Book, Counter, Drawn, Facts, Look, Mark, Marked, Note, Residue, RingRow, Want, Write
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused, SequenceUnusable

Item = TypeVar("Item")
Result = TypeVar("Result")

OLDEST = 13
_OF_ONE_ROW = ("22", "23", "P0")
"""The classes of errors that one row of `ticket_sequences` may raise: its values, constraints and triggers."""


async def connect(address: Address, residue: Residue | None, seconds: float) -> "PostgreSQLSession":
    """Open a session. See `app.databases.session.Connect`."""
    assert isinstance(address, PostgreSQLAddress)
    session = PostgreSQLSession(await login(address, sql.settings(seconds), seconds), residue)
    try:
        await session.prepare()
    except BaseException:
        session.abort()
        raise
    return session


class PostgreSQLSession:
    """Implements `app.databases.session.Session`, where its methods are described."""

    facts: Facts

    def __init__(self, driver: Any, residue: Residue | None) -> None:
        """driver: a connection of asyncpg. Call `prepare` before any other method."""
        self.residue = residue
        self.life = ""
        self._driver = driver

    async def prepare(self) -> None:
        """Check what the session needs, and make what is missing. Raises DatabaseFailed, DatabaseRefused."""
        self.check_version()
        await self._send(self._driver.execute, sql.BEGIN)
        try:
            look = await self._look(heartbeats=False)
        except DatabaseFailed as error:
            if not isinstance(error.__cause__, Missing) and code_of(error.__cause__) != NO_TABLE:
                raise
            await self._send(self._driver.execute, sql.MAKE_TABLES.format(word=new_word()))
            look = await self._look(heartbeats=False)
        if not look.ring.stamp:
            await self._refuse_old_kinds()
        self.facts = look.facts

    async def _refuse_old_kinds(self) -> None:
        """Raise DatabaseRefused where a release before 1.0 has made sequences of other kinds than `ticket`."""
        has_table = await self._ask(lambda rows: bool(rows[0][0]), sql.HAS_OLD_KINDS)
        if has_table and await self._ask(bool, sql.OLD_KINDS):
            raise DatabaseRefused(OLD_KINDS)

    def check_version(self) -> None:
        """Raise DatabaseRefused where the server is too old."""
        if self._driver.get_server_version().major < OLDEST:
            raise DatabaseRefused(f"is older than PostgreSQL {OLDEST}: upgrade it")

    def abort(self) -> None:
        self._driver.terminate()

    async def _ask(self, read: Callable[[Sequence[Any]], Result], statement: str, *values: Any) -> Result:
        """Send a statement and read its rows. Raises DatabaseFailed, DatabaseRefused."""
        found = await self._send(self._driver.fetch, statement, *values)
        try:
            return read(found)
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise translated(error) from error

    async def _send(self, method: Callable[..., Awaitable[Any]], *values: Any) -> Any:
        """Call a method of the driver, once more where PostgreSQL undid the statement because of another one."""
        try:
            try:
                return await method(*values)
            except asyncpg.PostgresError as error:
                if code_of(error) not in UNDONE:
                    raise
            return await method(*values)
        except asyncio.CancelledError:
            self.abort()  # the driver would ask the server by a further connection to cancel the statement
            raise
        except Exception as error:  # a server can make the driver raise anything
            raise translated(error) from error

    async def look(self, server: str, beat: Note) -> Look:
        await self._ask(list, sql.BEAT, server, *beat)  # committed before the rows of the others are read
        return await self._look(heartbeats=True)

    async def _look(self, *, heartbeats: bool) -> Look:
        return await self._ask(rows.look, sql.LOOK, heartbeats, self._driver.get_server_pid())

    # --- counters ----------------------------------------------------------------------------------------------------

    async def draw(self, wanted: Sequence[Want]) -> list[Drawn | DatabaseError]:
        return await _in_rounds(wanted, lambda want: want.sequence, self._draw)

    async def _draw(self, wanted: Sequence[Want]) -> list[Drawn | DatabaseError]:
        """Draw for several sequences, each named once."""
        residue = self.residue
        assert residue is not None, "this session draws nothing"
        spans = [(want.count - 1) * residue.increment for want in wanted]
        changes = [
            (want.sequence, span, want.above, want.ceiling, want.last if want.drawn else 0)
            for want, span in zip(wanted, spans, strict=True)
        ]
        found = await self._change(sql.DRAW, changes, *residue)
        results: list[Drawn | DatabaseError] = []
        for want, span in zip(wanted, spans, strict=True):
            last = found[want.sequence]
            if isinstance(last, int) and not residue.has(last):
                raise DatabaseRefused(
                    f"gave the id {last} of {want.sequence}, which does not leave {residue.offset} when divided by "
                    f"{residue.increment}: look for a trigger or a rule on {sql.SEQUENCES}"
                )
            results.append(Drawn(last - span, want.count) if isinstance(last, int) else last)
        return results

    async def _change(
        self, statements: Sequence[str], changes: Sequence[tuple[Any, ...]], *more: Any
    ) -> dict[str, int | DatabaseError]:
        """Change rows of sequences by the first statement, and by the next one where a row stayed locked.

        Returns the result for each sequence. Where a row's own constraint or trigger refuses the statement, each row is
        changed by itself.
        """
        names = [str(name) for name, *_ in changes]
        found: dict[str, int | DatabaseError] = {}
        try:
            found = await self._ask(rows.results, statements[0], *_columns(changes), *more)
        except DatabaseFailed as error:
            code = code_of(error.__cause__)
            if code == LOCKED and len(statements) > 1:
                return await self._change(statements[1:], changes, *more)
            if code[:2] not in _OF_ONE_ROW:
                raise
            if len(changes) == 1:
                return {names[0]: SequenceUnusable(f"its row refuses the change (SQLSTATE {code})")}
            for change in changes:
                found |= await self._change(statements, [change], *more)
        if found.keys() != set(names):
            raise DatabaseFailed(NONSENSE)
        return found

    async def sequences(self, names: Sequence[str] | None) -> dict[str, Counter | DatabaseError]:
        if names is None:
            return await self._ask(rows.counters, sql.LIST)
        return await self._ask(rows.counters, sql.LIST_NAMED, list(names))

    async def make(self, name: str, bits: int, above: int) -> None:
        assert rows.NAME.fullmatch(name), name
        statement = sql.MAKE.format(name=name, bits=int(bits), last=min(int(above), sql.ENDS[bits]))
        await self._send(self._driver.execute, statement)

    async def raise_above(self, floors: Mapping[str, int]) -> dict[str, DatabaseError | None]:
        found = await self._change(sql.RAISE, list(floors.items())) if floors else {}
        failed = {name: result for name, result in found.items() if isinstance(result, DatabaseError)}
        return {name: failed.get(name) for name in floors}

    # --- the notebook ------------------------------------------------------------------------------------------------

    async def read(self, book: Book, names: Sequence[str]) -> dict[str, Note]:
        return dict(await self._ask(rows.notes, sql.READ, str(book), list(names)))

    async def page(self, book: Book, after: str, count: int) -> list[tuple[str, Note]]:
        return await self._ask(rows.notes, sql.PAGE, str(book), after, count)

    async def read_ring(self) -> RingRow:
        return await self._ask(rows.ring, sql.READ_RING)

    async def write_ring(self, old: RingRow, new: RingRow) -> bool:
        return bool(await self._ask(list, sql.WRITE_RING, *new[1:], *old))

    async def mark(self, marks: Sequence[Mark], stamp: str) -> list[Marked]:
        async def send(some: Sequence[Mark]) -> list[Marked]:
            found, done = await self._ask(rows.done, sql.MARK, *_columns(some), stamp)
            refused = Marked.TENURE if found == stamp else Marked.RING
            return [Marked.DONE if mark.name in done else refused for mark in some]

        return await _in_rounds(marks, lambda mark: mark.name, send)

    async def write(self, writes: Sequence[Write], stamp: str | None) -> list[bool]:
        async def send(some: Sequence[Write]) -> list[bool]:
            values = (
                (str(book), name, old is not None, *(old or Note()), new is not None, *(new or Note()))
                for book, name, old, new in some
            )
            _, done = await self._ask(rows.done, sql.WRITE, stamp, *_columns(values))
            return [f"{each.book} {each.name}" in done for each in some]

        return await _in_rounds(writes, lambda each: (each.book, each.name), send)


def _columns(table: Iterable[Sequence[Any]]) -> list[list[str | None]]:
    """Turn rows into columns of text."""
    return [[None if each is None else str(each) for each in column] for column in zip(*table, strict=True)]


async def _in_rounds(
    items: Sequence[Item], key: Callable[[Item], Hashable], send: Callable[[Sequence[Item]], Awaitable[list[Result]]]
) -> list[Result]:
    """Send items so that no statement has a row twice, and return their results in the order of the items."""
    if not items:
        return []
    first: dict[Hashable, int] = {}
    for number, item in enumerate(items):
        first.setdefault(key(item), number)
    results = dict(zip(first.values(), await send([items[number] for number in first.values()]), strict=True))
    rest = [number for number in range(len(items)) if number not in results]
    results |= zip(rest, await _in_rounds([items[number] for number in rest], key, send), strict=True)
    return [results[number] for number in range(len(items))]
