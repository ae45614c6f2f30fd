"""The one table of commands, and those that clients send in order to connect."""

from collections.abc import Callable
from typing import NamedTuple

from app.access import Right
from app.errors import InvalidRequest, TicketError, Unauthenticated
from app.redis import replies
from app.redis.connection import Connection
from app.redis.parser import Command
from app.redis.session import Session
from app.redis.tickets import TicketCommands
from app.version import VERSION

COMPATIBLE_WITH = "7.4.0"
"""The release of Redis whose protocol this is, for clients that choose their commands by it."""
FROM_A_PAGE = frozenset({b"POST", b"HOST:"})
"""HTTP begins with these words. A web page can make a browser send it here: nothing behind it may be executed."""
_ACCEPTED = {(b"SETNAME", 1), (b"SETINFO", 2), (b"NO-EVICT", 1), (b"NO-TOUCH", 1)}
"""What a client may say of itself, and how many arguments each has. It changes nothing here."""
_WRONG_TOKEN = replies.error("WRONGPASS", "invalid username-password pair or user is disabled.")
_INFO = replies.bulk(
    f"# Server\r\nredis_version:{COMPATIBLE_WITH}\r\nticketd_version:{VERSION}\r\nredis_mode:standalone\r\n"
    "# Persistence\r\nloading:0\r\n# Replication\r\nrole:master\r\n# Cluster\r\ncluster_enabled:0\r\n"
)


class Spec(NamedTuple):
    """One command.

    handler: returns the reply, or None where it comes later; raises TicketError. arity: how many words the command has,
    itself included; negative: at least so many. endpoint: what it is counted under, if it draws. is_open: it needs no
    token. at_once: it is executed even in a transaction.
    """

    handler: Callable[[Connection, Command], bytes | None]
    arity: int
    endpoint: str = ""
    is_open: bool = False
    at_once: bool = False


class Commands:
    """Executes commands. most: how many client connections are served."""

    def __init__(self, tickets: TicketCommands, most: int) -> None:
        self._settings = {"appendonly": "yes", "databases": "1", "maxclients": str(most), "save": ""}
        self._table = {
            b"INCR": Spec(tickets.incr, 2, "ticket"),
            b"INCRBY": Spec(tickets.incrby, 3, "ticket"),
            b"TICKET.TAKE": Spec(tickets.take, -2, "ticket"),
            b"TICKET.BLOCK": Spec(tickets.block, 3, "block"),
            b"EXISTS": Spec(tickets.exists, -2),
            b"MULTI": Spec(_multi, 1, at_once=True),
            b"EXEC": Spec(_exec, 1, at_once=True),
            b"DISCARD": Spec(_discard, 1, at_once=True),
            b"PING": Spec(_ping, -1, is_open=True),
            b"ECHO": Spec(_ping, 2),
            b"SELECT": Spec(_select, 2),
            b"HELLO": Spec(_hello, -1, is_open=True),
            b"AUTH": Spec(_auth, -2, is_open=True),
            b"CLIENT": Spec(_client, -2),
            b"CONFIG": Spec(self._config, -3),
            b"COMMAND": Spec(lambda client, command: replies.NOTHING, -1),
            b"INFO": Spec(lambda client, command: _INFO, -1),
            b"QUIT": Spec(_quit, -1, is_open=True, at_once=True),
            b"RESET": Spec(_reset, 1, is_open=True, at_once=True),
        }

    def execute(self, client: Connection, command: Command) -> None:
        """Answer a command."""
        word, session = command[0].upper(), client.session
        if word in FROM_A_PAGE:
            client.leave()
            return
        spec = self._table.get(word)
        try:
            if spec is None or not (spec.is_open or session.may_draw):
                raise self._refusal(session, spec, command)
            if len(command) != spec.arity if spec.arity > 0 else len(command) < -spec.arity:
                raise InvalidRequest(f"wrong number of arguments for '{replies.shown(command[0]).lower()}' command")
            if session.queue is None or spec.at_once:
                reply = spec.handler(client, command)
            else:
                session.enqueue(command)
                reply = replies.QUEUED
        except TicketError as error:
            session.is_broken = True
            reply = replies.refusal("", error)
            if spec is not None and spec.endpoint:
                session.tally.refused(spec.endpoint, error.code)
        if reply is not None:
            client.reply(reply)

    def _refusal(self, session: Session, spec: Spec | None, command: Command) -> TicketError:
        if spec is not None:
            session.tally.denied(Right.TICKETS if spec.endpoint else Right.READING)
        elif session.may_draw:
            return InvalidRequest(f"unknown command '{replies.shown(command[0])}'")
        return Unauthenticated("Authentication required.")

    def _config(self, client: Connection, command: Command) -> bytes:
        """CONFIG GET name [name ...]; `*` stands for all."""
        if command[1].upper() != b"GET":
            raise _no_such_subcommand(command)
        asked = {name.decode("latin-1").lower() for name in command[2:]}
        found = {name: replies.bulk(value) for name, value in self._settings.items() if {name, "*"} & asked}
        return replies.mapping(found, client.session.version)


