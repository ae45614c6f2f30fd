"""An HTTP server on 127.0.0.1 in front of a desk that the test answers for, and a client that sends bytes."""

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from starlette.types import Receive, Scope, Send

from app.access import Access
from app.connections import Connections, Tally
from app.http.fast import HttpServer
from app.tickets.request import Block, Request, Shape

SECONDS = 30.0  # deadline of whatever a test waits for
Answer = tuple[int, dict[str, str], Any]  # status, header fields, and body


async def until(condition: Callable[[], Any]) -> None:
    """Wait for something that the server does without an answer."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110  what the server does has no event for tests
            await asyncio.sleep(0.002)


class FakeDesk:
    """Answers at once, or, while `is_held`, when the test says so. It knows `photos`, made as `Photos`."""

    increment = 2

    def __init__(self) -> None:
        self.ids = itertools.count(1)
        self.is_held = False
        self.held: list[Request] = []
        self.taken = 0

    def known(self, sequence: str) -> Any:
        return SimpleNamespace(name="Photos") if sequence == "photos" else None

    sequence = "Photos"

    def source(self, sequence: str) -> Any:
        """The desk stands for the source of `photos`, too."""
        return self if sequence == "photos" else None

    def ready(self) -> int | None:
        """Return an id that is there already."""
        self.taken += not self.is_held
        return None if self.is_held else next(self.ids)

    def take(self, request: Request) -> None:
        self.taken, self.last = self.taken + 1, request
        self.held.append(request)
        if not self.is_held:
            self.release()

    def release(self) -> None:
        """Answer what is held, but for what was abandoned. The ids of `long` are strings."""
        held, self.held = self.held, []
        for request in held:
            if request.is_over:
                continue
            ids: list[Any] = [next(self.ids) for _ in range(1 if request.shape is Shape.BLOCK else request.count)]
            if request.sequence == "long":
                ids = [f"{each:04x}" for each in ids]
            answers = {Shape.SINGLE: ids[0], Shape.LIST: ids, Shape.BLOCK: Block(ids[0], 2, request.count)}
            request.finish(answers[request.shape])


class Application:
    """Stands for FastAPI: says which requests it got, and waits while `gate` is closed."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.got.append(f"{scope['method']} {scope['path']}")
        size, has_more = 0, True
        while has_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size, has_more = size + len(message["body"]), message["more_body"]
        await self.gate.wait()
        accept = dict(scope["headers"]).get(b"accept", b"").decode()
        body = json.dumps({"app": scope["path"], "size": size, "accept": accept}).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Client:
    """A connection that sends bytes and reads answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.send = reader, writer, writer.write

    async def answer(self) -> Answer:
        """Return the next answer."""
        async with asyncio.timeout(SECONDS):
            first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            body = await self.reader.readexactly(int(fields.get("content-length", 0)))
        is_json = body and "json" in fields.get("content-type", "json")
        return int(first.split()[1]), fields, json.loads(body) if is_json else body

    async def ask(self, data: bytes) -> Answer:
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
        self.clients.append(Client(*await asyncio.open_connection(*self.socket.getsockname()[:2])))
        return self.clients[-1]

    @property
    def protocols(self) -> list[Any]:
        return list(self.http.state.connections)


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
