"""A TCP proxy between a client and a server, with a network that a test can cut, freeze and heal."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self


class Proxy:
    """Forwards each connection to a port of 127.0.0.1, as an asynchronous context manager.

    `port` is where clients connect; it stays the same as long as the proxy is open.
    """

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._is_cut = False
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection, and from now on each new connection at once."""
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def freeze(self) -> None:
        """Hold back all bytes. Connections stay open, and new ones are accepted."""
        self._flows.clear()

    def heal(self) -> None:
        """Forward again, and first the bytes that were held back."""
        self._is_cut = False
        self._flows.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                if not self._is_cut:
                    await self._flows.wait()
                    await self._forward(reader, writer)
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers.add(to_writer)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, to_writer))
                both.create_task(self._pump(to_reader, writer))
        except* OSError:
            pass
        finally:
            to_writer.transport.abort()
            self._writers.discard(to_writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._flows.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionError("one side has ended the connection")
