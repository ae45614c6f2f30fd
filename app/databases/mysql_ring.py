"""The ring record that a MySQL or MariaDB ticket database keeps, and who else is connected to it."""

import asyncio
import time
from typing import Any

from app.databases import mysql_statements as sql
from app.databases.mysql_pool import MySQLPool
from app.databases.protocol import RingRecord, RingState
from app.errors import RingChanged, TicketDatabaseUnavailable


class MySQLRing:
    """The part of a MySQL ticket database that knows the ring record."""

    _pool: MySQLPool

    async def record_ring(self, old: RingRecord | None, new: RingRecord) -> RingRecord:
        """See TicketDatabase.record_ring."""
        values = (new.number, new.increment, new.since, offsets_text(new.offsets), new.own, str(new.state))
        if old is None:
            statement = sql.first_ring(values)
        else:
            statement = sql.next_ring((old.number, old.increment, offsets_text(old.offsets), str(old.state)), values)
        async with self._pool.question(anybody=True) as connection:
            await connection.execute(statement)
            record = record_of(await connection.execute(sql.RING))
        if record is None:
            raise TicketDatabaseUnavailable("lost its ring record")
        return record

    async def check_ring(self, number: int) -> None:
        """See TicketDatabase.check_ring."""
        async with self._pool.question(about_marks=True) as connection:
            record = record_of(await connection.execute(sql.RING))
        if record is None or record.number != number:
            raise RingChanged

    async def in_use(self, seconds: float) -> list[str]:
        """See TicketDatabase.in_use: a probe of another server, or a connection of the same account."""
        until = time.monotonic() + seconds
        found: dict[str, None] = {}
        first: Any = None
        while True:
            async with self._pool.question(anybody=True) as connection:
                probed = await connection.execute(sql.PROBED)
                mine = self._pool.thread_ids()
                for id_, user, host, schema, *_ in await connection.execute("SHOW PROCESSLIST"):
                    if int(id_) not in mine and schema == self._pool.schema and user not in sql.SYSTEM_USERS:
                        found[f"a connection of {user} from {str(host).rpartition(':')[0] or host}"] = None
            if first is not None and probed != first:
                found["a ticket server that probes it"] = None
            first = probed
            if time.monotonic() >= until:
                return list(found)
            await asyncio.sleep(min(0.5, seconds))


def offsets_text(offsets: tuple[int, ...]) -> str:
    """The offsets as the record holds them."""
    return ",".join(map(str, offsets))


def record_of(rows: tuple[tuple[Any, ...], ...]) -> RingRecord | None:
    """A `RingRecord` from the row of `mysql_statements.RING`, None where there is none.

    Raises TicketDatabaseUnavailable for a row that is no record.
    """
    if not rows:
        return None
    try:
        number, increment, since, offsets, own, state = rows[0]
        used = tuple(int(offset) for offset in str(offsets).split(",") if offset)
        return RingRecord(int(number), int(increment), int(since), used, int(own), RingState(str(state)))
    except (ValueError, TypeError) as error:
        raise TicketDatabaseUnavailable("answered nonsense") from error
