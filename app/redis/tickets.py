"""The commands that draw tickets, and EXISTS."""

import asyncio
import re
import time
from typing import Any

from app.errors import Exhausted, InvalidRequest, OutOfTime, TicketError, UnknownSequence
from app.kinds.kind import TICKET_LIMIT
from app.kinds.table import KINDS
from app.operations.tally import Tally
from app.operations.watch import Seen, Watch
from app.redis import replies
from app.redis.connection import OWED, Connection
from app.redis.parser import Command
from app.service import Service
from app.tickets.request import Request, Shape
from app.tickets.tasks import Tasks

MOST_TICKETS = 1_000
MOST_IN_BLOCK = 10_000
LONGEST_PACKET = 65_535
"""A block's size times the increment is at most this."""
SIZE = 80
"""Bytes that a ticket counts for while it is waited for."""
MOST_NAMES = 128
"""Sequences in one EXISTS."""
_NUMBER = re.compile(rb"-?[1-9][0-9]{0,18}|0")


class Drawing(Request):
    """A command that draws, and its place among the replies; or `times` commands in a row for one ticket each.

    A row is asked for as a list. Where the sequence has no such list any more, each command asks for itself.
    """

    reply: bytes | None = None

    def __init__(
        self, door: "TicketCommands", client: Connection, what: str, sequence: str, *, times: int = 1, **wanted: Any
    ) -> None:
        super().__init__(sequence, **wanted)
        self.door, self.client, self.what, self.name, self.times = door, client, what, sequence, times
        self.size = SIZE if self.is_block else SIZE * self.count
        self.began = time.monotonic()

    def done(self, answer: Any) -> None:
        """Keep the reply."""
        if self.what == "INCR":
            self.reply = replies.singles(answer if self.times > 1 else (answer,))
        else:
            self.reply = replies.block(answer) if self.is_block else replies.ticket_list(answer)
        self.door.settle(self)

    def failed(self, error: TicketError) -> None:
        """Keep the error, or let each command of a row ask for itself."""
        if self.times > 1 and isinstance(error, Exhausted | InvalidRequest):
            parts = [Drawing(self.door, self.client, self.what, self.name) for _ in range(self.times)]
            self.client.replace(self, parts)
            for part in parts:
                self.door.desk.take(part)
        else:
            self.reply = replies.refusal(self.name, error) * self.times
            self.door.settle(self, error)

    def abandon(self) -> None:
        """See Request.abandon."""
        super().abandon()
        self.door.has_ended(self)


class Existence:
    """The place of a reply to EXISTS."""

    size = OWED  # nothing else of this client is executed meanwhile
    reply: bytes | None = None

    def __init__(self, client: Connection) -> None:
        self.client = client
        self.task: asyncio.Task[None] | None = None

    async def look_up(self, service: Service, names: list[str], seconds: float) -> None:
        """Count the sequences that are there, and settle the reply."""

        async def is_there(name: str) -> bool:
            try:
                await service.catalog.find(name)
            except (UnknownSequence, InvalidRequest):
                return False
            return True

        try:
            async with asyncio.timeout(seconds):
                self.reply = replies.integer(sum(await asyncio.gather(*map(is_there, names))))
        except TimeoutError:
            self.reply = replies.refusal("", OutOfTime())
        except TicketError as error:
            self.reply = replies.refusal("", error)
        self.client.settled(self)

    def abandon(self) -> None:
        """The client has gone."""
        if self.task is not None:
            self.task.cancel()


