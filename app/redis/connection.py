"""One client connection, and what all of them share.

A command that waits for a ticket does not hold up the next commands. The replies go out in the order of the commands.
A connection executes no command while it owes too much (OWED, OWED_IN_ALL, the transport's write buffer), and does not
read its socket while it keeps a whole command.

The commands for one sequence that come in one turn of the event loop, on any connections, share a request. A statement
costs a database about the same for few ids as for many, so few commands wait a moment for others: while more commands
are under way, and if more were answered together last, because their clients come back.
"""

import asyncio
import itertools
import time
from abc import abstractmethod
from bisect import bisect_left
from collections import Counter, deque
from typing import Any

from app.access import Access, Right
from app.connections import Admission, Connections
from app.errors import Exhausted, InvalidRequest, TicketError
from app.operations.tally import Tally
from app.operations.watch import Seen, Watch
from app.redis import replies
from app.redis.parser import LONGEST_LINE, only_row
from app.service import Service
from app.tickets.request import Request, Shape
from app.tickets.tasks import Tasks

OWED = 65_536  # bytes of replies that one connection may wait for
IN_TURN = 512  # commands of all connections in one turn of the event loop, and ids of a request that they share
HOLD_SECONDS = 0.002  # how long few commands wait for others at most
FEW = 8  # commands that were answered together and are not worth waiting for
OWED_IN_ALL = 4_194_304  # the same of all connections; one that waits for none executes commands still


class Place:
    """The place of a reply among those of a client: to a command, or to the same one `times` times in a row.

    each: how many ids each of the commands wants. size: the bytes that it counts for until it is written.
    """

    __slots__ = ("client", "each", "name", "reply", "size", "times", "what")

    def __init__(self, client: "Connection", what: str, name: bytes, times: int, each: int) -> None:
        self.client, self.what, self.times, self.each = client, what, times, each
        self.name = name.decode("latin-1")  # letters beyond ASCII are refused later
        self.size = 80 * times * each
        self.reply: bytes | None = None


class Drawing(Request):
    """A request for the ids of several places.

    asked: for how many the desk was asked.
    """

    asked = 0

    def __init__(self, door: "Shared", place: Place, **wanted: Any) -> None:
        super().__init__(place.name, place.each * place.times, **({"shape": Shape.LIST} | wanted))
        self._door, self.name, self.places, self.began = door, place.name, [place], time.monotonic()

    def add(self, place: Place) -> None:
        """Ask for the ids of this place, too."""
        self.places.append(place)
        self.count += place.each * place.times

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
            self._door.ended(self)
            for part in [part for place in self.places for part in place.client.split(place)]:
                self._door.ask_for(Drawing(self._door, part))
        else:
            for place in self.places:
                place.client.settle(place, replies.refusal(self.name, error) * place.times)
            self._door.settled(self, error)


