"""One client connection that speaks the Redis protocol.

What came in one read is worked off in order, and what is answered at once goes out in one write. A command that waits
for a database does not hold up those behind it: they are issued, and share its statement. The replies wait in their
order. All connections share the time of the event loop (`Turns`): a connection with more to do waits for its next
slice. How many replies may wait is bounded (`ReplyQueue`): beyond that the connection executes no command. While a
connection waits for either, it keeps a bounded number of bytes, and then it does not read its socket.
"""

import asyncio
import logging
from typing import NamedTuple, Protocol

from app.clients.known_reads import KnownReads
from app.clients.turns import Turns
from app.redis import replies
from app.redis.gathering import SingleTickets
from app.redis.parser import AT_ONCE, Command, Incoming, ProtocolError
from app.redis.reply_queue import Debts, ReplyQueue
from app.redis.requests import Slot
from app.redis.session import Session

log = logging.getLogger(__name__)

AHEAD_BYTES = 65_536
"""How many bytes are kept of commands that have to wait."""
WRITE_BYTES = 65_536
"""Replies that are gathered before they are written."""
LINGER_SECONDS = 1.0
"""How long a connection whose client has been told of an error is kept, unread, so that the client can read that."""
IDLE_SECONDS = 300.0
"""How long a connection may be idle. Redis' clients keep a pool of them; Redis itself probes one after so long."""
TOO_MANY = replies.error("ERR", "max number of clients reached")


class Run(NamedTuple):
    """So many commands in a row, each for one ticket of the sequence, and what a known read means."""

    sequence: str
    times: int


class Shared(Protocol):
    """The objects and limits that all connections share."""

    turns: Turns
    debts: Debts
    known_runs: KnownReads[Run]

    def opened(self, connection: "RedisConnection") -> bool:
        """Whether this new one may stay."""

    def closed(self, connection: "RedisConnection") -> None: ...

    def new_session(self) -> Session: ...

    def single_ticket(self, command: Command) -> str | None:
        """The sequence that this command wants one ticket of; None for any other command."""

    def at_once(self, sequence: str, count: int) -> bytes | None:
        """The replies to so many commands for one ticket each, from what was drawn ahead; None where it lacks them."""

    def draw(self, tickets: SingleTickets) -> None:
        """Have these settled, later."""

    def execute(self, connection: "RedisConnection", command: Command) -> None:
        """Answer any other command, by `RedisConnection.reply`, `expect` and the like."""


