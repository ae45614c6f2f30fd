"""The ring record that a MySQL or MariaDB ticket database keeps, and who else is connected to it."""

import asyncio
import time

from app.common.errors import RingChanged, SequenceMissing, TicketDatabaseUnavailable
from app.databases.mysql import statements as sql
from app.databases.mysql.bounds import MOST_CONNECTIONS, listing
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
        statement = sql.first_ring(row_of(new)) if old is None else sql.next_ring(row_of(old), row_of(new))
        async with self._pool.question(anybody=True) as connection:
            await connection.execute(statement)
            record = await connection.ask(sql.RING, record_of)
        if record is None:
            raise TicketDatabaseUnavailable("lost its ring record")
        return record

    async def recorded_ring(self) -> RingRecord | None:
        """See TicketDatabase.recorded_ring."""
        try:
            async with self._pool.question(anybody=True) as connection:
                return await connection.ask(sql.RING, record_of)
        except SequenceMissing:  # no ticket server has been here
            return None

    async def check_ring(self, number: int) -> None:
        """See TicketDatabase.check_ring."""
        async with self._pool.question(about_marks=True) as connection:
            found = await connection.ask(sql.RING_NUMBER, number_of)
        if found != number:
            raise RingChanged

    async def in_use(self, seconds: float) -> list[str]:
        """See TicketDatabase.in_use: a probe of another server, or a connection of the same account."""
        until = time.monotonic() + seconds
        found: dict[str, None] = {}
        first: Rows | None = None
        while True:
            async with self._pool.question(anybody=True) as connection:
                probed = await connection.execute(sql.PROBED)
                others = await connection.ask(sql.CONNECTED, self._others, listing(MOST_CONNECTIONS))
            found.update(dict.fromkeys(others))
            if first is not None and probed != first:
                found["a ticket server that probes it"] = None
            first = probed
            if time.monotonic() >= until:
                return list(found)
            await asyncio.sleep(min(0.5, seconds))

    def _others(self, rows: Rows) -> list[str]:
        """The connections to this database that are not this pool's, each in words. Raises ValueError, TypeError."""
        mine = self._pool.thread_ids()
        return [
            f"a connection of {user} from {str(host).rpartition(':')[0] or host}"
            for id_, user, host, schema, *_ in rows
            if int(id_) not in mine and schema == self._pool.schema
        ]


def row_of(record: RingRecord) -> sql.RingRow:
    """The record as the table holds it."""
    offsets = ",".join(map(str, record.offsets))
    return record.number, record.increment, record.since, offsets, record.own, str(record.state)


def record_of(rows: Rows) -> RingRecord | None:
    """A `RingRecord` from the row of `statements.RING`, None where there is none; see `rows` for what is
    raised where it is none."""
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
