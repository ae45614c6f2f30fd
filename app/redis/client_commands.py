"""The commands that clients send in order to connect, and around others."""

import asyncio
import re
import time

from app.clients.denials import Denials
from app.common.version import VERSION
from app.redis import replies
from app.redis.connection import RedisConnection
from app.redis.parser import Command
from app.redis.session import LONGEST_NAME

COMPATIBLE_WITH = "7.4.0"
"""The release of Redis whose protocol this is, for clients that choose their commands by it."""
LONGEST_PATTERN = 64
MOST_PATTERNS = 16
WRONG_TOKEN = replies.error("WRONGPASS", "invalid username-password pair or user is disabled.")


class ClientCommands:
    """`most`: how many client connections there may be."""

    def __init__(self, denials: Denials, most: int) -> None:
        self._denials = denials
        self._started = time.monotonic()
        self._configured = {
            "appendonly": "yes",  # what is answered is durable
            "databases": "1",
            "maxclients": str(most),
            "save": "",
        }

    def ping(self, connection: RedisConnection, command: Command) -> None:
        """PING [message]"""
        connection.reply(b"+PONG\r\n" if len(command) == 1 else replies.bulk(command[1]))

    def echo(self, connection: RedisConnection, command: Command) -> None:
        """ECHO message"""
        connection.reply(replies.bulk(command[1]))

    def select(self, connection: RedisConnection, command: Command) -> None:
        """SELECT 0"""
        if command[1] == b"0":
            connection.reply(replies.OK)
        elif re.fullmatch(rb"-?[0-9]{1,9}", command[1]):
            connection.reply(replies.error("ERR", "DB index is out of range"))
        else:
            connection.reply(replies.error("ERR", "value is not an integer or out of range"))

    def quit(self, connection: RedisConnection, command: Command) -> None:
        """QUIT"""
        del command
        connection.reply(replies.OK)
        connection.leave()

    def reset(self, connection: RedisConnection, command: Command) -> None:
        """RESET"""
        del command
        connection.session.reset()
        connection.reply(b"+RESET\r\n")

    # --- who the client is -------------------------------------------------------------------------------------------

    def auth(self, connection: RedisConnection, command: Command) -> None:
        """AUTH token | AUTH any token"""
        if len(command) > 3:
            connection.reply(replies.error("ERR", "syntax error"))
        elif connection.session.authenticate(command[-1]):
            connection.reply(replies.OK)
        else:
            self._deny(connection, command[-1])

    def hello(self, connection: RedisConnection, command: Command) -> None:
        """HELLO [2 | 3 [AUTH any token] [SETNAME name]]"""
        session = connection.session
        version = session.version
        if len(command) > 1:
            if not command[1].isdigit():
                connection.reply(replies.error("ERR", "Protocol version is not an integer or out of range"))
                return
            if command[1] not in (b"2", b"3"):
                connection.reply(replies.error("NOPROTO", "unsupported protocol version"))
                return
            version = int(command[1])
        token = name = None
        at, size = 2, len(command)
        while at < size:
            option = command[at].upper()
            if option == b"AUTH" and at + 2 < size:
                token, at = command[at + 2], at + 3
            elif option == b"SETNAME" and at + 1 < size:
                name, at = command[at + 1], at + 2
            else:
                text = f"Syntax error in HELLO option '{replies.shown(command[at])}'"
                connection.reply(replies.error("ERR", text))
                return
        if name is not None and not _is_client_name(name):
            connection.reply(_BAD_NAME)
            return
        if token is not None and not session.authenticate(token):
            self._deny(connection, token)
            return
        session.version = version
        session.name = session.name if name is None else name
        connection.reply(self._greeting(connection))

    def _greeting(self, connection: RedisConnection) -> bytes:
        session = connection.session
        facts = {
            "server": replies.bulk("ticketd"),
            "version": replies.bulk(COMPATIBLE_WITH),
            "proto": replies.integer(session.version),
            "id": replies.integer(session.number),
            "mode": replies.bulk("standalone"),
            "role": replies.bulk("master"),
            "modules": replies.EMPTY_ARRAY,
        }
        return replies.mapping(facts, session.version)

    def _deny(self, connection: RedisConnection, token: bytes) -> None:
        """A wrong token. Where many come, the connection waits for its answer: a guess costs one for so long."""
        self._denials.add("tickets", connection.client, token)
        pause = self._denials.pause_after_guess() if token else 0.0
        if pause:
            connection.hold()
            connection.expect(_LateDenial(connection, pause))
        else:
            connection.reply(WRONG_TOKEN)

    def client(self, connection: RedisConnection, command: Command) -> None:
        """CLIENT SETNAME name | SETINFO attribute value | GETNAME | ID | INFO | LIST | NO-EVICT | NO-TOUCH"""
        session = connection.session
        word, arguments = command[1].upper(), command[2:]
        if word == b"SETNAME" and len(arguments) == 1:
            if _is_client_name(arguments[0]):
                session.name = arguments[0]
                connection.reply(replies.OK)
            else:
                connection.reply(_BAD_NAME)
        elif (word, len(arguments)) in _ACCEPTED:
            connection.reply(replies.OK)
        elif word == b"GETNAME" and not arguments:
            connection.reply(replies.bulk(session.name) if session.name else replies.null(session.version))
        elif word == b"ID" and not arguments:
            connection.reply(replies.integer(session.number))
        elif word in (b"INFO", b"LIST") and not arguments:
            line = b"id=%d name=%b resp=%d db=0\n" % (session.number, session.name, session.version)
            connection.reply(replies.bulk(line))
        else:
            connection.reply(_no_such_subcommand("CLIENT", command))

    # --- what the server is ------------------------------------------------------------------------------------------

    def config(self, connection: RedisConnection, command: Command) -> None:
        """CONFIG GET pattern [pattern ...]"""
        patterns = command[2:]
        if command[1].upper() != b"GET" or not patterns:
            connection.reply(_no_such_subcommand("CONFIG", command))
            return
        if len(patterns) > MOST_PATTERNS or any(len(pattern) > LONGEST_PATTERN for pattern in patterns):
            connection.reply(replies.error("ERR", "too many patterns, or too long ones"))
            return
        found = {
            name: replies.bulk(value)
            for name, value in self._configured.items()
            if any(_matches(pattern.lower(), name.encode()) for pattern in patterns)
        }
        connection.reply(replies.mapping(found, connection.session.version))

    def info(self, connection: RedisConnection, command: Command) -> None:
        """INFO [section ...]"""
        del command
        lines = (
            "# Server",
            f"redis_version:{COMPATIBLE_WITH}",
            "server_name:ticketd",
            f"ticketd_version:{VERSION}",
            "redis_mode:standalone",
            f"uptime_in_seconds:{int(time.monotonic() - self._started)}",
            "# Persistence",
            "loading:0",
            "# Replication",
            "role:master",
            "connected_slaves:0",
            "# Cluster",
            "cluster_enabled:0",
        )
        connection.reply(replies.bulk("".join(f"{line}\r\n" for line in lines)))


