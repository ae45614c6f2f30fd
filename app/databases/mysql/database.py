"""A ticket database on MySQL or MariaDB: its probe here, its draws, tables and ledger in the modules beside it.

It implements the protocol itself and does not stand on `NotebookDatabase`. Four of the ten methods that this asks for
cannot keep here what the protocol promises, for as long as servers of earlier releases use the same tables:

- `sequences`: the name of a table, its columns and its position are answers to three questions. A database that holds
  thousands of sequences names them quickly and positions them slowly; with one question the names would be slow, too.
- `read`: servers of earlier releases write marks without a change number, so what changed lately goes by the database's
  clock, as it stands when the statement runs. A time that was read earlier does not do as a change number: after the
  clock was set back, every mark would seem to have changed before it. The database also chooses which announcements
  stand, since the table holds those of the last day.
- `look`: the table of the announcements is read as it was chosen, in the packet that reads the clock. If the database
  stood still between two statements, a clock read in one would not date what the other finds.
- `write`: each condition is in the statement that it holds for, so that a write is one packet. `after` could only be
  applied between two packets, and a server that stood still there would keep the row of the ring record locked, and
  with it every mark. And thousands of marks are not one transaction, for the same reason.

What remains to be shared is in `TicketDatabase`: the largest block and the announcement. All writes beside the draws go
through `MySQLConnection.run`.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable

from app.common.errors import (
    NoFurtherConnection,
    RingChanged,
    SequenceMissing,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseUnavailable,
)
from app.common.patience import patience
from app.databases.mysql.books import own_sql
from app.databases.mysql.books.definitions import MySQLDefinitions
from app.databases.mysql.books.marks import MySQLLedger
from app.databases.mysql.books.ring_record import RECORD_BOUND, MySQLRing, record_of
from app.databases.mysql.books.rows import clock_of, layout_of
from app.databases.mysql.books.servers import MySQLServers, uses_of
from app.databases.mysql.draws.draws import DrawQueue
from app.databases.mysql.line import session_sql
from app.databases.mysql.line.bounds import MOST_USES, listing
from app.databases.mysql.line.connection import MySQLConnection
from app.databases.mysql.line.pool import REFUSED_SECONDS, MySQLPool
from app.databases.mysql.line.server_facts import ServerFacts
from app.databases.mysql.line.url import DatabaseURL
from app.databases.mysql.tables import MySQLTables, not_crash_safe
from app.databases.protocol import (
    ClockReading,
    Drawn,
    ProbeResult,
    Residue,
    Table,
)

PROBE_CONNECTION_SECONDS = 10.0
"""The server uses a probe's connection for this long. An older one may lead to a database that new ones do not reach.