class Connection(asyncio.BufferedProtocol):
    """The server's side of a connection.

    number: the client's id. data: the bytes that came, of which those before `at` are done. times: how often the
    present command stands in a row. waiting: the replies that are not written. owed: the bytes that they count for.
    quiet: seconds without a command. is_calm: nothing is left to execute, and nothing prevents it. is_queued: it waits
    for its turn. is_full: the client does not read. version: of the protocol. queue: the commands since MULTI, `queued`
    of them, None outside of a transaction. is_broken: the server refused one of them.
    """

    def __init__(self, door: "Shared") -> None:
        self.door, self.number = door, next(door.numbers)
        self.waiting, self.data, self.at, self.times, self.owed, self.quiet = deque[Place](), b"", 0, 1, 0, 0.0
        self.is_calm, self.is_queued, self.is_full, self.is_leaving, self.has_ended = True, False, False, False, False
        self.reset()

    def reset(self) -> None:
        """Become as a new connection is."""
        self.version, self.is_broken, self.queued = 2, False, 0
        self.queue: bytearray | None = None
        self._token: str | None = None
        self._generation = -1

    def authenticate(self, token: bytes) -> bool:
        """Take this token for the connection; return whether it may draw."""
        self._token, self._generation = token.decode("utf-8", "surrogateescape"), -1
        if not self.may_draw:
            self.door.tally.denied(Right.TICKETS)
        return self.may_draw

    @property
    def may_draw(self) -> bool:
        """Whether the client may draw and read now: the tokens may have been replaced since it showed its own."""
        access = self.door.access
        if self._generation != access.generation:
            try:
                access.check(self._token, Right.TICKETS)
            except TicketError:
                return False
            self._generation = access.generation
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve the client, or turn it away, which counts as a refused ticket."""
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.address = str((transport.get_extra_info("peername") or ["unknown"])[0])
        self._admission = self.door.limit.admit()
        if self._admission is Admission.SERVED:
            self.door.open.add(self)
        else:
            self.door.tally.refused("ticket", "too-many-connections")
            self.reply(replies.error("ERR", "max number of clients reached"))
            self.leave()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client. The desk draws what it waits for all the same: a gap, which is owed until then."""
        self.leave()
        self.door.open.discard(self)
        self.door.limit.leave(self._admission)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next read goes: it is copied before there can be another one."""
        return self.door.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Draw at once for a read that is a row and no more, or keep it until it is this connection's turn."""
        read = self.door.buffer[:nbytes].tobytes()
        if self.at == len(self.data):
            self.quiet = 0.0
        row = only_row(read) if self.is_calm and not self.waiting and nbytes <= LONGEST_LINE else None
        if row and self.may_draw:
            self.door.draw(Place(self, "INCR", *row, 1))
        elif not self.is_leaving:
            self.data, self.at = self.data[self.at :] + read, 0
            self.transport.pause_reading()
            self.door.ask(self)

    def eof_received(self) -> bool:
        """Keep the connection until the client has its replies."""
        self.has_ended = True
        self.door.ask(self)
        return True

    def pause_writing(self) -> None:
        """The client does not read: execute nothing."""
        self.is_full, self.is_calm = True, False

    def resume_writing(self) -> None:
        """The client has read."""
        self.is_full = False
        self.door.ask(self)

    def leave(self) -> None:
        """Close the connection after the replies that are under way. What else has come is not executed."""
        self.is_leaving, self.data, self.at = True, b"", 0
        self.door.ask(self)

    @abstractmethod
    def work(self) -> int:
        """Execute AT_ONCE commands at most, and send the replies that are there; return about how many these were."""

    def reply(self, data: bytes) -> None:
        """Give the whole reply to the command that is being executed."""
        place = Place(self, "", b"", 0, 0)
        place.reply, place.size = data, len(data)
        self.expect(place)

    def expect(self, place: Place) -> None:
        """The reply to the command that is being executed comes here."""
        self.waiting.append(place)
        self.owed += place.size
        self.door.owed += place.size
        self.door.tally.in_flight += place.times

    def split(self, place: Place) -> list[Place]:
        """Give each command of a row its own place, and return these."""
        at = self.waiting.index(place)
        del self.waiting[at]
        parts = [Place(self, place.what, place.name.encode("latin-1"), 1, place.each) for _ in range(place.times)]
        for part in parts:
            self.waiting.insert(at, part)
        return parts

    def settle(self, place: Place, reply: bytes) -> None:
        """The reply for a place is there."""
        place.reply = reply
        if self.is_calm and len(self.waiting) == 1:  # a client that sends and waits
            self.flush()
        elif self.waiting and self.waiting[0] is place:
            self.door.ask(self)

    def flush(self) -> None:
        """Write what is there up to the first reply that is not; close the connection where that was all."""
        out: list[bytes] = []
        while self.waiting and (reply := self.waiting[0].reply) is not None:
            out.append(reply)
            size = self.waiting.popleft().size
            self.owed -= size
            self.door.owed -= size
        if self.transport.is_closing():
            return
        if out:
            self.transport.write(b"".join(out))
        if self.is_leaving and not self.waiting:
            self.transport.close()


