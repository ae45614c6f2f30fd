"""One connection to Redis: it sends commands, and reads their replies with hiredis. The server's errors end here."""

import asyncio
import re
import ssl
from typing import Any, cast

import hiredis

from app.databases.dial import dial
from app.databases.redis.url import RedisAddress
from app.errors import DatabaseFailed, DatabaseRefused, SettingsError

CLUSTER = "is a Redis Cluster, which spreads keys over servers: name a server that runs without cluster-enabled"
NONSENSE = "gave an answer that makes no sense"
_REFUSED = {
    **dict.fromkeys(("MOVED", "ASK", "CROSSSLOT", "CLUSTERDOWN", "ERR SELECT is not allowed"), CLUSTER),
    "NOPERM": "does not give this user the commands or keys that a ticket server needs: see deploy/redis/users.acl",
    "WRONGTYPE": "has a key that begins with {tickets}: and is of another type: rename that key",
}
_FAILED = {
    **dict.fromkeys(("NOAUTH", "WRONGPASS", "ERR AUTH", "ERR Client sent AUTH"), "refuses the user or password"),
    "READONLY": "is a replica, which is read-only",
    "OOM": "is out of memory: see maxmemory there",
    "LOADING": "is loading its data",
    "MISCONF": "cannot write its data to the disk (MISCONF)",
    "DENIED": "takes only clients of its own machine (protected-mode)",
    "ERR max number of clients": "has too many connections",
    "ERR DB index": "has no such database",
}
"""What an error of Redis means, by its first words. Of an error that is in neither table only the code is told."""


def checked(reply: Any) -> Any:
    """Return a reply, or raise DatabaseRefused or DatabaseFailed for an error reply."""
    if not isinstance(reply, hiredis.ReplyError):
        return reply
    message = str(reply)
    for table, error in ((_REFUSED, DatabaseRefused), (_FAILED, DatabaseFailed)):
        for words in filter(message.startswith, table):
            raise error(table[words])
    code = re.sub("(?s)[^A-Z].*", "", message)
    raise DatabaseFailed(f"answered with the error {code}, which this release does not know")


class Line(asyncio.Protocol):
    """A connection that runs one call at a time. After any error but an error reply it is closed."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader(encoding="utf-8", errors="surrogateescape")
        self._transport: asyncio.Transport
        self._replies: list[Any] = []
        self._wanted = 0
        self._waiting: asyncio.Future[list[Any]] | None = None
        self._failure = ""

    async def call(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Send commands together, and return their replies; an error reply is a hiredis.ReplyError.

        Raises DatabaseFailed where the connection is lost, or was.
        """
        if self._failure:
            raise DatabaseFailed(self._failure)
        self._waiting = asyncio.get_running_loop().create_future()
        self._replies, self._wanted = [], len(commands)
        self._transport.write(b"".join([hiredis.pack_command(command) for command in commands]))
        return await self._waiting

    async def ask(self, *command: str | int) -> Any:
        """Send one command, and return its reply. Raises DatabaseError for an error reply too."""
        return checked((await self.call(command))[0])

    def abort(self, reason: str = "broke the connection off") -> None:
        """Close the connection at once; the call under way fails."""
        self._failure = self._failure or reason
        self._transport.abort()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(DatabaseFailed(self._failure))

    # --- what asyncio calls ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport | None) -> None:
        """Take the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none of asyncio's

    def data_received(self, data: bytes) -> None:
        """Read replies. A reply that nobody asked for, and bytes that are no reply, end the connection."""
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                self._replies.append(reply)
        except hiredis.ProtocolError:
            self.abort(NONSENSE)
            return
        waiting = self._waiting
        if len(self._replies) > self._wanted or waiting is None or waiting.done():
            self.abort(NONSENSE)
        elif len(self._replies) == self._wanted:
            waiting.set_result(self._replies)

    def connection_lost(self, _error: Exception | None) -> None:
        """Fail the call under way."""
        self.abort()


async def open_line(address: RedisAddress, seconds: float) -> Line:
    """Connect, without a login. seconds: how long the caller will wait. Raises DatabaseFailed."""
    try:
        context = await asyncio.to_thread(address.tls_context)
        opened = await dial(address.host, address.port, seconds)
        loop = asyncio.get_running_loop()
        transport, line = await loop.create_connection(Line, sock=opened)
        if context is not None:
            # Not in create_connection: where TLS fails to write there, uvloop and the socket both close its descriptor.
            line.connection_made(await loop.start_tls(transport, line, context, server_hostname=address.host))
    except SettingsError as error:
        raise DatabaseFailed(str(error)) from error
    except ssl.SSLError as error:
        raise DatabaseFailed("could not agree on TLS: the certificate or the protocol does not fit") from error
    except OSError as error:
        refused = isinstance(error, ConnectionRefusedError)
        raise DatabaseFailed("refuses connections" if refused else "cannot be reached") from error
    return line
