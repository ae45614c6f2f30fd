"""The HTTP application on a pair of fake ticket databases, in one process and on virtual time."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import jsonschema_rs

from app.access import Access
from app.connections import Tally
from app.databases.address import Address
from app.databases.database import Database
from app.http.api import make_api
from app.operations.report import Report
from app.operations.watch import Seen
from app.service import Service
from app.settings import Settings
from tests.fakes.server import FakeServer
from tests.fakes.session import fake_connect

NOW = 1_780_000_000.0  # when each test begins, in seconds since 1970
USER, ADMIN = "user-token-of-tests", "admin-token-of-tests"


def databases_on(servers: list[FakeServer], seconds: float) -> list[Database]:
    """Return the databases that these servers are. seconds: the deadline of a draw."""
    return [Database(Address(each.name, 3306, "u", "d"), fake_connect(each), seconds) for each in servers]


class Bench:
    """A server's application, and what stands behind it.

    Every answer is held against the OpenAPI document. ahead: seconds by which this server's clock is wrong. seen: what
    an access log would say.
    """

    def __init__(self, servers: list[FakeServer], access: Access, **options: Any) -> None:
        clock = asyncio.get_running_loop().time
        self.servers, self.ahead = servers, 0.0
        databases = databases_on(servers, 0.5)
        settings = Settings.model_construct(**{"databases": databases} | options)
        self.service = Service(databases, settings, "test:1", clock=clock, wall=lambda: NOW + clock() + self.ahead)
        self.tally, self.seen = Tally(), list[Seen]()
        self.report = Report(self.service)
        watch: Any = SimpleNamespace(saw=self.seen.append)
        self.api = make_api(self.service, self.report, access, self.tally, watch, is_local=True)
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

    async def settle(self, up: int) -> None:
        """Wait until exactly this many databases are in sight."""
        async with asyncio.timeout(600):
            while len(self.service.sight.in_sight) != up:
                await self.service.sight.moved()

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


@asynccontextmanager
async def running(
    *, tokens: Iterable[str] = (), admins: Iterable[str] = (), count: int = 2, **options: Any
) -> AsyncIterator[Bench]:
    """Run a server on new databases that have the sequence `photos`. Needs virtual time."""
    clock = asyncio.get_running_loop().time
    servers = [FakeServer(f"db{offset}", clock=lambda: NOW + clock()) for offset in range(1, count + 1)]
    for server in servers:
        server.add("photos")
    bench = Bench(servers, Access(tokens, admins), **options)
    bench.service.start()
    await bench.settle(count)
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
    assert (status == 503) == ("retry-after" in answer.headers)
    assert (status == 401) == ("www-authenticate" in answer.headers)
    assert (status == 405) == ("allow" in answer.headers)
    assert answer.headers["cache-control"] == "no-store"
    detail: str = told["detail"]
    return detail
