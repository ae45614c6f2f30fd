"""The ring record that a MySQL or MariaDB ticket database keeps."""

from app.common.errors import RingChanged, SequenceMissing, TicketDatabaseUnavailable
from app.databases.mysql import own_sql
from app.databases.mysql.driver import Rows
from app.databases.mysql.marks import number_of
from app.databases.mysql.pool import MySQLPool
from app.databases.mysql.rows import whole
from app.databases.protocol import LARGEST_INCREMENT, RingRecord, RingState


class MySQLRing:
    """The part of a MySQL ticket database that knows the ring record."""

    _pool: MySQLPool

    async def record_ring(self, old: RingRecord | None, new: RingRecord) -> RingRecord:
        """See TicketDatabase.record_ring."""
        statement = own_sql.first_ring(row_of(new)) if old is None else own_sql.next_ring(row_of(old), row_of(new))
        async with self._pool.question(anybody=True) as connection:
            await connection.execute(statement)
            record = await connection.ask(own_sql.RING, record_of)
        if record is None:
            raise TicketDatabaseUnavailable("lost its ring record")
        return record

    async def recorded_ring(self) -> RingRecord | None:
        """See TicketDatabase.recorded_ring."""
        try:
            async with self._pool.question(anybody=True) as connection:
                return await connection.ask(own_sql.RING, record_of)
        except SequenceMissing:  # no ticket server has been here
            return None

    async def check_ring(self, number: int) -> None:
        """See TicketDatabase.check_ring."""
        async with self._pool.question(about_marks=True) as connection:
            found = await connection.ask(own_sql.RING_NUMBER, number_of)
        if found != number:
            raise RingChanged


def row_of(record: RingRecord) -> own_sql.RingRow:
    """The record as the table holds it."""
    offsets = ",".join(map(str, record.offsets))
    return record.number, record.increment, record.since, offsets, record.own, str(record.state)


def record_of(rows: Rows) -> RingRecord | None:
    """A `RingRecord` from the row of `own_sql.RING`, None where there is none; see `rows` for what is raised
    where it is none."""
    if not rows:
        return None
    number, increment, since, offsets, own, state = rows[0]
    used = tuple(whole(int(offset), 1, LARGEST_INCREMENT) for offset in str(offsets).split(",") if offset)
    return RingRecord(
        whole(number, 1),
        whole(increment, 1, LARGEST_INCREMENT),
        whole(since, 1),
        used,
        whole(own, 1, LARGEST_INCREMENT),
        RingState(str(state)),
    )