class RedisConnection(asyncio.Protocol):
    """The server's side of one connection. Its public attributes: see connections.ClientConnection; `session`;
    `incoming`: bytes that no command has been made of; `replies`: those that have not been written."""

    idle_seconds = IDLE_SECONDS
    health_only = False

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        self._shared = shared
        self._turns = shared.turns
        self._loop = loop
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.session = shared.new_session()
        self.since: float | None = loop.time()
        self.idle_since = 0.0
        # what comes in
        self.incoming = Incoming()
        self._todo: list[Command] = []
        self._at = 0
        self._is_paused = False
        self._is_working = False
        self._has_to_wait = False
        """Whether there is more to do, in a later turn of the event loop."""
        self._is_scheduled = False
        self._is_held = False
        self._leaving = False
        self._lingers = False
        self._has_ended = False
        self._is_clear = False
        """Whether nothing is under way or in the way, so that the next read stands for itself."""
        self._only: Slot | None = None
        """The reply that is under way where it is all that is."""
        self._whole_read = b""
        """The read that came so, until any of it is executed."""
        self._timer: asyncio.TimerHandle | None = None
        # what goes out
        self.replies = ReplyQueue(shared.debts)
        self._write_paused = False

    # --- the socket --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        if not self._shared.opened(self):
            self._leaving = True
            transport.write(TOO_MANY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._shared.closed(self)
        self._leaving = True
        self._drop_incoming()
        self.replies.drop()
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._only = None
        if self._is_clear:
            if self._knows(data):
                return
            self._is_clear, self._whole_read = False, data
        elif self._leaving:
            return
        else:
            self._whole_read = b""
        self.incoming.add(data)
        if self.since is None:
            self.since = self._loop.time()
        self._take_turn()

    def eof_received(self) -> bool:
        """The client sends no more. The server answers the commands that came before."""
        self._has_ended = True
        if not self._leaving:
            self._take_turn()
        return not self._lingers

    def pause_writing(self) -> None:
        self._write_paused = True
        self._is_clear, self._only = False, None

    def resume_writing(self) -> None:
        self._write_paused = False
        self._take_turn()

    def close(self) -> None:
        """Close the connection when all that was written has been sent."""
        self._leaving = True
        self._is_clear, self._only = False, None
        self.transport.close()

    def shutdown(self) -> None:
        """The server ends: close now, or after the replies that are under way. uvicorn calls it."""
        self._leave()
        self._finish()

    @property
    def client(self) -> str:
        """The address at the other end."""
        peer = self.transport.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) else "unknown"

    # --- commands ----------------------------------------------------------------------------------------------------

    def _knows(self, data: bytes) -> bool:
        """Answer, or have settled, a read that is known; false where it has to be worked off."""
        run = self._shared.known_runs.get(data)
        if run is None or not self.session.may_draw:
            return False
        try:
            reply = self._shared.at_once(run.sequence, run.times)
            if reply is None:
                tickets = SingleTickets(self, run.sequence, run.times)
                self.replies.expect(tickets)
                self._only, self._is_clear, self.since = tickets, False, self._loop.time()
                self._shared.draw(tickets)
                return True
        except Exception:
            self.fail()
            return True
        self.transport.write(reply)
        self.idle_since = self._loop.time()
        return True

    def _take_turn(self) -> None:
        """Work now, or later where others have their turn before."""
        if self._is_working:
            return
        if not self._turns.take(self):
            self._has_to_wait = True
            self._finish()

    def work(self, until: float) -> bool:
        """Work off the commands that have come whole, as far as their replies have room. See Worker.work."""
        self._is_working = True
        self._has_to_wait = False
        try:
            self._has_to_wait = self._execute_all(until)
        except ProtocolError as error:
            self.reply(replies.error("ERR", f"Protocol error: {error}"))
            self._lingers = True
            self._leave()
        except Exception:
            self.fail()
        finally:
            self._is_working = False
        self._finish()
        return self._has_to_wait

    def _execute_all(self, until: float) -> bool:
        """Returns whether time was too short for all that can be done."""
        replies, clock = self.replies, self._turns.clock
        while not (self._is_held or self._write_paused):
            if replies.is_full:
                replies.gather()
                if replies.is_full:
                    return False
            if replies.out_bytes > WRITE_BYTES:
                self._flush()
            elif self._at < len(self._todo):
                self._execute_next()
            elif self._leaving or not self._parse():
                if self._has_ended:
                    self._leave()
                return False
            if clock() >= until:
                return True
        return False

    def _parse(self) -> bool:
        """Parse further commands. Returns whether any bytes were taken."""
        incoming = self.incoming
        incoming.trusted = self.session.may_draw
        commands = incoming.take()
        if commands is None:
            return False
        self._todo, self._at = commands, 0
        return True

    def _execute_next(self) -> None:
        """Execute the next command, or the next few that are the same."""
        todo, at = self._todo, self._at
        command = todo[at]
        shared, session = self._shared, self.session
        name = shared.single_ticket(command)
        whole_read, self._whole_read = self._whole_read, b""
        if name is None or session.queue is not None or not session.may_draw:
            self._at = at + 1
            shared.execute(self, command)
            return
        end = at + 1
        size = len(todo)
        last = min(size, at + AT_ONCE)
        while end < last and todo[end] == command:
            end += 1
        self._at = end
        if whole_read and end == size and not len(self.incoming):
            shared.known_runs.keep(whole_read, Run(name, end))
        replies_to_all = shared.at_once(name, end - at)
        if replies_to_all is not None:
            self.reply(replies_to_all)
        else:
            tickets = SingleTickets(self, name, end - at)
            self.expect(tickets)
            shared.draw(tickets)

    def execute_before_others(self, commands: list[Command]) -> None:
        """Execute these next, and then what else has come."""
        self._todo, self._at = commands + self._todo[self._at :], 0

    def hold(self) -> None:
        """Execute no further command until `release`."""
        self._is_held = True

    def release(self) -> None:
        """See `hold`."""
        self._is_held = False
        self._go_on()

    def leave(self) -> None:
        """Close the connection after the replies that are under way. What else has come is not executed."""
        self._leave()

    def abort(self) -> None:
        """Close it at once."""
        self._leave()
        self.transport.abort()

    def fail(self) -> None:
        """Handle an unexpected exception: say so in the log, and cut the connection."""
        log.exception("a command met an unknown error")
        self.abort()

    def _go_on(self) -> None:
        """Send what is ready, and execute what has waited for that."""
        if self._at < len(self._todo) or len(self.incoming):
            self._take_turn()
        else:
            self._finish()

    def _go_on_soon(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._go_on_now)

    def _go_on_now(self) -> None:
        self._is_scheduled = False
        self._go_on()

    def _leave(self) -> None:
        self._leaving = True
        self._is_clear, self._only = False, None
        self._drop_incoming()

    def _drop_incoming(self) -> None:
        self.incoming.clear()
        self._todo, self._at = [], 0

    # --- replies -----------------------------------------------------------------------------------------------------

    def reply(self, data: bytes) -> None:
        """The whole reply to the command that is being executed."""
        self.replies.add(data)

    def expect(self, slot: Slot) -> None:
        """The reply to the command that is being executed will be there."""
        self.replies.expect(slot)

    def answered(self, slot: Slot) -> None:
        """The reply of this slot is there. See requests.Place."""
        if self._is_working:
            return  # it goes out with the others of this read
        waiting = self.replies.waiting
        if slot is self._only and slot.reply is not None:
            self.replies.forget()
            self._only, self._is_clear = None, True
            self.since, self.idle_since = None, self._loop.time()
            self.transport.write(slot.reply)
            return
        if waiting and waiting[0] is slot:
            if len(waiting) == 1:
                self._go_on()
            else:
                self._go_on_soon()  # what is behind it is perhaps answered in this turn, too

    def _flush(self) -> None:
        data = self.replies.take()
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def _finish(self) -> None:
        """Write what can be written, and see what the connection waits for now."""
        queue = self.replies
        if queue.waiting:
            queue.gather()
        has_written = bool(queue.out)
        if has_written:
            self._flush()
        now = self._loop.time()
        if queue.waiting or self._at < len(self._todo) or len(self.incoming):
            if has_written:
                self.since = now
        else:
            self.since, self.idle_since = None, now
            if self._leaving:
                self._end()
            else:
                self._is_clear = not self._write_paused and self.session.queue is None
        if self._is_paused or len(self.incoming) > AHEAD_BYTES:
            self._pause_or_resume_reading()

    def _pause_or_resume_reading(self) -> None:
        has_to_wait = self._has_to_wait or self._is_held or self._write_paused or self.replies.is_full
        too_much = has_to_wait and len(self.incoming) > AHEAD_BYTES
        if too_much is not self._is_paused and not self.transport.is_closing():
            self._is_paused = too_much
            (self.transport.pause_reading if too_much else self.transport.resume_reading)()

    def _end(self) -> None:
        """All replies have been written: close the connection."""
        transport = self.transport
        if transport.is_closing():
            return
        if self._lingers and transport.can_write_eof():
            if self._timer is None:
                transport.write_eof()
                self._timer = self._loop.call_later(LINGER_SECONDS, transport.close)
        else:
            transport.close()
