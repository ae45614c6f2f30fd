"""The probe loops: they keep the state of each ticket database true, off the way of any ticket.

Each database has a loop. It probes the database with a committed write and checks its settings. Then it admits the
database into the ring, or, if the database is up, reads and writes marks. Work that takes long with many sequences
(`chores`) runs beside the loop, so that it delays no probe.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from app.common.errors import (
    ColumnExhausted,
    RingChanged,
    SequenceUnavailable,
    TicketDatabaseError,
    TicketDatabaseMisconfigured,
    TicketDatabaseUnavailable,
)
from app.common.log import event
from app.common.tasks import Tasks
from app.databases.protocol import USE_INTERVALS, ProbeResult, check_settings
from app.tickets.agreement.record import overtakes, same_ring
from app.tickets.agreement.ring_records import RingRecords
from app.tickets.lanes.id_guard import WrongResidue
from app.tickets.marks.ledger import Ledger
from app.tickets.reserve.reserves import Reserves
from app.tickets.reserve.window import HURRY_SECONDS
from app.tickets.ring.failures import Asked, Effect
from app.tickets.ring.ring import Member, Ring
from app.tickets.sequences.catalog import Catalog
from app.tickets.sources.server_clock import ServerClock
from app.tickets.watch.admission import Admission
from app.tickets.watch.chores import Chores

log = logging.getLogger(__name__)

LAST_PROBE_SECONDS = 1.0
"""How long `stop` waits for a probe that is under way: a connection that is cancelled cannot end in good order."""


class Prober:
    """Probes the databases every `interval` seconds, and at once when one goes down."""

    def __init__(
        self,
        ring: Ring,
        records: RingRecords,
        ledger: Ledger,
        catalog: Catalog,
        server_clock: ServerClock,
        *,
        reserves: Reserves,
        interval: float,
        forgets_after: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`forgets_after`: seconds for which it counts that a database could not be reached."""
        self._chores = Chores(ring, ledger, catalog, clock)
        self._ring = ring
        self._ledger = ledger
        self._catalog = catalog
        self._server_clock = server_clock
        self._reserves = reserves
        self._interval = interval
        self._forgets_after = forgets_after
        self._loops = Tasks()
        self._stopping = False
        self._admission = Admission(
            ring, records, ledger, catalog, chores=self._chores, probe=self._look, reserves=reserves
        )

    def start(self) -> None:
        """Begin the loops. Each probes its database at once."""
        for member in self._ring.members:
            self._loops.spawn(self._loop(member))

    async def settled(self) -> None:
        """Wait until every database has been probed once, and its tables have been listed."""
        while not all(member.settled for member in self._ring.members):
            await self._ring.wait_for_change(self._interval, expected=True)
        await self._chores.done()

    async def stop(self) -> None:
        """End the loops, each after the probe that is under way. Then write what was issued last to the databases."""
        self._stopping = True
        for member in self._ring.members:
            member.wake.set()
        await self._loops.wait(LAST_PROBE_SECONDS)
        await asyncio.gather(self._loops.cancel(), self._chores.stop())
        for member in self._ring.members:
            if member.up:
                try:
                    await self._ledger.exchange.refresh(member, self._catalog.lanes)
                except TicketDatabaseError as error:
                    event(log, logging.DEBUG, "could not write the last marks", database=member.name, reason=error)

    async def _loop(self, member: Member) -> None:
        while not self._stopping:
            member.wake.clear()
            try:
                await self._probe(member)
            except Exception:
                log.exception("a probe met an error it does not know: database=%s", member.name)
            if not member.wake.is_set():  # else it went down during the probe, whose result says nothing then
                self._ring.settle(member)
            try:
                # if no database is up, every request waits for the first that comes up
                async with asyncio.timeout(self._interval if self._ring.any_up else min(self._interval, HURRY_SECONDS)):
                    await member.wake.wait()
            except TimeoutError:
                pass

    async def _probe(self, member: Member) -> None:
        known, began = member.probe_result, self._reserves.clock()
        result = await self._look(member)  # without the lock: a database that hangs delays no admission
        if result is None:
            return
        if member.up and member.probe_result is not known:
            result = member.probe_result  # an admission has had this database record a newer ring meanwhile
            assert result is not None
        if member.up and result.incarnation != member.incarnation:
            self._ring.mark_down(member, "was restarted or replaced")
        elif member.up and not same_ring(result.record, self._ring.record):
            self._ring.records_another_ring(self._ring.number, "had its ring record changed")
        if member.up and not self._ring.is_changing:  # else the result is from before the change
            member.probe_result = result
        if member.up:
            self._ring.settle(member)
        else:
            await self._admission.take_in(member)
        if member.up:
            await self._keep_marks(member, began)
        if member.up:
            self._chores.do(member)

    async def _look(self, member: Member) -> ProbeResult | None:
        """Probe the database. Returns None if the probe failed, after it has told the ring."""
        began = self._reserves.clock()
        result = await self._ask(member, began)
        if result is None:
            member.sure_until = self._reserves.clock() + self._forgets_after
        else:
            member.sure_until = began + USE_INTERVALS * self._interval
            if overtakes(result.record, self._ring.record):  # also where it is not up: all that are draw on, else
                self._ring.records_another_ring(self._ring.number, "had its ring record changed")
        return result

    async def _ask(self, member: Member, began: float) -> ProbeResult | None:
        answered = False
        try:
            result = await member.database.probe()
            answered = True
            self._server_clock.note(member.name, result.clock)
            if result.record is not None and same_ring(result.record, self._ring.record):  # else they do not agree yet
                check_settings(result, result.record.increment, member.database.offset)
            if member.residue_of is not None:
                result = await self._check_residue(member, member.residue_of)
            self._check_identity(member, result)
            self._check_folding(member, result)
        except TicketDatabaseError as error:
            reached = answered or not isinstance(error, TicketDatabaseUnavailable)
            self._reserves.looked(member, began, reached=reached)  # before requests that wait for the database go on
            if self._ring.failed(member, error, Asked.PROBE) is Effect.QUARANTINED:
                member.database.forget_connections()
            return None
        self._reserves.looked(member, began, reached=True)
        return result

    def _check_identity(self, member: Member, result: ProbeResult) -> None:
        for other in self._ring.members:
            if other is member:
                return
            if other.probe_result is not None and other.probe_result.identity == result.identity:
                raise TicketDatabaseMisconfigured(f"is the same server as {other.name}")

    def _check_folding(self, member: Member, result: ProbeResult) -> None:
        """Quarantine a database that folds names beside one that does not: they cannot have the same sequences."""
        folded_before = self._ring.folds_names
        member.folds_names = result.folds_names
        for other in self._ring.members:
            if other is not member and other.up and (reason := self._ring.folds_alone(other)):
                self._ring.quarantine(other, reason)
        if folded_before and not self._ring.folds_names:
            self._catalog.forget()  # its names are folded
        if reason := self._ring.folds_alone(member):
            raise TicketDatabaseMisconfigured(reason)

    async def _check_residue(self, member: Member, sequence: str) -> ProbeResult:
        """Draw once, on a new connection, from the sequence that gave an id of a wrong residue. Drops the ticket.

        Raises WrongResidue if this id is wrong, too. If the sequence is at its end or its table is locked, the draw
        proves nothing, and the database may come up: the server checks every id all the same.
        """
        member.database.forget_connections()
        result = await member.database.probe()
        table = (await member.database.tables([sequence])).get(sequence)
        lane = self._catalog.lanes.get((sequence, member.database.offset))
        if table is None or lane is None:
            return result
        try:
            residue = lane.residue._replace(ring=self._ring.number)
            lane.guard.check(await member.database.draw(residue, table, 1, 0), 0)
        except WrongResidue as error:
            raise WrongResidue(f"{error} (sequence {sequence})") from error
        except (ColumnExhausted, RingChanged, SequenceUnavailable) as error:
            event(log, logging.DEBUG, "the residue is not wrong", database=member.name, reason=error)
        return result

    # --- while it is up --------------------------------------------------------------------------------------------

    async def _keep_marks(self, member: Member, began: float) -> None:
        """Read the marks that the database keeps, and write there what was issued. Try again where it could keep none.

        `began`: when the probe before this began.
        """
        number = self._ring.number
        try:
            if member.marks_error is not None and not await self._admission.keep_marks_again(member):
                return
            knows_servers = await self._reserves.ask_for_servers(member)

            def on_read() -> None:
                if knows_servers:
                    self._reserves.read(member, began)

            await self._ledger.exchange.refresh(member, self._catalog.lanes, on_read)
        except TicketDatabaseError as error:
            if self._ring.failed(member, error, Asked.UPKEEP, number) is Effect.NOTHING:
                event(log, logging.WARNING, "could not read its marks", database=member.name, reason=error)
