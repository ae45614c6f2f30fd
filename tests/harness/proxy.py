"""A TCP proxy in front of one database, whose faults have names and can be switched while connections are open.

It runs an event loop in a thread of its own, so it goes on whatever the test is waiting for.

    with FaultyProxy(database.port) as proxy:
        server = TicketServer(f"{database.url_of(SCHEMA, proxy.port)} {other.url}")
        …
        proxy.freeze()
        …
        proxy.restore()
"""

import asyncio
import contextlib
import enum
import itertools
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.harness.processes import free_port

T = TypeVar("T")


class Fault(enum.Enum):
    """The faults of the network. Each lasts until another fault or `restore`."""

    NONE = "everything passes"
    REFUSE = "nobody listens: new connections are refused and established ones reset"
    RESET_ON_CONNECT = "new connections are accepted and reset at once; established ones pass"
    STALL_HANDSHAKE = "new connections are accepted and nothing is said; established ones pass"
    FREEZE = "nothing passes either way, nothing is closed, and all of it arrives once restored"
    DROP_REPLIES = "requests reach the database, its replies are lost; what lost one is reset once restored"
    DROP_REQUESTS = "replies reach the client, its requests are lost; what lost one is reset once restored"
    DELAY = "every reply is held back for so many seconds, then delivered"


class FaultyProxy:
    """Listens on `port` of 127.0.0.1 and passes on to `target`, as well as the present `fault` lets it."""

    def __init__(self, target: int) -> None:
        """`target`: the port of 127.0.0.1 to pass on to."""
        self.targets = [target]
        """Where new connections go, one after the other: to several, as a balancer would."""
        self._turn = itertools.count()
        self.port = free_port()
        self.fault = Fault.NONE
        self.seconds = 0.0
        self.accepted = 0
        """Connections accepted so far."""
        self.lost_bytes = 0
        """Bytes that a fault has swallowed so far."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name=f"proxy-{self.port}", daemon=True)
        self._listener: socket.socket | None = None
        self._links: set[_Link] = set()
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<FaultyProxy {self.port} to {self.targets}, {self.fault.name}, {self.connections} connections>"

    def __enter__(self) -> "FaultyProxy":
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(self, *exception: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def name(self) -> str:
        """host:port, as the ticket server names the database behind it."""
        return f"127.0.0.1:{self.port}"

    @property
    def target(self) -> int:
        """Where new connections go."""
        return self.targets[0]

    @target.setter
    def target(self, port: int) -> None:
        self.targets = [port]

    def next_target(self) -> int:
        """Where the connection goes that is made now."""
        return self.targets[next(self._turn) % len(self.targets)]

    @property
    def connections(self) -> int:
        """Connections that are open now, as the proxy sees it."""
        return len(self._links)

    # -- the faults by their names

    def restore(self) -> None:
        """Everything passes again."""
        self.set_fault(Fault.NONE)

    def refuse(self) -> None:
        self.set_fault(Fault.REFUSE)

    def reset_on_connect(self) -> None:
        self.set_fault(Fault.RESET_ON_CONNECT)

    def stall_handshake(self) -> None:
        self.set_fault(Fault.STALL_HANDSHAKE)

    def freeze(self) -> None:
        self.set_fault(Fault.FREEZE)

    def drop_replies(self) -> None:
        self.set_fault(Fault.DROP_REPLIES)

    def drop_requests(self) -> None:
        self.set_fault(Fault.DROP_REQUESTS)

    def delay(self, seconds: float) -> None:
        self.set_fault(Fault.DELAY, seconds)

    def set_fault(self, fault: Fault, seconds: float = 0) -> None:
        """Switch to this fault, from any thread; it holds when the call returns."""
        self._call(self._switch(fault, seconds))

    def cut(self) -> int:
        """Reset every established connection once, at both ends; returns how many. New ones are as the fault says."""
        return self._call(self._cut())

    # -- in the loop's thread

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _switch(self, fault: Fault, seconds: float) -> None:
        self.fault, self.seconds = fault, seconds
        await self._reset([link for link in self._links if link.lost or fault is Fault.REFUSE])
        if fault is Fault.REFUSE:
            self._stop_listening()
        elif self._listener is None:
            await self._listen()
        self._changed.set()
        self._changed = asyncio.Event()

    async def _cut(self) -> int:
        return await self._reset(list(self._links))

    async def _reset(self, links: list["_Link"]) -> int:
        for link in links:
            link.task.cancel()
        await asyncio.gather(*(link.task for link in links), return_exceptions=True)
        return len(links)

    async def _listen(self) -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(512)
        listener.setblocking(False)
        self._listener = listener
        # not sock_accept: a connection that it has just accepted is lost with it where it is cancelled
        self._loop.add_reader(listener, self._accept, listener)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
        self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:
            return  # it has gone again
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.accepted += 1
        if self.fault is Fault.RESET_ON_CONNECT:
            _close_with_reset(client)
        else:
            self._links.add(_Link(self, client))

    async def _close(self) -> None:
        self._stop_listening()
        await self._cut()

    def forget(self, link: "_Link") -> None:
        self._links.discard(link)

    async def until_passing(self, *faults: Fault) -> None:
        """Wait while one of these faults holds."""
        while self.fault in faults:
            await self._changed.wait()


class _Link:
    """One client's connection and the one to the database that belongs to it; its task serves both, until cancelled."""

    def __init__(self, proxy: FaultyProxy, client: socket.socket) -> None:
        self.lost = False
        self._proxy = proxy
        self._client = client
        self._server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._server.setblocking(False)
        self._server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.task = asyncio.get_running_loop().create_task(self._serve())
        self.task.add_done_callback(self._end)

    async def _serve(self) -> None:
        loop, proxy = asyncio.get_running_loop(), self._proxy
        try:
            await proxy.until_passing(Fault.STALL_HANDSHAKE, Fault.FREEZE)
            await loop.sock_connect(self._server, ("127.0.0.1", proxy.next_target()))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(self._client, self._server, Fault.DROP_REQUESTS))
                group.create_task(self._pump(self._server, self._client, Fault.DROP_REPLIES))
        except* OSError:
            pass  # either side has gone: the other one follows

    def _end(self, task: asyncio.Task[None]) -> None:
        _close_with_reset(self._client)
        _close_with_reset(self._server)
        self._proxy.forget(self)

    async def _pump(self, source: socket.socket, sink: socket.socket, loses: Fault) -> None:
        loop, proxy = asyncio.get_running_loop(), self._proxy
        while True:
            data = await loop.sock_recv(source, 65536)
            await proxy.until_passing(Fault.FREEZE)
            if proxy.fault is Fault.DELAY and loses is Fault.DROP_REPLIES:
                await asyncio.sleep(proxy.seconds)
                await proxy.until_passing(Fault.FREEZE)
            if proxy.fault is loses:
                self.lost = True
                proxy.lost_bytes += len(data)
                if data:
                    continue
                await proxy.until_passing(loses)
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            await loop.sock_sendall(sink, data)


def _close_with_reset(connection: socket.socket) -> None:
    """Close with an RST where the other side is still there."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
