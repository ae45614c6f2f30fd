"""The commands: what each is called, how many arguments it takes, who may use it, and who answers it."""

from collections.abc import Callable
from typing import NamedTuple

from app.clients.denials import Denials
from app.redis import replies
from app.redis.client_commands import ClientCommands
from app.redis.connection import RedisConnection
from app.redis.parser import Command
from app.redis.ticket_commands import TicketCommands
from app.tickets.desk.front_desk import FrontDesk

NO_TOKEN = replies.error("NOAUTH", "Authentication required.")
FROM_A_PAGE = frozenset({b"POST", b"HOST:"})
"""With these words HTTP begins. A web page can make a browser send that here: nothing behind it may be executed."""
DRAWING = {b"INCR": "ticket", b"INCRBY": "ticket", b"TICKET.TAKE": "ticket", b"TICKET.BLOCK": "block"}
"""The commands that draw, and the endpoint that they are counted under."""
SHOWN_ARGUMENTS = 8
MOST_DESCRIBED = 512
"""How many names COMMAND INFO can be asked for at once: more than Redis has commands."""

Handler = Callable[[RedisConnection, Command], None]


class Spec(NamedTuple):
    """One command. `arity`: how many words it has, itself included; at least so many where it is negative. `is_open`:
    whether it needs no token. `at_once`: whether it is executed even between MULTI and EXEC; `alone`: whether it cannot
    stand there. `name_at`: where it names a sequence."""

    handler: Handler
    arity: int
    is_open: bool = False
    at_once: bool = False
    alone: bool = False
    name_at: int = 0