The server opens the new connection beside the old one. If that fails, the reason decides. A database that answers that
it has no further connection to give is well: the old connection stays in use, with a warning, and the server tries
again after `REFUSED_SECONDS`. If the name service is away, the pool uses the addresses known last (see `MySQLPool`).
After any other failure the database is down. A connection that is refused, cut or not answered in time may mean that
the database is closing, or that the name or a proxy leads elsewhere by now. If the database refuses the password, or
its settings do not fit, a server that starts now cannot draw.
"""


class MySQLDatabase(MySQLTables, MySQLDefinitions, MySQLLedger, MySQLRing, MySQLServers):
    """One MySQL or MariaDB server as a ticket database; owns all its connections."""

    system = "mysql"

    def __init__(
        self,
        url: DatabaseURL,
        offset: int,
        increment: int,
        timeout: float,
        on_retry: Callable[[str], None] = lambda _: None,
        *,
        pool: MySQLPool | None = None,
    ) -> None:
        self.name = url.name
        self.offset = offset
        self.increment = increment
        self._url = url
        self._timeout = timeout
        self._on_retry = on_retry
        self._pool = pool or MySQLPool(url, offset, increment, timeout)
        self._draws = DrawQueue(self._pool, offset, increment, self.position, on_retry)
        self._leaving: set[asyncio.Task[None]] = set()
        self._probe: MySQLConnection | None = None
        self._renew_at = 0.0
        self._forget = False
        self._looking = asyncio.Lock()
        self._layout_warnings: tuple[str, ...] = ()
        self._offsets_used: set[int] = set()

    def __repr__(self) -> str:
        return f"<MySQLDatabase {self.name} offset {self.offset}, {self.connections} connections>"

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._pool.open

    def start_draw(
        self,
        residue: Residue,
        table: Table,
        count: int,
        after: int,
        done: Callable[[Drawn], None],
        *,
        least: int = 0,
    ) -> None:
        """See TicketDatabase.start_draw. That the ring record has another number is seen by the mark."""
        if residue.increment == self.increment:
            self._draws.start_draw(table, count, after, done, least)
        else:
            asyncio.get_running_loop().call_soon(done, RingChanged("draws with another increment by now"))

    async def probe(self) -> ProbeResult:
        """See TicketDatabase.probe."""
        try:
            # one at a time: the probe loop of another database may look at this one too, on the same connection
            async with patience(self._timeout), self._looking:
                known = self._probe
                try:
                    return await self._look()
                except TicketDatabaseUnavailable:
                    if known is None or self._probe is not known:
                        raise
                    self._drop_probe()  # a connection that was cut says nothing about the database
                return await self._look()
        except TimeoutError as error:
            self._drop_probe()
            raise TicketDatabaseUnavailable("did not answer in time") from error
        except TicketDatabaseError:
            # a fresh connection next time: what is wrong may have been put right for new ones only
            self._drop_probe()
            raise

    def use_increment(self, increment: int) -> None:
        """See TicketDatabase.use_increment. A connection keeps the increment that it was prepared with."""
        if increment == self.increment:
            return
        self._drop_probe()
        left = asyncio.get_running_loop().create_task(_leave(self._draws, self._pool))
        self._leaving.add(left)
        left.add_done_callback(self._leaving.discard)
        self.increment = increment
        incarnation = self._pool.incarnation
        self._pool = MySQLPool(self._url, self.offset, increment, self._timeout)
        self._pool.incarnation = incarnation
        before, self._draws = (
            self._draws.forms,
            DrawQueue(self._pool, self.offset, increment, self.position, self._on_retry),
        )
        self._draws.forms.ends_only, self._draws.forms.takes_steps = before.ends_only, before.takes_steps

    async def _probe_connection(self) -> tuple[MySQLConnection, ServerFacts]:
        """A connection to look at the database on, a new one if that is due and can be had, and what it says."""
        if self._probe is not None and not self._probe.usable:
            self._drop_probe()
        if self._probe is None or time.monotonic() >= self._renew_at:
            try:
                fresh = await self._pool.connect(anybody=True)
            except NoFurtherConnection as error:
                self._renew_at = time.monotonic() + REFUSED_SECONDS
                if self._probe is None:
                    self._probe = await self._pool.given_back(error)
            else:
                self._renew_at = time.monotonic() + PROBE_CONNECTION_SECONDS
                self._drop_probe()
                self._probe = fresh
                if self._forget:
                    self._forget = False
                    self._pool.drop_older()
                assert fresh.facts is not None
                await self._prepare_own_tables(fresh)
                if self.describe is not None:
                    for statement in own_sql.FORGET_STALE:
                        with contextlib.suppress(TicketDatabaseBusy):  # another server does it
                            await fresh.execute(statement)
                return fresh, fresh.facts
        return self._probe, await self._probe.check()

    async def _look(self) -> ProbeResult:
        probe, facts = await self._probe_connection()
        if facts.numbered_by_group is not None:
            raise facts.numbered_by_group
        latency = await self._tell_of_itself(probe)
        self._pool.last_answer = time.monotonic()
        asked = self._pool.last_answer
        await probe.start(f"{session_sql.CLOCK}; {own_sql.RECORD}; {own_sql.standing_uses(self.instance)}")
        clock = ClockReading(probe.understand(clock_of), asked, time.monotonic())
        await probe.next(RECORD_BOUND)
        record = probe.understand(record_of)
        await probe.next(listing(MOST_USES))
        uses, older = probe.understand(uses_of)
        self._draws.forms.ends_only = facts.autoinc_lock_mode == 0
        self._draws.forms.takes_steps = facts.takes_steps
        self._folds_names = facts.folds_names
        await self._pool.close_unused()
        if self._pool.incarnation != facts.incarnation:  # at the very end: nobody draws before the caller knows it
            self._pool.incarnation = facts.incarnation
            self._pool.drop_idle()
        if self._pool.last_of_all:  # then draws have it too, and the next probe takes its turn
            self._probe = None
            self._pool.give_back(probe)
        return ProbeResult(
            incarnation=facts.incarnation,
            identity=facts.identity,
            latency=latency,
            increment=facts.increment,
            offset=facts.offset,
            record=record,
            clock=clock,
            warnings=tuple(flaw.wrong for flaw in facts.flaws) + self._layout_warnings + self._pool.warnings,
            setting_names=facts.setting_names,
            folds_names=facts.folds_names,
            uses=uses,
            older=older,
        )

    async def _prepare_own_tables(self, probe: MySQLConnection) -> None:
        """Make the server's own tables where they are missing; needs no privilege where they are there."""
        version = 0
        try:
            version = await probe.ask(own_sql.LAYOUT, layout_of)
            await probe.execute(own_sql.OWN_TABLES_ARE_THERE)
        except SequenceMissing:
            for statement in (*own_sql.OWN_TABLES, own_sql.COMPLETE_KINDS):
                await probe.execute(statement)
        if version < own_sql.LAYOUT_VERSION:
            await probe.execute(own_sql.RECORD_LAYOUT)
            version = own_sql.LAYOUT_VERSION
        self._layout_warnings = tuple(flaw.wrong for flaw in await probe.ask(own_sql.ENGINES, not_crash_safe))
        if version > own_sql.LAYOUT_VERSION:
            known = own_sql.LAYOUT_VERSION
            self._layout_warnings += (f"its own tables have version {version}, newer than this server's {known}",)

    def _drop_probe(self) -> None:
        if self._probe is not None:
            self._pool.discard(self._probe)
            self._probe = None

    def forget_connections(self) -> None:
        """See TicketDatabase.forget_connections: the old ones are dropped when the next probe has a new one."""
        self._renew_at = 0.0
        self._forget = True
        self._pool.begin_era()

    async def close(self) -> None:
        """See TicketDatabase.close."""
        if self.describe is not None and self._probe is not None and self._probe.usable:
            with contextlib.suppress(TicketDatabaseError, TimeoutError):
                async with patience(self._timeout):
                    await self._probe.run(own_sql.forget_server(self.instance))
        if self._probe is not None:
            probe, self._probe = self._probe, None
            self._pool.give_back(probe)
        await asyncio.gather(_leave(self._draws, self._pool), *self._leaving)


async def _leave(draws: DrawQueue, pool: MySQLPool) -> None:
    """End what is under way and end every connection in good order."""
    await draws.close()
    await pool.close()