class TicketCommands:
    """Executes the commands. timeout: seconds for looking sequences up. watch: None where nobody wants to know."""

    def __init__(self, service: Service, tally: Tally, watch: Watch | None, timeout: float) -> None:
        self.desk = service.desk
        self._service, self._tally, self._watch, self._timeout = service, tally, watch, timeout
        self._tasks = Tasks()
        self.end = self._tasks.end

    def draw(self, client: Connection, sequence: bytes, count: int) -> None:
        """Answer this many INCR of a sequence."""
        shape = Shape.LIST if count > 1 else Shape.SINGLE
        name = sequence.decode("latin-1")  # letters beyond ASCII are refused later
        self._ask(Drawing(self, client, "INCR", name, times=count, count=count, shape=shape))

    def incr(self, client: Connection, command: Command) -> None:
        """INCR sequence"""
        self.draw(client, command[1], 1)

    def incrby(self, client: Connection, command: Command) -> None:
        """INCRBY sequence 1"""
        number = _whole_number(command[2])
        if number is None:
            raise InvalidRequest("value is not an integer or out of range")
        if number < 1:
            raise InvalidRequest("a sequence only goes up: INCRBY takes 1 alone")
        if number > 1:
            block = f"TICKET.BLOCK {replies.shown(command[1])} {number}"
            raise InvalidRequest(f"{block} gives so many: the databases take turns, so no ids are consecutive")
        self.draw(client, command[1], 1)

    def take(self, client: Connection, command: Command) -> None:
        """TICKET.TAKE sequence [COUNT n] [KEY k | SHARD s]"""
        given: dict[str, int] = {}
        options = command[2:]
        if len(options) % 2:
            raise InvalidRequest("syntax error")
        for option, value in zip(options[::2], options[1::2], strict=True):
            name, number = option.decode("latin-1").lower(), _whole_number(value)
            if name not in ("count", "key", "shard") or name in given:
                raise InvalidRequest("syntax error")
            least, most = (1, MOST_TICKETS) if name == "count" else (0, TICKET_LIMIT)
            if number is None or not least <= number <= most:
                raise InvalidRequest(f"{name.upper()} is a whole number from {least} to {most}")
            given[name] = number
        request = Drawing(self, client, "TICKET.TAKE", command[1].decode("latin-1"), shape=Shape.LIST, **given)
        if request.key is None and request.shard is None:
            self._ask(request)
        else:
            request.size = OWED  # nothing else of this client is executed before the sequence is found
            self._expect(request)
            self._tasks.start(self._find_and_ask(request))

    async def _find_and_ask(self, request: Drawing) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                entry = await self._service.catalog.find(request.name)
            KINDS[entry.definition.kind].shard_of(entry.definition.parameters, request.key, request.shard)
        except TimeoutError:
            request.fail(OutOfTime())
        except TicketError as error:
            request.fail(error)
        if not request.is_over:
            self.desk.take(request)

    def block(self, client: Connection, command: Command) -> None:
        """TICKET.BLOCK sequence n"""
        size, record = _whole_number(command[2]), self._service.sight.record
        most = min(MOST_IN_BLOCK, LONGEST_PACKET // (1 if record is None else record.increment))
        if size is None or not 1 <= size <= most:
            raise InvalidRequest(f"a block's size is a whole number from 1 to {most}")
        name = command[1].decode("latin-1")
        self._ask(Drawing(self, client, "TICKET.BLOCK", name, count=size, shape=Shape.BLOCK))

    def exists(self, client: Connection, command: Command) -> None:
        """EXISTS sequence [sequence ...]"""
        if len(command) > MOST_NAMES + 1:
            raise InvalidRequest(f"EXISTS takes at most {MOST_NAMES} sequences")
        slot = Existence(client)
        client.expect(slot)
        names = [name.decode("latin-1") for name in command[1:]]
        slot.task = self._tasks.start(slot.look_up(self._service, names, self._timeout))

    def settle(self, request: Drawing, error: TicketError | None = None) -> None:
        """Count a request that has its reply, and have that sent."""
        seconds = time.monotonic() - request.began
        endpoint = "block" if request.is_block else "ticket"
        status = "ok" if error is None else replies.word_of(error)
        for _ in range(request.times):
            if error is None:
                self._tally.answered(endpoint, seconds)
            else:
                self._tally.refused(endpoint, error.code)
            if self._watch is not None:
                what, began = f"{request.what} {request.name}", time.time() - seconds
                self._watch.saw(Seen("redis", what, request.name, request.client.client, status, began, seconds, None))
        self.has_ended(request)
        request.client.settled(request)

    def has_ended(self, request: Drawing) -> None:
        """A request has its reply, or nobody waits for it."""
        self._tally.in_flight -= request.times

    def _expect(self, request: Drawing) -> None:
        self._tally.in_flight += request.times
        request.client.expect(request)

    def _ask(self, request: Drawing) -> None:
        self._expect(request)
        self.desk.take(request)


def _whole_number(text: bytes) -> int | None:
    """Read a number as Redis does: in digits alone, and of 63 bits."""
    number = int(text) if _NUMBER.fullmatch(text) else None
    return None if number is None or abs(number) > TICKET_LIMIT else number
