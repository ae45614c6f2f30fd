"""The draws of all lanes of one PostgreSQL database, on one connection.

What waits while a statement is under way is drawn by the next one, which names each sequence once. A row that another
session has locked holds up its own sequence alone: where the statement has waited a third of its time for a lock, it is
sent again, and passes over the rows that are locked.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.common.errors import (
    ColumnExhausted,
    RingChanged,
    SequenceMissing,
    SequenceUnavailable,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseUnavailable,
)
from app.common.sequences import TICKET_LIMIT
from app.databases.postgresql import sql
from app.databases.postgresql.connection import Line
from app.databases.postgresql.errors import LOCKED, code_of
from app.databases.protocol import Draw, Drawn, Residue, Table

MOST_AT_ONCE = 500
"""Sequences that one statement draws for."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be drawn, see TicketDatabase.start_draw. `incarnation`: the one of the last look before that."""

    residue: Residue
    table: Table
    count: int
    least: int
    incarnation: str
    done: Callable[[Drawn], None]

    @property
    def more(self) -> int:
        return self.residue.increment * (self.count - 1)

    @property
    def row(self) -> tuple[str, int, int, int, int, int, int]:
        offset, increment, ring = self.residue
        return self.table.sequence, offset, increment, self.least, self.more, self.table.last, ring


class Draws:
    """What waits to be drawn. `current`: the incarnation that the last look found, and the increment drawn with."""

    def __init__(self, line: Line, current: Callable[[], tuple[str, int]]) -> None:
        self._line = line
        self._current = current
        self._waiting: list[Wanted] = []
        self._working: asyncio.Task[None] | None = None

    def start(self, wanted: Wanted) -> None:
        """Draw this as soon as the connection is free."""
        self._waiting.append(wanted)
        if self._working is None:
            self._working = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Wait for the draws that have been started."""
        if self._working is not None:
            await asyncio.gather(self._working, return_exceptions=True)

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch: dict[str, Wanted] = {}
                later = []
                for wanted in self._waiting:
                    name = wanted.table.sequence
                    if name in batch or len(batch) == MOST_AT_ONCE:
                        later.append(wanted)
                    else:
                        batch[name] = wanted
                self._waiting = later
                for name, result in (await self._drawn(batch)).items():
                    batch[name].done(result)
        finally:
            self._working = None

    async def _drawn(self, batch: Mapping[str, Wanted]) -> Mapping[str, Drawn]:
        refused: dict[str, Drawn] = {}
        current, increment = self._current()
        for name, wanted in batch.items():
            if wanted.residue.increment != increment:
                refused[name] = RingChanged("draws with another increment by now")
            elif wanted.incarnation != current or not current:
                refused[name] = TicketDatabaseUnavailable("was restarted or replaced")
            elif wanted.least > min(wanted.table.last, TICKET_LIMIT):  # which may be more than a bigint holds
                refused[name] = ColumnExhausted("holds no further id for it")
        asked = {name: wanted for name, wanted in batch.items() if name not in refused}
        return refused | (await self._asked(asked, current) if asked else {})

    async def _asked(self, asked: Mapping[str, Wanted], current: str) -> dict[str, Drawn]:
        life, _, node = current.partition("-")
        columns = [list(column) for column in zip(*(wanted.row for wanted in asked.values()), strict=True)]
        try:
            try:
                rows = await self._line.run(lambda c: c.fetch(_DRAW, *columns), life)
            except TicketDatabaseError as error:
                if code_of(error.__cause__) != LOCKED:
                    raise
                rows = await self._line.run(lambda c: c.fetch(_DRAW_UNLOCKED, *columns), life)
        except TicketDatabaseHung as error:
            for wanted in self._waiting:  # they have waited as long
                asyncio.get_running_loop().call_soon(wanted.done, error)
            self._waiting = []
            return dict.fromkeys(asked, error)
        except TicketDatabaseError as error:
            return dict.fromkeys(asked, error)
        found: dict[str, Drawn] = {row["sequence"]: _result(row, asked[row["sequence"]], node) for row in rows}
        lost = TicketDatabaseUnavailable("lost its ring record")
        return {name: found.get(name, lost) for name in asked}


_DRAW, _DRAW_UNLOCKED = sql.draw(), sql.draw(skip_locked=True)


def _result(row: Any, wanted: Wanted, node: str) -> Drawn:
    """What the statement says of one sequence. What was drawn from a table that was made anew becomes a gap."""
    if str(row["node"]) != node:
        return TicketDatabaseUnavailable("had its table of sequences made anew")
    if row["last"] is not None:
        return Draw(row["last"] - wanted.more, wanted.residue.increment, wanted.count)
    if row["number"] not in (None, wanted.residue.ring):
        return RingChanged()
    if row["held"]:
        return ColumnExhausted("holds no further id for it", max(0, row["position"]))
    if row["there"]:
        return SequenceUnavailable("has its row locked by another session")
    return SequenceMissing("has no such sequence")
