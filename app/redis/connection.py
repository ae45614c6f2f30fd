"""One client connection: what it reads, what it owes, and the replies in the order of the commands.

A command that waits for a ticket does not hold up the next commands. A connection executes no command while it owes too
much (OWED, OWED_IN_ALL, the transport's write buffer), and does not read its socket while it keeps a whole command.
"""

import asyncio
from abc import abstractmethod
from collections import deque
from typing import Any

from app.access import Right
from app.connections import Admission
from app.errors import TicketError
from app.redis import replies
from app.redis.parser import LONGEST_LINE, only_row

OWED = 65_536  # bytes of replies that one connection may wait for
OWED_IN_ALL = 4_194_304  # the same of all connections; one that waits for none executes commands still


class Place:
    """The place of a reply among those of a client: to a command, or to the same one `times` times in a row.

    each: how many ids each of the commands wants. size: the bytes that it counts for until it is written.
    """

    __slots__ = ("client", "each", "name", "reply", "size", "times", "what")

    def __init__(self, client: "Connection", what: str, name: str, times: int, each: int, *, size: int = -1) -> None:
        self.client, self.what, self.name, self.times, self.each = client, what, name, times, each
        self.size = 80 * times * each if size < 0 else size
        self.reply: bytes | None = None


class Connection(asyncio.BufferedProtocol):
    """The server's side of a connection. door: the `RedisDoor`.

    number: the client's id. data: the bytes that came, of which those before `at` are done. times: how often the
    present command stands in a row. waiting: the replies that are not written. owed: the bytes that they count for.
    quiet: seconds without a command. is_calm: nothing is left to execute, and nothing prevents it. is_queued: it waits
    for its turn. is_full: the client does not read. has_ended: it sends no more. version: of the protocol. queue: the
    commands since MULTI, `queued` of them, None outside of a transaction. is_broken: the server refused one of them.
    """

    def __init__(self, door: Any) -> None:
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

    @property
    def may_execute(self) -> bool:
        """Whether the client reads its replies, and does not wait for too many."""
        owes_much = self.owed >= OWED or (self.owed > 0 and self.door.owed >= OWED_IN_ALL)
        return not (self.is_leaving or self.is_full or owes_much)

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
        buffer: memoryview = self.door.buffer
        return buffer

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
        """Keep the connection until the client, which sends no more, has its replies."""
        self.has_ended = True
        self.door.ask(self)
        return True

    def pause_writing(self) -> None:
        self.is_full, self.is_calm = True, False

    def resume_writing(self) -> None:
        self.is_full = False
        self.door.ask(self)

    def leave(self) -> None:
        """Close the connection after the replies that are under way. What else has come is not executed."""
        self.is_leaving, self.data, self.at = True, b"", 0
        self.door.ask(self)

    @abstractmethod
    def work(self) -> int:
        """Execute commands, but not too many, and send the replies that are there; return about how many these were."""

    def reply(self, data: bytes) -> None:
        """Give the whole reply to the command that is being executed."""
        place = Place(self, "", "", 0, 0, size=len(data))
        place.reply = data
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
        parts = [Place(self, place.what, place.name, 1, place.each) for _ in range(place.times)]
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
