"""Which ticket servers use a MySQL or MariaDB ticket database, and who else is connected to it."""

import asyncio
import time

from app.databases.mysql import own_sql, session_sql
from app.databases.mysql.bounds import MOST_CONNECTIONS, MOST_SERVERS, listing
from app.databases.mysql.driver import Rows
from app.databases.mysql.pool import MySQLPool
from app.databases.protocol import ServerEntry


class MySQLServers:
    """The part of a MySQL ticket database that knows who uses it."""

    _pool: MySQLPool
    _entry: ServerEntry | None

    def announce(self, entry: ServerEntry) -> None:
        """See TicketDatabase.announce."""
        self._entry = entry

    async def servers(self, within: float) -> list[ServerEntry]:
        """See TicketDatabase.servers."""
        async with self._pool.question(anybody=True) as connection:
            return await connection.ask(own_sql.servers(within), servers_of, listing(MOST_SERVERS))

    async def in_use(self, seconds: float) -> list[str]:
        """See TicketDatabase.in_use: a probe of another server, or a connection of the same account."""
        until = time.monotonic() + seconds
        probed = own_sql.probed(self._entry.instance if self._entry is not None else "")
        found: dict[str, None] = {}
        first: dict[str, str] | None = None
        while True:
            async with self._pool.question(anybody=True) as connection:
                seen = await connection.ask(probed, _moments_of, listing(MOST_SERVERS))
                others = await connection.ask(session_sql.CONNECTED, self._others, listing(MOST_CONNECTIONS))
            found.update(dict.fromkeys(others))
            first = seen if first is None else first
            if any(first.get(instance) != at for instance, at in seen.items()):
                found["a ticket server that probes it"] = None
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


def _moments_of(rows: Rows) -> dict[str, str]:
    """When each server has probed, from the rows of `own_sql.probed`. Raises ValueError, TypeError."""
    return {str(instance): str(at) for instance, at in rows}


def announcement_of(entry: ServerEntry) -> str:
    """The statement that a server probes with."""
    kinds = ",".join(entry.kinds)
    return own_sql.announce(entry.instance, entry.release, kinds, entry.probe_interval, entry.reserve_window)


def servers_of(rows: Rows) -> list[ServerEntry]:
    """The servers in the rows of `own_sql.servers`. Raises ValueError, TypeError."""
    return [
        ServerEntry(
            instance, release, tuple(kinds.split(",")) if kinds else (), float(interval), float(window), float(at)
        )
        for instance, release, kinds, interval, window, at in rows
    ]