class Shared:
    """The state that all connections share, and the turns in which they work.

    watch: None where neither an access log nor traces are wanted. timeout: in seconds, the request timeout.
    """

    def __init__(
        self, service: Service, access: Access, tally: Tally, limit: Connections, watch: Watch | None, *, timeout: float
    ) -> None:
        self.service, self.access, self.tally, self.limit = service, access, tally, limit
        self.timeout, self._watch, self._loop = timeout, watch, asyncio.get_running_loop()
        self.numbers, self.tasks, self.open = itertools.count(1), Tasks(), set[Connection]()
        self.buffer, self.owed = memoryview(bytearray(16_384)), 0
        self.servers, self._ready, self._is_scheduled = list[asyncio.Server](), deque[Connection](), False
        self._gathered, self._due = dict[str, Drawing](), deque[Drawing]()
        self._under_way, self._together = Counter[str](), Counter[str]()

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
        left, waiting, now = IN_TURN, [], time.monotonic()
        while self._due and left > 0:
            drawing = self._due.popleft()
            name, count = drawing.name, len(drawing.places)
            if drawing is self._gathered.get(name):
                if count < max(self._under_way[name], self._together[name]) and now < drawing.began + HOLD_SECONDS:
                    waiting.append(drawing)
                    continue
                del self._gathered[name]
            left -= count
            self.ask_for(drawing)
        if self._ready or self._due:
            self._wake()
        elif waiting:
            self._loop.call_later(HOLD_SECONDS, self._wake)
        self._due.extendleft(reversed(waiting))

    def draw(self, place: Place) -> None:
        """Have ids drawn for a place, together with others of its sequence."""
        place.client.expect(place)
        drawing = self._gathered.get(place.name)
        if drawing is None or drawing.count >= IN_TURN:
            drawing = self._gathered[place.name] = Drawing(self, place)
            self._due.append(drawing)
        else:
            drawing.add(place)
        self._wake()

    def draw_alone(self, drawing: Drawing) -> None:
        """Have ids drawn for a request, behind what came for its sequence before."""
        self._gathered.pop(drawing.name, None)
        self._due.append(drawing)
        self._wake()

    def ask_for(self, drawing: Drawing) -> None:
        """Have the desk draw for a request."""
        drawing.asked = len(drawing.places)
        self._under_way[drawing.name] += drawing.asked
        self.service.desk.take(drawing)
        if drawing.is_over:  # from memory: nothing is spared by waiting
            self._together[drawing.name] = 0

    def ended(self, drawing: Drawing, together: int = 0) -> None:
        """A request is under way no longer. together: how many places have got their ids."""
        self._under_way[drawing.name] -= drawing.asked
        self._together[drawing.name] = together if together > FEW else 0
        if self._gathered:
            self._wake()

    def settled(self, drawing: Drawing, error: TicketError | None = None) -> None:
        """Count the commands of a request, which have their replies."""
        self.ended(drawing, 0 if error else len(drawing.places))
        seconds, endpoint = time.monotonic() - drawing.began, "block" if drawing.is_block else "ticket"
        commands = sum([place.times for place in drawing.places])
        self.tally.in_flight -= commands
        if error:
            self.tally.refusals[endpoint, error.code] += commands
        else:
            histogram = self.tally.seconds[endpoint]
            histogram.counts[bisect_left(histogram.bounds, seconds)] += commands
            histogram.total += seconds * commands
        if self._watch is not None:
            status, began = "ok" if error is None else replies.word_of(error), time.time() - seconds
            for place in drawing.places:
                what = f"{place.what} {place.name}"
                for _ in range(place.times):
                    self._watch.saw(Seen("redis", what, place.name, place.client.address, status, began, seconds))
