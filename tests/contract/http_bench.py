"""A service on fake ticket databases in this process, behind the HTTP application or the Redis protocol."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import jsonschema_rs

from app.access import Access
from app.connections import Connections, Tally
from app.databases.address import Address
from app.databases.database import Database
from app.http.api import make_api
from app.operations.report import Report
from app.operations.watch import Seen
from app.redis.door import RedisDoor
from app.service import Service
from app.settings import Settings
from tests.fakes.server import FakeServer
from tests.fakes.session import fake_connect

NOW = 1_780_000_000.0  # when each test begins, in seconds since 1970
USER, ADMIN = "user-token-of-tests", "admin-token-of-tests"
DEADLINE = 60.0  # seconds that a test waits for what is done in real time; on a busy machine it may take some


async def until(condition: Callable[[], Any]) -> None:
    """Wait in real time for something that the server does without an answer."""
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110  what the server does has no event for tests
            await asyncio.sleep(0.002)


def databases_on(servers: list[FakeServer], seconds: float) -> list[Database]:
    """Return the databases that these servers are. seconds: the deadline of a draw."""
    return [Database(Address(each.name, 3306, "u", "d"), fake_connect(each), seconds) for each in servers]


class Wire:
    """A connection that sends bytes and reads bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.send = reader, writer, writer.write

    async def rest(self) -> bytes:
        """Return all that comes before the server closes the connection."""
        async with asyncio.timeout(DEADLINE):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""


class Raw(Wire):
    """A client of the Redis protocol, which sends commands and reads the lines of their replies."""

    async def lines(self, count: int) -> list[bytes]:
        """Return the next lines, without their ends; empty ones where the server has closed the connection."""
        async with asyncio.timeout(DEADLINE):
            return [(await self.reader.readline()).rstrip(b"\r\n") for _ in range(count)]

    async def ask(self, *commands: str) -> list[bytes]:
        """Send inline commands, and return the first line of each reply. All but the last reply have one line only."""
        self.send("".join(f"{command}\r\n" for command in commands).encode())
        return await self.lines(len(commands))


class Served:
    """A service on new databases that have the sequence `photos`, and what the doors in front of it share.

    ahead: seconds by which this server's clock is wrong. seen: what an access log would say. options: settings.
    """

    def __init__(self, count: int = 2, **options: Any) -> None:
        clock = asyncio.get_running_loop().time
        self.servers = [FakeServer(f"db{offset}", clock=lambda: NOW + clock()) for offset in range(1, count + 1)]
        for server in self.servers:
            server.add("photos")
        databases = databases_on(self.servers, options.get("database_timeout", 0.5))
        settings = Settings.model_construct(**{"databases": databases} | options)
        self.ahead = 0.0
        self.service = Service(databases, settings, "test:1", clock=clock, wall=lambda: NOW + clock() + self.ahead)
        self.access, self.tally, self.seen = Access(), Tally(), list[Seen]()
        self.watch: Any = SimpleNamespace(saw=self.seen.append)

    @property
    def drawn(self) -> list[int]:
        """The last ids of `photos` on the databases."""
        return [server.data.counters["photos"].last for server in self.servers]

    async def settle(self, up: int) -> None:
        """Wait until exactly this many databases are in sight."""
        async with asyncio.timeout(600):
            while len(self.service.sight.in_sight) != up:
                await self.service.sight.moved()


class Bench(Served):
    """A server's application. Every answer is held against the OpenAPI document."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.report = Report(self.service)
        self.api = make_api(self.service, self.report, self.access, self.tally, self.watch, is_local=True)
        transport = httpx.ASGITransport(self.api, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000")
        self.get, self.post = partial(self.call, "GET"), partial(self.call, "POST")

    async def call(self, method: str, path: str, *, token: str | None = None, **more: Any) -> httpx.Response:
        """Send a request, with the token as the bearer token, and return the answer."""
        headers = more.pop("headers", {}) | ({} if token is None else {"authorization": f"Bearer {token}"})
        async with asyncio.timeout(60):
            answer = await self.client.request(method, path, headers=headers, **more)
        self._hold_against_document(answer)
        return answer

    async def make(self, name: str, **wanted: Any) -> httpx.Response:
        """Make a sequence over HTTP."""
        return await self.call("PUT", f"/sequence/{name}", json=wanted, token=ADMIN)

    def _hold_against_document(self, answer: httpx.Response) -> None:
        """Fail where an answer is not what the OpenAPI document says."""
        document, path, status = self.api.openapi(), answer.request.url.path, str(answer.status_code)
        for template, operations in document["paths"].items():
            operation = operations.get(answer.request.method.lower())
            if operation is None or not re.fullmatch(re.sub("{[a-z]+}", "[^/]+", template), path) or status == "500":
                continue
            said = operation["responses"].get(status, operation["responses"]["default"])
            media = answer.headers["content-type"].partition(";")[0]
            schema = {**said["content"][media].get("schema", {}), "components": document["components"]}
            value = answer.json() if "json" in media else answer.text
            jsonschema_rs.validate(schema, value)


class RedisBench(Served):
    """A door of the Redis protocol on a real port."""

    def __init__(self) -> None:
        super().__init__(request_timeout=40.0, database_timeout=20.0)
        self.connections = Connections(100, self.tally)
        self.door = RedisDoor(self.service, self.access, self.tally, self.connections, self.watch, timeout=40.0)
        self.socket, self.raws = socket.create_server(("127.0.0.1", 0)), list[Raw]()

    async def raw(self) -> Raw:
        self.raws.append(Raw(*await asyncio.open_connection(*self.socket.getsockname())))
        return self.raws[-1]


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[Bench]:
    """Run a server. Needs virtual time. options: those of `Served`."""
    bench = Bench(**options)
    bench.service.start()
    await bench.settle(len(bench.servers))
    try:
        async with bench.client:
            yield bench
    finally:
        await bench.service.stop()


def problem(answer: httpx.Response, status: int, code: str) -> str:
    """Return the detail of a problem, after checking its form."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    told = answer.json()
    assert told.keys() == {"type", "title", "status", "detail", "code"}
    assert (told["type"], told["status"], told["code"]) == ("about:blank", status, code), told
    for of_status, name in ((503, "retry-after"), (401, "www-authenticate"), (405, "allow")):
        assert (status == of_status) == (name in answer.headers)
    assert answer.headers["cache-control"] == "no-store"
    return str(told["detail"])
