"""The one table of commands, and what each of them does."""

import logging
from collections.abc import Callable

from app.access import Right
from app.errors import InvalidRequest, TicketError, Unauthenticated, UnknownSequence
from app.kinds.kind import TICKET_LIMIT
from app.redis import replies
from app.redis.connection import OWED, Connection, Place
from app.redis.parser import LARGEST, MOST_WORDS, Command, ProtocolError, next_command
from app.tickets.request import MOST_TICKETS, Shape, largest_block
from app.version import VERSION

log = logging.getLogger(__name__)
AT_ONCE = 128  # commands of one connection in one turn of the event loop
COMPATIBLE_WITH = "7.4.0"  # the release of Redis whose protocol this is: some clients choose their commands by it
QUEUED_BYTES = 131_072  # of commands between MULTI and EXEC
_SETTINGS = {"appendonly": replies.bulk("yes"), "save": replies.bulk("")}
_HELLO = {"server": "ticketd", "version": COMPATIBLE_WITH, "mode": "standalone", "role": "master"}
_INFO = replies.bulk(
    f"# Server\r\nredis_version:{COMPATIBLE_WITH}\r\nticketd_version:{VERSION}\r\nredis_mode:standalone\r\n"
    "# Persistence\r\nloading:0\r\n# Replication\r\nrole:master\r\n# Cluster\r\ncluster_enabled:0\r\n"
)
_WRONG_TOKEN = replies.error("WRONGPASS", "invalid username-password pair or user is disabled.")
_WRONG_DATABASE = replies.error("ERR", "DB index is out of range")


class Client(Connection):
    """A connection whose commands are executed. Each command returns its reply, or None where that comes later."""

    def work(self) -> int:
        cost, is_done, seen = 0, False, len(self.data) - self.at
        try:
            while cost < AT_ONCE and not is_done and self.may_execute:
                found = next_command(self.data, self.at)
                is_done = found is None
                if found:
                    command, self.times, self.at = found
                    cost += self.times + len(command) // 8
                    if command:
                        self._execute(command)
        except ProtocolError as error:
            self.reply(replies.error("ERR", f"Protocol error: {error}"))
            self.leave()
        except Exception:
            log.exception("a command met an unknown error")
            self.leave()
            self.transport.abort()
        if cost:
            self.quiet = 0.0
        if is_done and self.has_ended:
            self.leave()
        self.flush()
        if is_done and not self.transport.is_closing():
            self.transport.resume_reading()
        is_between = self.at < len(self.data) or self.queue is not None
        self.is_queued, self.is_calm = False, is_done and not (is_between or self.is_leaving or self.is_full)
        if not is_done and self.may_execute:
            self.door.ask(self)
        return cost + 1 + min(seen, LARGEST) // 64  # a part of a command costs, too

    def _execute(self, command: Command) -> None:
        word, shown, tally = command[0].upper(), replies.shown(command[0]), self.door.tally
        run, least, most = _TABLE.get(word, (None, 0, 0))
        endpoint, reply = _ENDPOINTS.get(word, ""), None
        try:
            if not (self.may_draw or word in _OPEN):
                if run:
                    tally.denied(Right.TICKETS if endpoint else Right.READING)
                raise Unauthenticated("Authentication required.")
            if run is None:
                raise InvalidRequest(f"unknown command '{shown}'")
            if not least <= len(command) <= most:
                raise InvalidRequest(f"wrong number of arguments for '{shown.lower()}' command")
            reply = (run if self.queue is None or word in _AT_ONCE else Client._enqueue)(self, command)
        except TicketError as error:
            self.is_broken, reply = True, replies.refusal("", error)
            if endpoint:
                tally.refusals[endpoint, error.code] += self.times
        if reply is not None:
            self.reply(reply * self.times)

    def _incr(self, command: Command) -> None:
        if command[2:] not in ([], [b"1"]):
            block = " ".join(map(replies.shown, command[1:]))
            raise InvalidRequest(f"INCRBY takes 1 alone, as no ids are consecutive: see TICKET.BLOCK {block}")
        self.door.draw(Place(self, "INCR", _name(command), self.times, 1))

    def _take(self, command: Command) -> None:
        """TICKET.TAKE sequence [COUNT n] [KEY k | SHARD s]"""
        options = dict(zip([word.decode("latin-1").upper() for word in command[2::2]], command[3::2], strict=False))
        if len(command) != 2 + 2 * len(options) or not options.keys() <= {"COUNT", "KEY", "SHARD"}:
            raise InvalidRequest("syntax error")
        count = _number("COUNT", options.pop("COUNT", b"1"), 1, MOST_TICKETS)
        shard = {word.lower(): _number(word, text, 0, TICKET_LIMIT) for word, text in options.items()}
        place = Place(self, "TICKET.TAKE", _name(command), 1, count)
        if shard:
            self.door.draw_alone(place, **shard)
        else:
            self.door.draw(place)

    def _block(self, command: Command) -> None:
        size = _number("a block's size", command[2], 1, largest_block(self.door.service.desk.increment))
        self.door.draw_alone(Place(self, "TICKET.BLOCK", _name(command), 1, size, size=100), shape=Shape.BLOCK)

    def _exists(self, command: Command) -> None:
        # so large that nothing else of this client is executed before the reply
        place = Place(self, "EXISTS", _name(command), 0, 0, size=OWED)
        self.expect(place)
        self.door.tasks.start(self._look_up(place))

    async def _look_up(self, place: Place) -> None:
        """Say whether there is a sequence."""
        try:
            await self.door.service.catalog.find(place.name)
            reply = b":1\r\n"
        except (UnknownSequence, InvalidRequest):
            reply = b":0\r\n"
        except TicketError as error:
            reply = replies.refusal(place.name, error)
        self.settle(place, reply)

    def _multi(self, command: Command) -> bytes:
        if self.queue is not None:
            raise InvalidRequest("MULTI calls can not be nested")
        self.queue, self.queued, self.is_broken = bytearray(), 0, False
        return replies.OK

    def _enqueue(self, command: Command) -> bytes:
        assert self.queue is not None
        self.queue += replies.array(command) * self.times
        self.queued += self.times
        if len(self.queue) > QUEUED_BYTES:
            self.queue.clear()
            raise InvalidRequest("too many commands since MULTI")
        return b"+QUEUED\r\n"

    def _exec(self, command: Command) -> bytes:
        """EXEC: the replies to what was queued, one behind the other, are the elements of an array. DISCARD"""
        queue, self.queue = self.queue, None
        word = command[0].upper().decode()
        if queue is None:
            raise InvalidRequest(f"{word} without MULTI")
        if word == "DISCARD":
            return replies.OK
        if self.is_broken:
            return replies.error("EXECABORT", "Transaction discarded because of previous errors.")
        self.data, self.at = bytes(queue) + self.data[self.at :], 0
        return b"*%d\r\n" % self.queued

    def _quit(self, command: Command) -> bytes | None:
        self.leave()
        return replies.OK if command[0].upper() == b"QUIT" else None

    def _reset(self, command: Command) -> bytes:
        self.reset()
        return b"+RESET\r\n"

    def _hello(self, command: Command) -> bytes:
        """HELLO [2 | 3 [AUTH any token] [SETNAME name]]"""
        version, options = command[1:2] or [b"%d" % self.version], command[2:]
        if version[0] not in (b"2", b"3"):
            return replies.error("NOPROTO", "unsupported protocol version")
        if len(options) >= 3 and options[0].upper() == b"AUTH":
            if not self.authenticate(options[2]):
                return _WRONG_TOKEN
            options = options[3:]
        if options and (len(options) != 2 or options[0].upper() != b"SETNAME"):
            raise InvalidRequest("Syntax error in HELLO")
        self.version = int(version[0])
        parts = {name: replies.bulk(value) for name, value in _HELLO.items()}
        parts |= {"proto": b":%d\r\n" % self.version, "id": b":%d\r\n" % self.number, "modules": replies.array([])}
        return replies.mapping(parts, self.version)

    def _client(self, command: Command) -> bytes:
        word = command[1].upper()
        if word not in (b"ID", b"SETNAME", b"SETINFO", b"NO-EVICT", b"NO-TOUCH"):  # it changes nothing here
            raise InvalidRequest(f"unknown subcommand '{replies.shown(command[1])}'")
        return b":%d\r\n" % self.number if word == b"ID" else replies.OK

    def _config(self, command: Command) -> bytes:
        if command[1].upper() != b"GET":
            raise InvalidRequest(f"unknown subcommand '{replies.shown(command[1])}'")
        found = {name: value for name, value in _SETTINGS.items() if name.encode() in command or b"*" in command}
        return replies.mapping(found, self.version)


