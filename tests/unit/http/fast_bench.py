"""An HTTP server on 127.0.0.1 in front of a desk that the test answers for, and a client that sends bytes."""

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from starlette.types import Receive, Scope, Send

from app.access import Access
from app.connections import Connections
from app.http.fast import HttpServer
from app.operations.tally import Tally
from app.operations.watch import Seen
from app.tickets.request import Block, Request, Shape

SECONDS = 30.0
"""Deadline of whatever a test waits for."""


class FakeDesk:
    """Answers at once, or, while `is_held`, when the test says so. It knows `photos`, made as `Photos`, and `likes`."""

    increment = 2

    def __init__(self) -> None:
        self.ids = itertools.count(1)
        self.is_held = False
        self.held: list[Request] = []
        self.taken = 0
        self.answers: dict[str, Any] = {}

    def known(self, sequence: str) -> Any:
        kinds = {"photos": ("Photos", "ticket"), "likes": ("likes", "instagram")}
        if sequence not in kinds:
            return None
        name, kind = kinds[sequence]
        return SimpleNamespace(name=name, definition=SimpleNamespace(kind=kind))

    def take(self, request: Request) -> None:
        self.taken += 1
        if self.is_held:
            self.held.append(request)
        else:
            self.give(request)

    def give(self, request: Request) -> None:
        if request.sequence in self.answers:
            request.finish(self.answers[request.sequence])
        elif request.shape is Shape.SINGLE:
            request.finish(next(self.ids))
        elif request.shape is Shape.LIST:
            request.finish([next(self.ids) for _ in range(request.count)])
        else:
            request.finish(Block(next(self.ids), 2, request.count))

    def release(self) -> None:
        """Answer what is held, but for what was abandoned."""
        held, self.held = self.held, []
        for request in held:
            if not request.is_over:
                self.give(request)


class Application:
    """Stands for FastAPI: says which requests it got, and waits while `gate` is closed."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.got.append(f"{scope['method']} {scope['path']}")
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size += len(message["body"])
            if not message["more_body"]:
                break
        await self.gate.wait()
        body = json.dumps({"app": scope["path"], "size": size}).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Client:
    """A connection that sends bytes and reads answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        """Return status, header fields and body of the next answer."""
        async with asyncio.timeout(SECONDS):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            body = await self.reader.readexactly(int(fields.get("content-length", 0)))
        return int(first.split()[1]), fields, json.loads(body) if "json" in fields.get("content-type", "json") else body

    async def answer_head(self) -> str:
        """Return the first line of an answer that has nothing else."""
        async with asyncio.timeout(SECONDS):
            return (await self.reader.readuntil(b"\r\n\r\n")).decode().strip()

    async def ask(self, data: bytes) -> tuple[int, dict[str, str], Any]:
        self.send(data)
        return await self.answer()

    async def rest(self) -> bytes:
        """Return what comes until the server closes the connection."""
        async with asyncio.timeout(SECONDS):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""


class Bench:
    """The server, and what stands behind it."""

    def __init__(self, tokens: Iterable[str], most: int, watch: Any) -> None:
        self.desk, self.app, self.tally, self.access = FakeDesk(), Application(), Tally(), Access(tokens)
        self.connections = Connections(most, self.tally)
        desk: Any = self.desk
        self.http = HttpServer(
            self.app, desk, self.access, self.tally, self.connections, watch, grace=SECONDS, idle=620
        )
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.clients: list[Client] = []

    async def client(self) -> Client:
        reader, writer = await asyncio.open_connection(*self.socket.getsockname()[:2])
        self.clients.append(Client(reader, writer))
        return self.clients[-1]

    async def until(self, condition: Any) -> None:
        """Wait for something that the server does without an answer."""
        async with asyncio.timeout(SECONDS):
            while not condition():  # noqa: ASYNC110  what the server does has no event for tests
                await asyncio.sleep(0.002)

    @property
    def protocols(self) -> list[Any]:
        return list(self.http.state.connections)


class Watching:
    """Keeps what an access log would say."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    def saw(self, seen: Seen) -> None:
        self.seen.append(seen)


@asynccontextmanager
async def serving(tokens: Iterable[str] = (), most: int = 100, watch: Any = None) -> AsyncIterator[Bench]:
    """Run a server, and end it."""
    bench = Bench(tokens, most, watch)
    running = asyncio.create_task(bench.http.serve([bench.socket]))
    try:
        yield bench
    finally:
        for client in bench.clients:
            client.writer.close()
        bench.http.stop()
        await asyncio.wait_for(running, SECONDS)
        bench.socket.close()


def get(path: str, *headers: str, version: str = "1.1", method: str = "GET") -> bytes:
    """Return the bytes of a request."""
    return "\r\n".join([f"{method} {path} HTTP/{version}", "Host: a", *headers, "", ""]).encode()
