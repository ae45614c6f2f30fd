"""The ticket servers that use a MySQL or MariaDB ticket database, and the other clients connected to it."""

import asyncio
import time

from app.databases.mysql.books import own_sql
from app.databases.mysql.books.book import MySQLBook
from app.databases.mysql.books.rows import place, release, whole, word
from app.databases.mysql.line import session_sql
from app.databases.mysql.line.bounds import MOST_CONNECTIONS, MOST_SERVERS, listing
from app.databases.mysql.line.connection import MySQLConnection
from app.databases.mysql.line.driver import Rows
from app.databases.protocol import LARGEST_INCREMENT, ServerEntry, Use


class MySQLServers(MySQLBook):
    """The part of a MySQL ticket database that knows its users."""

    _offsets_used: set[int]

    async def _tell_of_itself(self, connection: MySQLConnection) -> float:
        """Write and commit what the server announces, or what any program that probes writes. Returns the seconds that
        the first commit took."""
        began = time.monotonic()
        if self.describe is None:
            await connection.execute(own_sql.PROBE)
            return time.monotonic() - began
        entry = self.describe()
        # in this order, so that no other server takes it for one of an earlier release, which announces no bodies
        await connection.start(f"{own_sql.use(*self._used(entry))}; {announcement_of(entry)}")
        took = time.monotonic() - began
        await connection.next()
        return took

    def _used(self, entry: ServerEntry) -> tuple[str, list[own_sql.UseRow], float]:
        """The bodies of data that this server uses, as arguments of `own_sql.use`."""
        used = {use.offset: (use.offset, use.word, use.place, use.server) for use in entry.uses or ()}
        self._offsets_used |= used.keys()
        rows = [used.get(offset, (offset, "", "", "")) for offset in sorted({own_sql.NO_OFFSET, *self._offsets_used})]
        return entry.instance, rows, entry.probe_interval

    async def servers(self, within: float) -> list[ServerEntry]:
        """See TicketDatabase.servers."""
        async with self._pool.question(anybody=True) as connection:
            return await connection.ask(own_sql.servers(within), servers_of, listing(MOST_SERVERS))

    async def in_use(self, seconds: float) -> list[str]:
        """See TicketDatabase.in_use: a probe of another server, or a connection of the same account."""
        until = time.monotonic() + seconds
        probed = own_sql.probed(self.instance)
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


def uses_of(rows: Rows) -> tuple[tuple[Use, ...], tuple[str, ...]]:
    """The announcements in the rows of `own_sql.standing_uses`, and the releases of the servers that announce nothing.
    Raises ValueError, TypeError."""
    uses = [
        Use(whole(offset, 1, LARGEST_INCREMENT), word(word_), place(place_), place(server))
        for offset, word_, place_, server in rows
        if offset != own_sql.NO_OFFSET
    ]
    older = {release(text) for offset, *_, text in rows if offset == own_sql.NO_OFFSET}
    return tuple(uses), tuple(sorted(older))


def servers_of(rows: Rows) -> list[ServerEntry]:
    """The servers in the rows of `own_sql.servers`. Raises ValueError, TypeError."""
    return [
        ServerEntry(
            instance, release, tuple(kinds.split(",")) if kinds else (), float(interval), float(window), float(at)
        )
        for instance, release, kinds, interval, window, at in rows
    ]
