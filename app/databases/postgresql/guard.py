"""A guard between asyncpg and the network bounds the server's answers, checks their lengths, and protects the password.

asyncpg takes any answer, however long, and sends the password in clear text to a server that asks for it. A message
whose length is negative has it loop for ever, and nothing else runs in this process then (asyncpg 0.32). It has no
setting for any of that. But it opens its connections by the event loop that it is given.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from asyncpg.protocol import Protocol

from app.databases.line import SMALL_ANSWER

_AUTHENTICATION, _DONE, _CLEAR_TEXT = b"R", 0, 3
"""A message of this type says how the login goes on: it is done, or the password is wanted in clear text."""


class Guard(asyncio.Protocol):
    """Passes on what the server sends to the driver. `left`: bytes that the server may still send. `takes_clear_text`:
    whether the server may have the password itself; else `refused` says that it asked for it."""

    def __init__(self, driver: Any, *, takes_clear_text: bool, transport: Any = None) -> None:
        self.driver = driver
        self.left = SMALL_ANSWER
        self.refused = False
        self._takes_clear_text = takes_clear_text
        self._transport = transport
        self._logging_in = True
        self._begun = b""
        """The first bytes of a message: all that has come of it during the login, and of its head alone after that."""
        self._ahead = 0
        """After the login: how many bytes of the present message are still to come."""
        self.connection_lost = driver.connection_lost  # type: ignore[method-assign]
        self.pause_writing, self.resume_writing = driver.pause_writing, driver.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.driver.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.left -= len(data)
        if self.left < 0:
            self._transport.abort()
        elif self._logging_in:
            self._log_in(self._begun + data)
        else:
            self._pass_on(data)

    def _log_in(self, data: bytes) -> None:
        """Pass each message on as soon as it is complete: its type, four bytes of length, and its content."""
        while self._logging_in and len(data) >= 5:
            end = 1 + max(4, int.from_bytes(data[1:5]))
            if len(data) < end:
                break
            says = int.from_bytes(data[5:9]) if data[:1] == _AUTHENTICATION else None
            if says == _CLEAR_TEXT and not self._takes_clear_text:
                self.refused = True
                self._transport.abort()
                return
            self._logging_in = says != _DONE
            self.driver.data_received(data[:end])
            data = data[end:]
        if self._logging_in:
            self._begun = data
        else:
            self._begun = b""
            self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        """Pass the bytes on if the messages in them have possible lengths."""
        known = self._begun + data
        head, end = self._ahead, len(known)
        while head + 5 <= end:
            length = int.from_bytes(known[head + 1 : head + 5], signed=True)
            if length < 4:
                self._transport.abort()
                return
            head += 1 + length
        self._begun, self._ahead = (known[head:], 0) if head < end else (b"", head - end)
        if data:
            self.driver.data_received(data)


class GuardedLoop:
    """The running event loop as the driver sees it while it connects. `guard`: of the last connection."""

    def __init__(self, *, takes_clear_text: bool) -> None:
        self.loop = asyncio.get_running_loop()
        self.guard: Guard | None = None
        self._takes_clear_text = takes_clear_text

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)

    def guarded(self, made: Any, transport: Any = None) -> Any:
        """Put a guard before the driver's protocol. The protocol that asks for TLS needs none: it reads one byte."""
        if not isinstance(made, Protocol):
            return made
        self.guard = Guard(made, takes_clear_text=self._takes_clear_text, transport=transport)
        return self.guard

    async def create_connection(self, factory: Callable[[], Any], *args: Any, **more: Any) -> tuple[Any, Any]:
        transport, made = await self.loop.create_connection(lambda: self.guarded(factory()), *args, **more)
        return transport, made.driver if isinstance(made, Guard) else made

    async def start_tls(self, *args: Any, **more: Any) -> Any:
        transport = await self.loop.start_tls(*args, **more)
        return None if transport is None else _Transport(transport, self)


class _Transport:
    """An encrypted connection, which the driver gives its protocol to."""

    def __init__(self, transport: Any, loop: GuardedLoop) -> None:
        self._transport = transport
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def set_protocol(self, protocol: Any) -> None:
        self._transport.set_protocol(self._loop.guarded(protocol, self._transport))
