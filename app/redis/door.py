"""The port of the Redis protocol: what its connections share, the turns in which they work, and what they draw.

The commands for one sequence that come in one turn of the event loop, on any connections, share a request.
"""

import asyncio
import itertools
import socket
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from app.access import Access
from app.connections import BACKLOG, Connections, Tally
from app.errors import Exhausted, InvalidRequest, TicketError
from app.operations.watch import Seen, Watch
from app.redis import replies
from app.redis.commands import Client
from app.redis.connection import Connection, Place
from app.service import Service
from app.tickets.request import Request, Shape
from app.tickets.tasks import Tasks

IDLE_SECONDS = 620.0  # without a command
PARTIAL_SECONDS = 10.0  # the same while a command has come in part, or the client does not read
SWEEP = 1.0  # seconds between two looks for connections that are to be closed
IN_TURN = 512  # commands of all connections in one turn of the event loop, and ids of a request that they share


class Drawing(Request):
    """A request for the ids of several places, which are complete when the desk is asked."""

    def __init__(self, door: "RedisDoor", place: Place, **wanted: Any) -> None:
        super().__init__(place.name, place.each * place.times, **({"shape": Shape.LIST} | wanted))
        self._door, self.name, self.places, self.began = door, place.name, [place], time.monotonic()

    def done(self, answer: Any) -> None:
        """Give each place its reply."""
        at = 0
        for place in self.places:
            end = at + place.each * place.times
            place.client.settle(place, replies.OF[place.what](answer if self.is_block else answer[at:end]))
            at = end
        self._door.settled(self)

    def failed(self, error: TicketError) -> None:
        """Give each command the error. There may be ids for some of several, so let each ask for itself then."""
        if sum([place.times for place in self.places]) > 1 and isinstance(error, Exhausted | InvalidRequest):
            for part in [part for place in self.places for part in place.client.split(place)]:
                self._door.service.desk.take(Drawing(self._door, part))
        else:
            for place in self.places:
                place.client.settle(place, replies.refusal(self.name, error) * place.times)
            self._door.settled(self, error)


class RedisDoor:
    """Serves clients that speak the Redis protocol.

    watch: None where neither an access log nor traces are wanted. timeout: in seconds, the request timeout.
    """

    def __init__(
        self, service: Service, access: Access, tally: Tally, limit: Connections, watch: Watch | None, *, timeout: float
    ) -> None:
        self.service, self.access, self.tally, self.limit = service, access, tally, limit
        self._timeout, self._watch, self._loop = timeout, watch, asyncio.get_running_loop()
        self.numbers, self.tasks, self.open = itertools.count(1), Tasks(), set[Connection]()
        self.buffer, self.owed = memoryview(bytearray(16_384)), 0
        self._servers, self._ready, self._is_scheduled = list[asyncio.Server](), deque[Connection](), False
        self._gathered, self._due = dict[str, Drawing](), deque[Drawing]()

    async def accept_on(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections from now on. sockets: they listen already."""
        self.tasks.start(self._sweep())
        for each in sockets:
            self._servers.append(await self._loop.create_server(lambda: Client(self), sock=each, backlog=BACKLOG))

    async def stop(self) -> None:
        """Accept no further connection, answer what is under way, and close the connections."""
        for server in self._servers:
            server.close()
        for connection in self.open:
            connection.leave()
        until = self._loop.time() + self._timeout
        while self.open and self._loop.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for connection in self.open:
            connection.transport.abort()
        await self.tasks.end()

    async def _sweep(self) -> None:
        """Close the connections that are idle, or whose command does not come to its end, until this is cancelled."""
        while True:
            await asyncio.sleep(SWEEP)
            for connection in self.open:
                connection.quiet += SWEEP
                is_stuck = connection.is_full or connection.at < len(connection.data)
                if connection.quiet > (PARTIAL_SECONDS if is_stuck else IDLE_SECONDS):
                    connection.transport.abort()

    def ask(self, connection: Connection) -> None:
        """Let a connection work as soon as it is its turn."""
        connection.is_calm = False
        if not connection.is_queued:
            connection.is_queued = True
            self._ready.append(connection)
            self._wake()

    def _wake(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Let the connections work in the order in which they asked, and have the desk draw."""
        left, self._is_scheduled = IN_TURN, False
        while self._ready and left > 0:
            left -= self._ready.popleft().work()
        left = IN_TURN
        self._gathered.clear()
        while self._due and left > 0:
            drawing = self._due.popleft()
            drawing.clients = len(drawing.places)
            left -= drawing.clients
            self.service.desk.take(drawing)
        if self._ready or self._due:
            self._wake()

    def draw(self, place: Place) -> None:
        """Have ids drawn for a place, together with others of its sequence."""
        place.client.expect(place)
        drawing = self._gathered.get(place.name)
        if drawing is None or drawing.count >= IN_TURN:
            drawing = self._gathered[place.name] = Drawing(self, place)
            self._due.append(drawing)
        else:
            drawing.places.append(place)
            drawing.count += place.each * place.times
        self._wake()

    def draw_alone(self, place: Place, **wanted: Any) -> None:
        """Have ids drawn for a place, behind those that came before. wanted: see Request."""
        place.client.expect(place)
        self._gathered.pop(place.name, None)
        self._due.append(Drawing(self, place, **wanted))
        self._wake()

    def settled(self, drawing: Drawing, error: TicketError | None = None) -> None:
        """Count the commands of a request, which have their replies."""
        seconds, endpoint = time.monotonic() - drawing.began, "block" if drawing.is_block else "ticket"
        commands = sum([place.times for place in drawing.places])
        self.tally.in_flight -= commands
        if error:
            self.tally.refusals[endpoint, error.code] += commands
        else:
            self.tally.seconds[endpoint].add(seconds, commands)
        if self._watch is not None:
            status, began = "ok" if error is None else replies.word_of(error), time.time() - seconds
            for place in drawing.places:
                what = f"{place.what} {place.name}"
                for _ in range(place.times):
                    self._watch.saw(Seen("redis", what, place.name, place.client.address, status, began, seconds))