_ENDPOINTS = {b"INCR": "ticket", b"INCRBY": "ticket", b"TICKET.TAKE": "ticket", b"TICKET.BLOCK": "block"}
_OPEN = b"AUTH", b"HELLO", b"PING", b"QUIT", b"RESET", b"POST", b"HOST:"  # no token is needed
_AT_ONCE = b"MULTI", b"EXEC", b"DISCARD", b"QUIT", b"RESET", b"POST", b"HOST:"  # even in a transaction
_TABLE: dict[bytes, tuple[Callable[[Client, Command], bytes | None] | None, int, int]] = {
    # what is done, and of how many words the command is
    b"INCR": (Client._incr, 2, 2),
    b"INCRBY": (Client._incr, 3, 3),
    b"TICKET.TAKE": (Client._take, 2, MOST_WORDS),
    b"TICKET.BLOCK": (Client._block, 3, 3),
    b"EXISTS": (Client._exists, 2, 2),
    b"MULTI": (Client._multi, 1, 1),
    b"EXEC": (Client._exec, 1, 1),
    b"DISCARD": (Client._exec, 1, 1),
    b"PING": (lambda client, command: replies.bulk(command[1]) if command[1:] else b"+PONG\r\n", 1, 2),
    b"ECHO": (lambda client, command: replies.bulk(command[1]), 2, 2),
    b"SELECT": (lambda client, command: replies.OK if command[1] == b"0" else _WRONG_DATABASE, 2, 2),
    b"HELLO": (Client._hello, 1, MOST_WORDS),
    b"AUTH": (lambda client, command: replies.OK if client.authenticate(command[-1]) else _WRONG_TOKEN, 2, 3),
    b"CLIENT": (Client._client, 2, MOST_WORDS),
    b"CONFIG": (Client._config, 3, MOST_WORDS),
    b"COMMAND": (lambda client, command: replies.array([]), 1, MOST_WORDS),
    b"INFO": (lambda client, command: _INFO, 1, MOST_WORDS),
    b"QUIT": (Client._quit, 1, MOST_WORDS),
    b"RESET": (Client._reset, 1, 1),
    # HTTP begins with these. A web page can make a browser send it here: nothing behind it may be executed
    b"POST": (Client._quit, 1, MOST_WORDS),
    b"HOST:": (Client._quit, 1, MOST_WORDS),
}


def _name(command: Command) -> str:
    return command[1].decode("latin-1")  # letters beyond ASCII are refused later


def _number(what: str, text: bytes, least: int, most: int) -> int:
    """Read a number as Redis does: in digits alone."""
    number = int(text) if text.isdigit() and len(text) < 20 else -1
    if b"%d" % number != text or not least <= number <= most:
        raise InvalidRequest(f"{what} is a whole number from {least} to {most}")
    return number