class _LateDenial:
    """A reply that is to come: to a wrong token, after so many seconds. See requests.Slot."""

    owed = 64

    def __init__(self, connection: RedisConnection, seconds: float) -> None:
        self.reply: bytes | None = None
        self._connection = connection
        self._timer = asyncio.get_running_loop().call_later(seconds, self._deny)

    def _deny(self) -> None:
        self.reply = WRONG_TOKEN
        self._connection.release()

    def drop(self) -> None:
        """See Slot.drop."""
        self._timer.cancel()


_ACCEPTED = {(b"SETINFO", 2), (b"NO-EVICT", 1), (b"NO-TOUCH", 1)}
"""The options of a client that change nothing on this server, and how many arguments each has."""
_BAD_NAME = replies.error("ERR", "Client names cannot contain spaces, newlines or special characters.")


def _is_client_name(name: bytes) -> bool:
    return len(name) <= LONGEST_NAME and all(33 <= byte <= 126 for byte in name)


def _no_such_subcommand(name: str, command: Command) -> bytes:
    text = f"unknown subcommand or wrong number of arguments for '{replies.shown(command[1])}'. Try {name} HELP."
    return replies.error("ERR", text)


def _matches(pattern: bytes, name: bytes) -> bool:
    """Whether a pattern fits, in which * stands for anything and every other byte for itself."""
    first, *others = pattern.split(b"*")
    if not others:
        return name == first
    *inner, last = others
    if len(first) + len(last) > len(name) or not (name.startswith(first) and name.endswith(last)):
        return False
    at, end = len(first), len(name) - len(last)
    for part in inner:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
