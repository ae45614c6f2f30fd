"""One client connection.

A command that waits for a ticket does not hold up those behind it. The replies go out in the order of the commands.
How much a connection may owe is bounded (OWED, OWED_IN_ALL, the transport's write buffer). Beyond that bound the
connection executes no command and, once it keeps AHEAD bytes, does not read its socket.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from app.connections import Admission
from app.redis import replies
from app.redis.parser import LARGEST, LARGEST_OF_STRANGERS, Command, Incoming, ProtocolError
from app.redis.session import Session

log = logging.getLogger(__name__)

AT_ONCE = 128
"""Commands of one connection in one turn of the event loop."""
AHEAD = 2 * LARGEST
"""Bytes that are kept of commands that have to wait."""
OWED = 65_536
"""Bytes of replies that one connection may wait for."""
OWED_IN_ALL = 4_194_304
"""Bytes that all connections together may wait for. A connection that waits for none executes commands still."""
IDLE_SECONDS = 620.0
PARTIAL_SECONDS = 10.0
"""How long a command may take to come whole, and a client to read anything of what was written to it."""


class Slot(Protocol):
    """The place of a reply that is to come. size: about how many bytes it takes."""

    reply: bytes | None
    size: int

    def abandon(self) -> None:
        """The client has gone."""


class Door(Protocol):
    """The state that connections share, see `door.RedisDoor`.

    buffer: to receive into. owed: bytes that all of them wait for.
    """

    buffer: bytearray
    owed: int

    def opened(self, connection: "Connection") -> Admission: ...
    def closed(self, connection: "Connection") -> None: ...
    def ask(self, connection: "Connection") -> None: ...
    def draw(self, client: "Connection", sequence: bytes, count: int) -> None: ...
    def execute(self, client: "Connection", command: Command) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """The server's side of a connection.

    is_queued: whether it waits for its turn, or has it. deadline: when it is to be cut, by the event loop's clock.
    """

    transport: asyncio.Transport

    def __init__(self, door: Door, session: Session) -> None:
        self._door, self.session = door, session
        self._loop = asyncio.get_running_loop()
        self._incoming = Incoming()
        self._todo: deque[Command] = deque()
        self._waiting: deque[bytes | Slot] = deque()
        self._cost = self._owed = 0
        self.is_queued = self._is_paused = self._is_full = self._is_stuck = False
        self._is_leaving = self._lingers = self._has_ended = False
        self.deadline = self._loop.time() + IDLE_SECONDS
        self.admission = Admission.REFUSED
        self.ended = asyncio.Event()
        self.client = "unknown"

    # --- the socket --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve the client, or turn it away."""
        self.transport = transport  # type: ignore[assignment]
        peer = transport.get_extra_info("peername")
        self.client = str(peer[0]) if isinstance(peer, tuple) and peer else "unknown"
        self.admission = self._door.opened(self)
        if self.admission is Admission.SERVED:
            return
        self._is_leaving = True
        if self.admission is Admission.ONE_ANSWER:
            self.transport.write(replies.error("ERR", "max number of clients reached"))
            self.transport.close()
        else:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Abandon what the client waited for."""
        self.leave()
        self._door.closed(self)
        self.ended.set()
        self._owe(-self._owed)
        waiting, self._waiting = self._waiting, deque()
        for slot in waiting:
            if not isinstance(slot, bytes) and slot.reply is None:
                slot.abandon()

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return where the next read goes: it is copied before there can be another one."""
        return self._door.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Keep what has come until it is this connection's turn."""
        if not self._is_leaving:
            self._incoming.add(bytes(memoryview(self._door.buffer)[:nbytes]))
            self._door.ask(self)
            self._pause_or_resume()

    def eof_received(self) -> bool:
        """Keep the connection until the client has its replies."""
        self._has_ended = True
        self._door.ask(self)
        return not self._lingers

    def pause_writing(self) -> None:
        """The client does not read: execute nothing."""
        self._is_full = True

    def resume_writing(self) -> None:
        """The client has read."""
        self._is_full = False
        self._door.ask(self)

    # --- commands ----------------------------------------------------------------------------------------------------

    @property
    def _may_execute(self) -> bool:
        owed = self._owed
        owes_much = owed >= OWED or (owed > 0 and self._door.owed >= OWED_IN_ALL)
        return not (self._is_leaving or self._is_full or owes_much)

    def work(self) -> int:
        """Execute AT_ONCE commands at most, and send the replies that are there; return about how many these were."""
        self._cost, is_done, kept = 0, False, len(self._incoming)
        try:
            while self._cost < AT_ONCE and not is_done and self._may_execute:
                is_done = not self._execute_next()
        except ProtocolError as error:
            self.reply(replies.error("ERR", f"Protocol error: {error}"))
            self.leave()
            self._lingers = True
        except Exception:
            log.exception("a command met an unknown error")
            self.leave()
            self.transport.abort()
        if is_done and self._has_ended:
            self.leave()
        used = kept - len(self._incoming)  # a part of a command costs, too
        self._flush()
        self._set_deadline(self._is_full or self._lingers or (is_done and self._incoming.is_partial))
        self._pause_or_resume()
        self.is_queued = False
        if not is_done and self._may_execute:
            self._door.ask(self)
        return self._cost + 1 + used // 64

    def _execute_next(self) -> bool:
        """Execute the next command, or a row of them; return False where there is none."""
        session, incoming = self.session, self._incoming
        if self._todo:
            command = self._todo.popleft()
        else:
            may_draw = session.may_draw
            row = incoming.row() if may_draw and session.queue is None else None
            if row is not None:
                self._cost += row[1]
                self._door.draw(self, *row)
                return True
            incoming.largest = LARGEST if may_draw else LARGEST_OF_STRANGERS
            taken = incoming.take()
            if taken is None:
                return False
            command = taken
        self._cost += 1 + len(command) // 8
        if command:
            self._door.execute(self, command)
        return True

    def execute_first(self, commands: list[Command]) -> None:
        """Execute these commands before what else has come."""
        self._todo.extend(commands)

    def leave(self) -> None:
        """Close the connection after the replies that are under way. What else has come is not executed."""
        self._is_leaving = True
        self._incoming.clear()
        self._todo.clear()

    # --- replies -----------------------------------------------------------------------------------------------------

    def reply(self, data: bytes) -> None:
        """Give the whole reply to the command that is being executed."""
        self._waiting.append(data)
        self._owe(len(data))

    def expect(self, slot: Slot) -> None:
        """The reply to the command that is being executed will be in this slot."""
        self._waiting.append(slot)
        self._owe(slot.size)

    def replace(self, slot: Slot, parts: Sequence[Slot]) -> None:
        """The reply of a slot will be in these, which have its size together."""
        at = self._waiting.index(slot)
        del self._waiting[at]
        for part in reversed(parts):
            self._waiting.insert(at, part)

    def settled(self, slot: Slot) -> None:
        """The reply of a slot is there."""
        if self.is_queued or not self._waiting or self._waiting[0] is not slot:
            return
        if len(self._waiting) == 1 and not (self._incoming.is_partial or self._todo or self._is_leaving):
            self._flush()  # nothing else is to be done: this is what a client without a pipeline waits for
        if self._waiting or self._is_full or self._incoming.is_partial or self._todo or self._has_ended:
            self._door.ask(self)

    def _owe(self, size: int) -> None:
        self._owed += size
        self._door.owed += size

    def _flush(self) -> None:
        """Write what is there up to the first reply that is not; close the connection where that was all."""
        waiting, out = self._waiting, []
        while waiting:
            first = waiting[0]
            reply = first if isinstance(first, bytes) else first.reply
            if reply is None:
                break
            out.append(reply)
            self._owe(-(len(first) if isinstance(first, bytes) else first.size))
            waiting.popleft()
        if self.transport.is_closing():
            return
        if out:
            self.transport.write(b"".join(out))
        if self._is_leaving and not waiting:
            if not self._lingers or self._has_ended:
                self.transport.close()
            elif not self._is_stuck:  # closed with something unread, the client might never see the error
                self.transport.write_eof()

    def _set_deadline(self, is_stuck: bool) -> None:
        """Give the client PARTIAL_SECONDS from when it got stuck."""
        if not is_stuck or self._cost or not self._is_stuck:
            self.deadline = self._loop.time() + (PARTIAL_SECONDS if is_stuck else IDLE_SECONDS)
        self._is_stuck = is_stuck

    def _pause_or_resume(self) -> None:
        """Read no further while a largest command, and more, waits."""
        too_much = len(self._incoming) > AHEAD
        if too_much is not self._is_paused and not self.transport.is_closing():
            self._is_paused = too_much
            (self.transport.pause_reading if too_much else self.transport.resume_reading)()