def _ping(client: Connection, command: Command) -> bytes:
    """PING [message], ECHO message"""
    return b"+PONG\r\n" if len(command) == 1 else replies.bulk(command[1])


def _select(client: Connection, command: Command) -> bytes:
    """SELECT 0"""
    if command[1] != b"0":
        raise InvalidRequest("DB index is out of range")
    return replies.OK


def _quit(client: Connection, command: Command) -> bytes:
    """QUIT"""
    client.leave()
    return replies.OK


def _reset(client: Connection, command: Command) -> bytes:
    """RESET"""
    client.session.reset()
    return b"+RESET\r\n"


def _auth(client: Connection, command: Command) -> bytes:
    """AUTH token | AUTH any token"""
    if len(command) > 3:
        raise InvalidRequest("syntax error")
    return replies.OK if client.session.authenticate(command[-1]) else _WRONG_TOKEN


def _hello(client: Connection, command: Command) -> bytes:
    """HELLO [2 | 3 [AUTH any token] [SETNAME name]]"""
    session, options = client.session, command[2:]
    if len(command) > 1 and command[1] not in (b"2", b"3"):
        return replies.error("NOPROTO", "unsupported protocol version")
    token = None
    while options:
        word = options[0].upper()
        if word == b"AUTH" and len(options) > 2:
            token, options = options[2], options[3:]
        elif word == b"SETNAME" and len(options) > 1:
            options = options[2:]
        else:
            raise InvalidRequest(f"Syntax error in HELLO option '{replies.shown(options[0])}'")
    if token is not None and not session.authenticate(token):
        return _WRONG_TOKEN
    session.version = int(command[1]) if len(command) > 1 else session.version
    facts = {
        "server": replies.bulk("ticketd"),
        "version": replies.bulk(COMPATIBLE_WITH),
        "proto": replies.integer(session.version),
        "id": replies.integer(session.number),
        "mode": replies.bulk("standalone"),
        "role": replies.bulk("master"),
        "modules": replies.NOTHING,
    }
    return replies.mapping(facts, session.version)


def _client(client: Connection, command: Command) -> bytes:
    """CLIENT SETNAME name | SETINFO attribute value | ID | NO-EVICT value | NO-TOUCH value"""
    asked = command[1].upper(), len(command) - 2
    if asked == (b"ID", 0):
        return replies.integer(client.session.number)
    if asked not in _ACCEPTED:
        raise _no_such_subcommand(command)
    return replies.OK


def _multi(client: Connection, command: Command) -> bytes:
    """MULTI"""
    if client.session.queue is not None:
        raise InvalidRequest("MULTI calls can not be nested")
    client.session.begin()
    return replies.OK


def _exec(client: Connection, command: Command) -> bytes:
    """EXEC: the replies to what was queued, one behind the other, are the elements of an array."""
    queue = client.session.end("EXEC")
    if client.session.is_broken:
        return replies.error("EXECABORT", "Transaction discarded because of previous errors.")
    client.execute_first(queue)
    return b"*%d\r\n" % len(queue)


def _discard(client: Connection, command: Command) -> bytes:
    """DISCARD"""
    client.session.end("DISCARD")
    return replies.OK


def _no_such_subcommand(command: Command) -> InvalidRequest:
    return InvalidRequest(f"unknown subcommand or wrong number of arguments for '{replies.shown(command[1])}'")
