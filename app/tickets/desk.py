"""The desk: where every door brings its requests, and where they run out of time.

A request for a sequence that the desk does not know yet waits until the catalog has found it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

from app.databases.record import State
from app.errors import Defect, Draining, Growing, OutOfTime, TicketError
from app.tickets.catalog import Catalog, Entry
from app.tickets.lane import Lane
from app.tickets.request import Request
from app.tickets.sight import Sight
from app.tickets.source import Source
from app.tickets.tasks import Tasks

log = logging.getLogger(__name__)

SWEEP = 0.05
"""Seconds between two looks for requests that have run out of time."""


class Desk:
    """Takes requests for ids.

    catalog: knows which sequences there are. sight: of this server. make_source: makes the source of a sequence.
    seconds: the request timeout. One task runs `run`.
    """

    def __init__(self, catalog: Catalog, sight: Sight, make_source: Callable[[Entry], Source], seconds: float) -> None:
        self._catalog, self._sight, self._make_source, self._seconds = catalog, sight, make_source, seconds
        self._sources: dict[str, Source] = {}
        self._finding: dict[str, list[Request]] = {}
        self._waiting: deque[Request] = deque()
        """What was not answered at once, and some that have been answered since."""
        self._tasks = Tasks()
        self._loop = asyncio.get_running_loop()
        self._has_ended = False

    @property
    def sources(self) -> list[Source]:
        """The sources of the sequences that were asked for."""
        return list(self._sources.values())

    @property
    def lanes(self) -> list[Lane]:
        """The lanes of the sequences that were asked for."""
        return [lane for source in self._sources.values() for lane in source.lanes]

    def source(self, sequence: str) -> Source | None:
        """Return the source of a sequence, if it was asked for. sequence: its name in lower case."""
        return self._sources.get(sequence)

    @property
    def increment(self) -> int:
        """The ring's increment, 1 while it is not known."""
        record = self._sight.record
        return 1 if record is None else record.increment

    def known(self, sequence: str) -> Entry | None:
        """Return the sequence, if this server knows it already. sequence: its name in lower case."""
        return self._catalog.entries.get(sequence)

    def take(self, request: Request) -> None:
        """Serve a request: its `done` or its `failed` is called once, now or before the request timeout is over."""
        if self._has_ended:
            request.fail(Draining())
            return
        source = self._sources.get(request.sequence)
        if source is not None and request.is_plain and (issued := source.ready()) is not None:
            request.finish(issued)
            return
        request.deadline = self._loop.time() + self._seconds
        waiting = self._waiting
        while waiting and waiting[0].is_over:  # what stays here costs the garbage collector more than all the rest
            waiting.popleft()
        waiting.append(request)
        if source is None:
            self._find(request)
        else:
            self._ask(source, request)

    async def end(self) -> None:
        """End everything that is under way; what waits fails, and so does every later request."""
        self._has_ended = True
        _fail(self._waiting, Draining())
        await asyncio.gather(self._tasks.end(), *(source.end() for source in self.sources), return_exceptions=True)

    def forget(self, entry: Entry) -> None:
        """The catalog serves this entry no more: look its sequence up again for the requests that wait."""
        source = self._sources.pop(entry.key, None)
        if source is not None:
            self._tasks.start(self._retire(source))

    async def _retire(self, source: Source) -> None:
        for request in await source.end():
            self._find(request)

    def _ask(self, source: Source, request: Request) -> None:
        try:
            source.ask(request)
        except Exception:  # a defect in one source is nobody else's affair
            log.exception("a request for %s could not be handed on", source.sequence)
            request.fail(Defect())

    # --- finding a sequence ------------------------------------------------------------------------------------------

    def _find(self, request: Request) -> None:
        name = request.sequence
        if name in self._finding:
            self._finding[name].append(request)
        else:
            self._finding[name] = [request]
            self._tasks.start(self._look_up(name))

    async def _look_up(self, name: str) -> None:
        try:
            entry = await self._catalog.find(name)
            source = self._sources.get(name) or self._make_source(entry)
        except TicketError as error:
            _fail(self._finding.pop(name), error)
            return
        except Exception:
            log.exception("the sequence %s could not be looked up", name)
            _fail(self._finding.pop(name), Defect())
            return
        self._sources[name] = source
        for request in self._finding.pop(name):
            if not request.is_over:
                self._ask(source, request)

    # --- running out of time -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fail the requests that have run out of time, until this is cancelled."""
        while True:
            await asyncio.sleep(SWEEP)
            now = self._loop.time()
            late = [request for request in self._waiting if not request.is_over and request.deadline <= now]
            if late:
                _fail(late, self._out_of_time())
            self._waiting = deque(request for request in self._waiting if not request.is_over)

    def _out_of_time(self) -> TicketError:
        record = self._sight.record
        if record is not None and record.state is State.CHANGING:
            return Growing()
        return OutOfTime(f"the request was not served within {self._seconds:g} s")


def _fail(requests: Iterable[Request], error: TicketError) -> None:
    for request in requests:
        request.fail(error)
