"""The ring record that a MySQL or MariaDB ticket database keeps, and the bodies of data in it."""

import asyncio
from collections.abc import Callable

from app.common.errors import RingChanged, SequenceMissing, TicketDatabaseUnavailable
from app.databases.mysql.books import own_sql
from app.databases.mysql.books.book import MySQLBook
from app.databases.mysql.books.marks import number_of
from app.databases.mysql.books.rows import life, place, whole, word
from app.databases.mysql.line.bounds import MOST_BODIES, listing
from app.databases.mysql.line.connection import Question
from app.databases.mysql.line.driver import Rows
from app.databases.protocol import LARGEST_INCREMENT, Body, RingRecord, RingState, ServerEntry

RECORD_BOUND = listing(MOST_BODIES)
"""Of a whole record."""


class MySQLRing(MySQLBook):
    """The part of a MySQL ticket database that knows the ring record."""

    _used: Callable[[ServerEntry], tuple[str, list[own_sql.UseRow], float]]
    _looking: asyncio.Lock

    async def record_ring(self, old: RingRecord | None, new: RingRecord) -> RingRecord:
        """See TicketDatabase.record_ring. A deadlock with another server that does the same is tried again.

        No probe is under way meanwhile: it would announce what was used before.
        """
        async with self._looking:
            announced = None if self.describe is None else self._used(self.describe())
            parts = row_of(new), _increments_of(new), _bodies_of(new), announced
            statements = own_sql.first_ring(*parts) if old is None else own_sql.next_ring(row_of(old), *parts)
            question = Question(own_sql.RECORD, record_of, RECORD_BOUND)
            record: RingRecord | None = (await self._write(statements, question, anybody=True))[0]
        if record is None:
            raise TicketDatabaseUnavailable("lost its ring record")
        return record

    async def recorded_ring(self) -> RingRecord | None:
        """See TicketDatabase.recorded_ring."""
        for statement, make in ((own_sql.RECORD, record_of), (own_sql.RING, earlier_record_of)):
            try:
                async with self._pool.question(anybody=True) as connection:
                    return await connection.ask(statement, make, RECORD_BOUND)
            except SequenceMissing:  # of an earlier layout, or no ticket server has been here
                continue
        return None

    async def check_ring(self, number: int) -> None:
        """See TicketDatabase.check_ring."""
        async with self._pool.question(about_marks=True) as connection:
            found = await connection.ask(own_sql.RING_NUMBER, number_of)
        if found != number:
            raise RingChanged


def row_of(record: RingRecord) -> own_sql.RingRow:
    """The part of the record that servers of earlier releases know, as the table holds it."""
    return record.number, record.increment, record.since, _joined(record.offsets), record.own, str(record.state)


def _bodies_of(record: RingRecord) -> list[own_sql.BodyRow]:
    heard = [(offset, body.number, body.word, body.place, "") for offset, body in record.bodies]
    return [(own_sql.OWN_BODY, 0, record.body, "", record.life), *heard]


def _increments_of(record: RingRecord) -> str:
    return _joined((record.increment, *record.former))


def _joined(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def record_of(rows: Rows) -> RingRecord | None:
    """A `RingRecord` from the rows of `own_sql.RECORD`, None where no ring is recorded; see `rows` for what is raised
    where a value cannot be one."""
    ring: RingRecord | None = None
    increments: tuple[int, ...] = ()
    bodies: dict[int, Body] = {}
    own = "", ""
    for part, number, numeral, since, own_offset, text, more, life_ in rows:
        if part == "ring":
            ring = earlier_record_of(((number, numeral, since, text, own_offset, more),))
        elif part == "more":
            increments = _numbers(text)
        elif whole(numeral, 0, LARGEST_INCREMENT) == own_sql.OWN_BODY:
            own = word(text), life(life_)
        else:
            bodies[int(numeral)] = Body(whole(number), word(text), place(more))
    if ring is None:
        return None
    return RingRecord(
        ring.number,
        ring.increment,
        ring.since,
        ring.offsets,
        ring.own,
        ring.state,
        tuple(sorted(bodies.items())),
        *own,
        former=tuple(sorted(set(increments) - {ring.increment})),
    )


def earlier_record_of(rows: Rows) -> RingRecord | None:
    """The ring record in a row of `own_sql.RING`, which knows no bodies."""
    if not rows:
        return None
    number, increment, since, offsets, own, state = rows[0]
    return RingRecord(
        whole(number, 1),
        whole(increment, 1, LARGEST_INCREMENT),
        whole(since, 1),
        _numbers(offsets),
        whole(own, 1, LARGEST_INCREMENT),
        RingState(str(state)),
    )


def _numbers(text: object) -> tuple[int, ...]:
    return tuple(whole(int(each), 1, LARGEST_INCREMENT) for each in str(text).split(",") if each)
