"""PostgreSQL as a ticket database: one session, which is one connection of asyncpg.

Every statement is prepared once for each session, and is a transaction by itself.
"""

import asyncio
import json
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from app.databases.examination import OLD_KINDS
from app.databases.postgresql import sql
from app.databases.postgresql.driver import LOCKED, POOLED, Lost, code_of, login, translated
from app.databases.postgresql.url import PostgreSQLAddress
from app.databases.record import new_word
from app.databases.session import Book, Counter, Drawn, Facts, Look, Mark, Marked, Note, Residue, RingRow, Want, Write
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused, SequenceUnusable

_NO_NOTE = (None,) * len(Note._fields)
_OF_ONE_ROW = ("22", "23", "P0")
"""The classes of errors that one row of `ticket_sequences` may raise: its values, constraints and triggers."""


async def connect(address: PostgreSQLAddress, residue: Residue | None, seconds: float) -> "PostgreSQLSession":
    """Open a session. See `app.databases.session.Connect`."""
    session = PostgreSQLSession(await login(address, seconds), residue)
    try:
        session.facts = await session.prepare()
    except BaseException:
        session.abort()
        raise
    return session


class PostgreSQLSession:
    """Implements `app.databases.session.Session`, where its methods are described."""

    facts: Facts

    def __init__(self, driver: Any, residue: Residue | None) -> None:
        """driver: a connection of asyncpg."""
        self.residue = residue
        self.life = ""
        self._driver = driver

    async def prepare(self) -> Facts:
        """Check what the session needs, and make what is missing. Raises DatabaseFailed, DatabaseRefused."""
        await self.ask(sql.BEGIN)
        try:
            look = await self.read_look()
        except Lost:
            await self._answer(self._driver.execute(sql.MAKE_TABLES.format(word=new_word())))
            look = await self.read_look()
        if not look.ring.stamp and await self.ask(sql.HAS_OLD_KINDS) and await self.ask(sql.OLD_KINDS):
            raise DatabaseRefused(OLD_KINDS)
        return look.facts

    def abort(self) -> None:
        self._driver.terminate()

    async def ask(self, statement: str, *values: Any) -> list[Any]:
        """Send a statement and return its rows. Raises DatabaseFailed, DatabaseRefused."""
        return list(await self._answer(self._driver.fetch(statement, *values)))

    async def _each(self, statement: str, changes: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send a statement for each change, in one packet and one commit; return the row of each.

        The statements go in the order of the rows' names, which the changes begin with. Raises Lost where there is no
        ring row, which marks and writes begin with.
        """
        order = sorted(range(len(changes)), key=lambda number: changes[number][:2])
        packet = [changes[number] for number in order]
        rows = await self._answer(self._driver.fetchmany(statement, packet)) if packet else []
        if len(rows) < len(packet):
            raise Lost
        return [row for _, row in sorted(zip(order, rows, strict=True))]

    async def _answer(self, call: Awaitable[Any]) -> Any:
        """Wait for the driver. Raises DatabaseFailed, DatabaseRefused."""
        try:
            return await call
        except asyncio.CancelledError:
            self.abort()  # the driver would ask the server by a further connection to cancel the statement
            raise
        except Exception as error:  # a server can make the driver raise anything
            raise translated(error) from error

    async def look(self, server: str, beat: Note) -> Look:
        await self.ask(sql.BEAT, server, *beat)  # committed before the rows of the others are read
        return await self.read_look()

    async def read_look(self) -> Look:
        """Read what a look reads. Raises Lost, and DatabaseRefused where a table cannot be used."""
        (row,) = await self.ask(sql.LOOK)
        if row["process"] != self._driver.get_server_pid():
            raise DatabaseRefused(POOLED)
        if row["body"] is None or row["tables"] < 3:
            raise Lost
        for words in row["refused"]:
            raise DatabaseRefused(words)
        lives, beats = (_notes(json.loads(row[each] or "[]")) for each in ("lives", "heartbeats"))
        facts = Facts(row[0], row[1], row[2], row[3], row[4], tuple(row[5]))
        return Look(facts, RingRow(*row[6:10]), lives.get(facts.machine), beats, row["floors"] or 0)

    async def draw(self, wanted: Sequence[Want]) -> list[Drawn | DatabaseError]:
        residue = self.residue
        assert residue is not None, "this session draws nothing"
        changes = [
            (want.sequence, want.above, want.last if want.drawn else 0, want.count, want.ceiling, *residue, want.birth)
            for want in wanted
        ]
        results: list[Drawn | DatabaseError] = []
        for want, last in zip(wanted, await self._change(sql.DRAW, changes), strict=True):
            if isinstance(last, DatabaseError):
                results.append(last)
            elif residue.has(last):
                results.append(Drawn(last - (want.count - 1) * residue.increment, want.count))
            else:
                raise DatabaseRefused(
                    f"gave the id {last} of {want.sequence}, which does not leave {residue.offset} when divided by "
                    f"{residue.increment}: look for a trigger or a rule on {sql.SEQUENCES}"
                )
        return results

    async def _change(self, statements: Sequence[str], changes: Sequence[tuple[Any, ...]]) -> list[int | DatabaseError]:
        """Change rows of sequences by the first statement, and by the next one where a row stayed locked.

        Returns the new id of each, or why the old one stayed. Where a row's own constraint or trigger refuses the
        statement, each row is changed by itself.
        """
        try:
            rows = await self._each(statements[0], changes)
        except DatabaseFailed as error:
            code = code_of(error.__cause__)
            if code == LOCKED and len(statements) > 1:
                return await self._change(statements[1:], changes)
            if code[:2] not in _OF_ONE_ROW:
                raise
            if len(changes) == 1:
                return [SequenceUnusable(f"its row refuses the change (SQLSTATE {code})")]
            return [result for change in changes for result in await self._change(statements, [change])]
        return [last if why is None else sql.REFUSALS.get(why, partial(SequenceUnusable, why))() for last, why in rows]

    async def sequences(self, names: Sequence[str] | None) -> dict[str, Counter | DatabaseError]:
        rows = self.ask(sql.LIST) if names is None else self.ask(sql.LIST_NAMED, list(names))
        found: dict[str, Counter | DatabaseError] = {}
        for name, bits, end, position, birth, warnings, wrong in await rows:
            counter = Counter(name, bits, end, position, birth, tuple(warnings))
            found[name.lower()] = SequenceUnusable(wrong) if wrong else counter
        return found

    async def make(self, name: str, bits: int, above: int) -> None:
        await self._answer(self._driver.execute(sql.make(name, bits, above)))

    async def raise_above(self, floors: Mapping[str, int]) -> dict[str, DatabaseError | None]:
        results = await self._change(sql.RAISE, [(name, floor, 0) for name, floor in floors.items()])
        errors = (result if isinstance(result, DatabaseError) else None for result in results)
        return dict(zip(floors, errors, strict=True))

    async def read(self, book: Book, names: Sequence[str]) -> dict[str, Note]:
        return _notes(await self.ask(sql.READ, str(book), list(names)))

    async def page(self, book: Book, after: str, count: int) -> list[tuple[str, Note]]:
        return list(_notes(await self.ask(sql.PAGE, str(book), after, count)).items())

    async def read_ring(self) -> RingRow:
        for row in await self.ask(sql.READ_RING):
            return RingRow(*row)
        raise Lost

    async def write_ring(self, old: RingRow, new: RingRow) -> bool:
        return bool(await self.ask(sql.WRITE_RING, *new[1:], *old))

    async def mark(self, marks: Sequence[Mark], stamp: str) -> list[Marked]:
        rows = await self._each(sql.MARK, [(*mark, stamp) for mark in marks])
        return [Marked.DONE if done else Marked.TENURE if found == stamp else Marked.RING for found, done in rows]

    async def write(self, writes: Sequence[Write], stamp: str | None) -> list[bool]:
        changes = [(str(book), name, *(old or _NO_NOTE), *(new or _NO_NOTE), stamp) for book, name, old, new in writes]
        return [done for _, done in await self._each(sql.WRITE, changes)]


def _notes(rows: Iterable[Any]) -> dict[str, Note]:
    return {name: Note(*note) for name, *note in rows}
