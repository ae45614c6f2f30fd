"""PostgreSQL as a ticket database: one session, which is one connection of asyncpg.

Every statement is prepared once for each session, and is a transaction by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import asyncpg

from app.databases.address import Address
from app.databases.examination import OLD_KINDS
from app.databases.postgresql import rows, sql
from app.databases.postgresql.errors import LOCKED, UNDONE, Lost, code_of, translated
from app.databases.postgresql.login import login
from app.databases.postgresql.url import PostgreSQLAddress
from app.databases.record import new_word
from app.databases.session import Book, Counter, Drawn, Facts, Look, Mark, Marked, Note, Residue, RingRow, Want, Write
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused, SequenceUnusable

Change = tuple[Any, ...]
"""The parameters of a statement about one row."""
Result = TypeVar("Result")

_NO_NOTE = (None,) * len(Note._fields)

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
        await self.begin()
        try:
            look = await self._look(heartbeats=False)
        except Lost:
            await self._send(self._driver.execute, sql.MAKE_TABLES.format(word=new_word()))
            look = await self._look(heartbeats=False)
        if not look.ring.stamp and await self._ask(bool, sql.HAS_OLD_KINDS) and await self._ask(bool, sql.OLD_KINDS):
            raise DatabaseRefused(OLD_KINDS)
        self.facts = look.facts

    async def begin(self) -> None:
        """Prepare the session. Raises DatabaseRefused where the server is too old."""
        if self._driver.get_server_version().major < OLDEST:
            raise DatabaseRefused(f"is older than PostgreSQL {OLDEST}: upgrade it")
        await self._send(self._driver.execute, sql.BEGIN)

    def abort(self) -> None:
        self._driver.terminate()

    async def _ask(self, read: Callable[[Sequence[Any]], Result], statement: str, *values: Any) -> Result:
        """Send a statement and read its rows."""
        return read(await self._send(self._driver.fetch, statement, *values))

    async def _each(self, read: Callable[[Any], Result], statement: str, changes: Sequence[Change]) -> list[Result]:
        """Send a statement for each change, in one packet and one commit; return what is read of the row of each.

        The statements go in the order of the rows' names, which the changes begin with.
        """
        order = sorted(range(len(changes)), key=lambda number: changes[number][:2])
        packet = [changes[number] for number in order]
        found = await self._send(self._driver.fetchmany, statement, packet) if packet else []
        results = dict(zip(order, map(read, found), strict=True))
        return [results[number] for number in range(len(changes))]

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
        residue = self.residue
        assert residue is not None, "this session draws nothing"
        spans = [(want.count - 1) * residue.increment for want in wanted]
        changes = [
            (want.sequence, want.above, want.last if want.drawn else 0, span, want.ceiling, *residue)
            for want, span in zip(wanted, spans, strict=True)
        ]
        results: list[Drawn | DatabaseError] = []
        for want, span, last in zip(wanted, spans, await self._change(sql.DRAW, changes), strict=True):
            if isinstance(last, int) and not residue.has(last):
                raise DatabaseRefused(
                    f"gave the id {last} of {want.sequence}, which does not leave {residue.offset} when divided by "
                    f"{residue.increment}: look for a trigger or a rule on {sql.SEQUENCES}"
                )
            results.append(Drawn(last - span, want.count) if isinstance(last, int) else last)
        return results

    async def _change(self, statements: Sequence[str], changes: Sequence[Change]) -> list[int | DatabaseError]:
        """Change rows of sequences by the first statement, and by the next one where a row stayed locked.

        Returns the result of each. Where a row's own constraint or trigger refuses the statement, each row is changed
        by itself.
        """
        try:
            return await self._each(rows.result, statements[0], changes)
        except DatabaseFailed as error:
            code = code_of(error.__cause__)
            if code == LOCKED and len(statements) > 1:
                return await self._change(statements[1:], changes)
            if code[:2] not in _OF_ONE_ROW:
                raise
            if len(changes) == 1:
                return [SequenceUnusable(f"its row refuses the change (SQLSTATE {code})")]
            return [result for change in changes for result in await self._change(statements, [change])]

    async def sequences(self, names: Sequence[str] | None) -> dict[str, Counter | DatabaseError]:
        if names is None:
            return await self._ask(rows.counters, sql.LIST)
        return await self._ask(rows.counters, sql.LIST_NAMED, list(names))

    async def make(self, name: str, bits: int, above: int) -> None:
        assert rows.NAME.fullmatch(name), name
        await self._send(self._driver.execute, sql.make(name, bits, above))

    async def raise_above(self, floors: Mapping[str, int]) -> dict[str, DatabaseError | None]:
        results = await self._change(sql.RAISE, [(name, floor, 0) for name, floor in floors.items()])
        return {
            name: result if isinstance(result, DatabaseError) else None
            for name, result in zip(floors, results, strict=True)
        }

    # --- the notebook ------------------------------------------------------------------------------------------------

    async def read(self, book: Book, names: Sequence[str]) -> dict[str, Note]:
        return await self._ask(rows.notes, sql.READ, str(book), list(names))

    async def page(self, book: Book, after: str, count: int) -> list[tuple[str, Note]]:
        return list((await self._ask(rows.notes, sql.PAGE, str(book), after, count)).items())

    async def read_ring(self) -> RingRow:
        return await self._ask(rows.ring, sql.READ_RING)

    async def write_ring(self, old: RingRow, new: RingRow) -> bool:
        return bool(await self._ask(list, sql.WRITE_RING, *new[1:], *old))

    async def mark(self, marks: Sequence[Mark], stamp: str) -> list[Marked]:
        results = await self._each(rows.done, sql.MARK, [(*mark, stamp) for mark in marks])
        refused = {True: Marked.TENURE, False: Marked.RING}
        return [Marked.DONE if done else refused[found == stamp] for found, done in results]

    async def write(self, writes: Sequence[Write], stamp: str | None) -> list[bool]:
        changes = [(str(book), name, *(old or _NO_NOTE), *(new or _NO_NOTE), stamp) for book, name, old, new in writes]
        return [done for _, done in await self._each(rows.done, sql.WRITE, changes)]
