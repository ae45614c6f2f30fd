"""One connection to Redis: it sends commands, and reads their replies with hiredis."""

import asyncio
import ssl
from typing import Any, cast

import hiredis

from app.databases.dial import dial
from app.databases.redis.errors import translated
from app.databases.redis.url import RedisAddress
from app.errors import DatabaseFailed, SettingsError

LARGEST = 64 << 20
"""Bytes of the replies to one call that are kept at most."""


class Line(asyncio.Protocol):
    """A connection that runs one call at a time. After any error but an error reply it is closed."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader(encoding="utf-8", errors="surrogateescape")
        self._transport: asyncio.Transport | None = None
        self._replies: list[Any] = []
        self._wanted = self._size = 0
        self._waiting: asyncio.Future[list[Any]] | None = None
        self._failure: DatabaseFailed | None = None

    async def call(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Send commands together, and return their replies; an error reply is a hiredis.ReplyError.

        Raises DatabaseFailed where the connection is lost, or was.
        """
        if self._failure is not None or self._transport is None:
            raise DatabaseFailed(str(self._failure or "is not connected"))
        self._waiting = asyncio.get_running_loop().create_future()
        self._replies, self._wanted, self._size = [], len(commands), 0
        self._transport.write(b"".join([hiredis.pack_command(command) for command in commands]))
        return await self._waiting

    async def ask(self, *command: str | int) -> Any:
        """Send one command, and return its reply. Raises DatabaseError for an error reply too."""
        (reply,) = await self.call(command)
        if isinstance(reply, hiredis.ReplyError):
            raise translated(str(reply))
        return reply

    def abort(self, reason: str = "broke the connection off") -> None:
        """Close the connection at once; the call under way fails."""
        self._failure = self._failure or DatabaseFailed(reason)
        if self._transport is not None:
            self._transport.abort()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(DatabaseFailed(str(self._failure)))

    # --- what asyncio calls ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none of asyncio's

    def data_received(self, data: bytes) -> None:
        """Read replies. A reply that nobody asked for, and bytes that are no reply, end the connection."""
        self._size += len(data)
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                self._replies.append(reply)
        except hiredis.ProtocolError:
            self.abort("gave an answer that makes no sense")
            return
        waiting = self._waiting
        if len(self._replies) > self._wanted or self._size > LARGEST or waiting is None or waiting.done():
            self.abort("gave an answer that makes no sense")
        elif len(self._replies) == self._wanted:
            waiting.set_result(self._replies)

    def connection_lost(self, _error: Exception | None) -> None:
        """Fail the call under way."""
        self.abort()


async def open_line(address: RedisAddress, seconds: float) -> Line:
    """Connect, without a login. seconds: how long the caller will wait. Raises DatabaseFailed."""
    try:
        context = await asyncio.to_thread(address.tls)
        opened = await dial(address.host, address.port, seconds)
        try:
            _, line = await asyncio.get_running_loop().create_connection(
                Line, sock=opened, ssl=context, server_hostname=address.host if context is not None else None
            )
        except BaseException:
            opened.close()
            raise
    except SettingsError as error:
        raise DatabaseFailed(str(error)) from error
    except ssl.SSLError as error:
        raise DatabaseFailed("could not agree on TLS: the certificate or the protocol does not fit") from error
    except ConnectionRefusedError as error:
        raise DatabaseFailed("refuses connections") from error
    except OSError as error:
        raise DatabaseFailed("cannot be reached") from error
    return line
