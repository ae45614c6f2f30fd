"""An HTTP server on 127.0.0.1 in front of a desk that the test answers for, and a client that sends bytes."""

import asyncio
import contextlib
import itertools
import json
import socket
from typing import Any

from starlette import requests
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from app.access import Access
from app.connections import Connections, Tally
from app.http.fast import HttpServer
from app.tickets.request import Block, Request, Shape
from tests.contract.http_bench import DEADLINE, Wire


class FakeDesk:
    """Answers at once, or, while `is_held`, when the test says so. It also is the source and the entry of `photos`."""

    increment, sequence, name = 2, "Photos", "Photos"

    def __init__(self) -> None:
        self.ids, self.is_held, self.held, self.taken = itertools.count(1), False, list[Request](), 0

    def source(self, sequence: str) -> Any:
        return self if sequence == "photos" else None

    known = source

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
        """Answer what is held, but for what was abandoned."""
        held, self.held = self.held, []
        for request in held:
            if not request.is_over:
                ids = [next(self.ids) for _ in range(1 if request.shape is Shape.BLOCK else request.count)]
                answers = {Shape.SINGLE: ids[0], Shape.LIST: ids, Shape.BLOCK: Block(ids[0], 2, request.count)}
                request.finish(answers[request.shape])


class Application:
    """Stands for FastAPI: says which requests it got, and waits while `gate` is closed."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = requests.Request(scope, receive)
        self.got.append(f"{request.method} {request.url.path}")
        with contextlib.suppress(requests.ClientDisconnect):
            size = len(await request.body())
            await self.gate.wait()
            told = {"app": request.url.path, "size": size, "accept": request.headers.getlist("accept")}
            await JSONResponse(told)(scope, receive, send)


class Client(Wire):
    """A connection that sends requests and reads answers."""

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        """Return the status, the header fields and the body of the next answer."""
        async with asyncio.timeout(DEADLINE):
            first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            body = await self.reader.readexactly(int(fields.get("content-length", 0)))
        is_json = body and "json" in fields.get("content-type", "json")
        return int(first.split()[1]), fields, json.loads(body) if is_json else body

    async def ask(self, data: bytes) -> tuple[int, dict[str, str], Any]:
        self.send(data)
        return await self.answer()


class Bench:
    """The server, and what stands behind it."""

    def __init__(self) -> None:
        self.desk, self.app, self.tally, self.access = FakeDesk(), Application(), Tally(), Access()
        self.connections = Connections(100, self.tally)
        desk: Any = self.desk
        self.http = HttpServer(
            self.app, desk, self.access, self.tally, self.connections, None, grace=DEADLINE, idle=620
        )
        self.socket, self.clients = socket.create_server(("127.0.0.1", 0)), list[Client]()

    async def client(self) -> Client:
        self.clients.append(Client(*await asyncio.open_connection(*self.socket.getsockname()[:2])))
        return self.clients[-1]

    @property
    def protocols(self) -> list[Any]:
        return list(self.http.state.connections)


def get(path: str, *headers: str, version: str = "1.1", method: str = "GET") -> bytes:
    """Return the bytes of a request."""
    return "\r\n".join([f"{method} {path} HTTP/{version}", "Host: a", *headers, "", ""]).encode()