class Commands:
    """Executes commands."""

    def __init__(self, tickets: TicketCommands, clients: ClientCommands, desk: FrontDesk, denials: Denials) -> None:
        self._desk = desk
        self._denials = denials
        self._table = {
            b"INCR": Spec(tickets.incr, 2, name_at=1),
            b"INCRBY": Spec(tickets.incrby, 3, name_at=1),
            b"TICKET.TAKE": Spec(tickets.take, -2, name_at=1),
            b"TICKET.BLOCK": Spec(tickets.block, 3, name_at=1),
            b"EXISTS": Spec(tickets.exists, -2, name_at=1),
            b"MULTI": Spec(self._multi, 1, at_once=True),
            b"EXEC": Spec(self._exec, 1, at_once=True),
            b"DISCARD": Spec(self._discard, 1, at_once=True),
            b"PING": Spec(clients.ping, -1, is_open=True),
            b"ECHO": Spec(clients.echo, 2),
            b"SELECT": Spec(clients.select, 2),
            b"HELLO": Spec(clients.hello, -1, is_open=True, alone=True),
            b"AUTH": Spec(clients.auth, -2, is_open=True, alone=True),
            b"CLIENT": Spec(clients.client, -2),
            b"CONFIG": Spec(clients.config, -2),
            b"COMMAND": Spec(self._command, -1),
            b"INFO": Spec(clients.info, -1),
            b"QUIT": Spec(clients.quit, -1, is_open=True, at_once=True),
            b"RESET": Spec(clients.reset, 1, is_open=True, at_once=True),
        }
        self._described = {name: self._description(name) for name in self._table}
        self._all_described = replies.array(list(self._described.values()))
        self._listed = replies.array([replies.bulk(name.lower()) for name in self._table])

    def execute(self, connection: RedisConnection, command: Command) -> None:
        """Answer a command."""
        word = command[0].upper()
        session = connection.session
        if word in FROM_A_PAGE:
            self._denials.add("tickets", connection.client, b"")
            connection.leave()
            return
        spec = self._table.get(word)
        refusal = _unknown(command) if spec is None else self._refusal(connection, word, spec, command)
        if spec is None or refusal is not None:
            self._refuse(connection, refusal or NO_TOKEN)
            if spec is None and not session.may_draw:
                connection.leave()  # no client needs it in order to show its token
        elif session.queue is None or spec.at_once:
            spec.handler(connection, command)
        elif spec.alone:
            self._refuse(connection, replies.error("ERR", "Command not allowed inside a transaction"))
        elif not session.add_to_queue(command):
            self._refuse(connection, replies.error("ERR", "too many commands since MULTI"))
        else:
            connection.reply(replies.QUEUED)

    def _refuse(self, connection: RedisConnection, error: bytes) -> None:
        """Answer what is neither executed nor queued."""
        connection.session.is_broken = True
        connection.reply(error)

    def _refusal(self, connection: RedisConnection, word: bytes, spec: Spec, command: Command) -> bytes | None:
        """Why this client may not use a command, or not like this; None where it may."""
        size, arity = len(command), spec.arity
        if size != arity if arity >= 0 else size < -arity:
            if word in DRAWING:
                self._desk.turn_away(DRAWING[word], "invalid")
            return replies.error("ERR", f"wrong number of arguments for '{word.decode().lower()}' command")
        if not (spec.is_open or connection.session.may_draw):
            self._denials.add("tickets" if word in DRAWING else "reading", connection.client, b"")
            if word in DRAWING:
                self._desk.turn_away(DRAWING[word], "denied")
            return NO_TOKEN
        return None

    # --- several commands --------------------------------------------------------------------------------------------

    def _multi(self, connection: RedisConnection, command: Command) -> None:
        """MULTI"""
        del command
        if connection.session.queue is not None:
            connection.reply(replies.error("ERR", "MULTI calls can not be nested"))
        else:
            connection.session.begin_queue()
            connection.reply(replies.OK)

    def _exec(self, connection: RedisConnection, command: Command) -> None:
        """EXEC: the replies of what was queued, one behind the other, are the elements of an array."""
        del command
        session = connection.session
        if session.queue is None:
            connection.reply(replies.error("ERR", "EXEC without MULTI"))
            return
        queue = session.end_queue()
        if session.is_broken:
            connection.reply(replies.error("EXECABORT", "Transaction discarded because of previous errors."))
        else:
            connection.reply(b"*%d\r\n" % len(queue))
            connection.execute_before_others(queue)

    def _discard(self, connection: RedisConnection, command: Command) -> None:
        """DISCARD"""
        del command
        if connection.session.queue is None:
            connection.reply(replies.error("ERR", "DISCARD without MULTI"))
        else:
            connection.session.end_queue()
            connection.reply(replies.OK)

    # --- what there is -----------------------------------------------------------------------------------------------

    def _command(self, connection: RedisConnection, command: Command) -> None:
        """COMMAND [COUNT | LIST | DOCS ... | INFO [name ...]]"""
        word = command[1].upper() if len(command) > 1 else b""
        version = connection.session.version
        if not word or (word == b"INFO" and len(command) == 2):
            connection.reply(self._all_described)
        elif word == b"COUNT":
            connection.reply(replies.integer(len(self._table)))
        elif word == b"LIST":
            connection.reply(self._listed)
        elif word == b"DOCS":
            connection.reply(replies.mapping({}, version))
        elif word == b"INFO" and len(command) - 2 > MOST_DESCRIBED:
            connection.reply(replies.error("ERR", f"COMMAND INFO takes {MOST_DESCRIBED} names at the most"))
        elif word == b"INFO":
            null = replies.null(version)
            connection.reply(replies.array([self._described.get(name.upper(), null) for name in command[2:]]))
        else:
            connection.reply(replies.error("ERR", f"unknown subcommand '{replies.shown(command[1])}'."))

    def _description(self, name: bytes) -> bytes:
        """As Redis describes a command: name, arity, flags, first and last key, step."""
        spec = self._table[name]
        flags = [b"write" if name in DRAWING else b"fast", *([b"no_auth"] if spec.is_open else [])]
        last = -1 if name == b"EXISTS" else spec.name_at
        parts = [
            replies.bulk(name.lower()),
            replies.integer(spec.arity),
            replies.array([b"+%b\r\n" % flag for flag in flags]),
            *(replies.integer(number) for number in (spec.name_at, last, min(spec.name_at, 1))),
        ]
        return replies.array(parts)


def _unknown(command: Command) -> bytes:
    given = " ".join(f"'{replies.shown(argument)}'" for argument in command[1 : 1 + SHOWN_ARGUMENTS])
    text = f"unknown command '{replies.shown(command[0])}', with args beginning with: {given}"
    return replies.error("ERR", text)
