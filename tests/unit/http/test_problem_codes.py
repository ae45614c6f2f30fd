"""The word for programs in every kind of error, from a whole server on fake databases and without sockets."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import pytest
from pydantic import SecretStr

from app.clients.connections import IDLE_SECONDS, Connections
from app.clients.denials import Denials
from app.clients.turns import Turns
from app.common.errors import UnknownError
from app.http.access import Access
from app.http.api.routes import make_api
from app.http.pages.sequence_page import SequencePage
from app.http.pages.status_page import StatusPage
from app.http.problems import STATUSES
from app.http.tickets.connections import HTTPConnections
from app.http.tickets.endpoint import TicketEndpoint
from app.http.uvicorn_adapter import HTTPServer
from app.operations.rates import Rates
from tests.fakes.ticket_database import TRUE_TIME
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.http.http_bench import Client, now, request

TABLE = {
    400: {"bad-request"},
    401: {"unauthenticated"},
    403: {"forbidden", "cross-site"},
    404: {"no-such-sequence", "not-found"},
    405: {"method-not-allowed"},
    409: {"conflict", "above-ceiling", "force-required"},
    410: {"exhausted"},
    413: {"bad-request"},
    422: {"invalid"},
    431: {"bad-request"},
    500: {"internal"},
    503: {
        "no-database", "out-of-time", "draining", "clock-ahead", "unverified", "not-confirmed", "older-server",
        "too-many-connections",
    },
}  # fmt: skip
"""The words of each status, as clients know them."""

TOKEN, ADMIN_TOKEN = "a-token-to-draw-with", "a-token-for-changes"


class Whole:
    """A whole server but for its sockets. `wall_off`: seconds that its clock is ahead."""

    def __init__(self, site: Site, most: int) -> None:
        self.site = site
        self.wall_off = 0.0
        self.most = most
        self.server: FakeTicketServer
        self.connections: HTTPConnections

    async def start(self, *, tokens: bool = False, **options: Any) -> None:
        wall = lambda: TRUE_TIME + now() + self.wall_off  # noqa: E731
        self.server = server = await self.site.ticket_server(wall=wall, **options)
        access = Access([SecretStr(TOKEN)] * tokens, [SecretStr(ADMIN_TOKEN)] * tokens)
        denials = Denials(server.metrics)
        turns = Turns()
        rates = Rates(server.admin.progress, now)
        page = StatusPage(server.admin, rates, server.metrics, turns, 8000)
        of_sequence = SequencePage(server.admin, rates, redis_port=None)
        api = make_api(
            server.admin, access, denials, page, server.desk, sequence_page=of_sequence, turns=turns,
            listens_locally=True,
        )  # fmt: skip
        http = HTTPServer(api, grace=1.0, idle=IDLE_SECONDS, access_log=False)
        endpoint = TicketEndpoint(server.desk, access, denials)
        self.connections = HTTPConnections(endpoint, http, Connections(http, server.metrics, self.most, turns))

    def connect(self) -> Client:
        return Client(self.connections.make_protocol())

    async def raw(self, *pieces: bytes) -> bytes:
        client = self.connect()
        client.send(*pieces)
        for _ in range(500):
            await asyncio.sleep(0.02)
            if b"\r\n\r\n" in client.transport.written:
                break
        answer = client.take()
        client.transport.abort()
        return answer

    async def ask(self, method: str, target: str, body: object = None, *headers: str) -> bytes:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        json_ = () if isinstance(body, bytes) or body is None else ("content-type: application/json",)
        asked = request(target, *json_, *headers, method=method, body=data)
        return await self.raw(asked.replace(b"host: tickets", b"host: localhost"))

    async def make(self, name: str, **parameters: Any) -> None:
        answer = await self.ask("PUT", f"/sequence/{name}", parameters)
        assert answer.startswith(b"HTTP/1.1 201"), answer


@asynccontextmanager
async def whole(databases: int = 2, most: int = 100, **options: Any) -> AsyncIterator[Whole]:
    async with Site(databases) as site:
        made = Whole(site, most)
        await made.start(**options)
        yield made


def problem(answer: bytes) -> dict[str, Any]:
    """What a problem says, which is held against RFC 9457 and the table."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    assert b"content-type: application/problem+json" in head, answer
    found: dict[str, Any] = json.loads(body)
    assert found.keys() == {"type", "title", "status", "detail", "code"}
    assert found["status"] == status
    assert found["title"] == HTTPStatus(status).phrase
    assert found["code"] in TABLE[status]
    assert found["detail"]
    assert (b"\r\nretry-after: " in head) is (status == 503)
    assert (b"\r\nwww-authenticate: " in head) is (status == 401)
    assert (b"\r\nallow: " in head) is (status == 405)
    return found


BEARER = f"authorization: Bearer {TOKEN}"
Ask = Callable[[Whole], Awaitable[bytes]]


def asked(method: str, target: str, body: object = None, *headers: str) -> Ask:
    return lambda it: it.ask(method, target, body, *headers)


def sent(*pieces: bytes) -> Ask:
    return lambda it: it.raw(*pieces)


WITH_TOKENS = [
    (401, "unauthenticated", asked("GET", "/ticket/photos")),
    (401, "unauthenticated", asked("GET", "/block/photos?size=3", None, "authorization: Bearer wrong")),
    (401, "unauthenticated", asked("GET", "/sequence")),
    (401, "unauthenticated", asked("GET", "/metrics")),
    (401, "unauthenticated", asked("GET", "/")),
    (401, "unauthenticated", asked("PUT", "/sequence/likes", {}, "authorization: Bearer wrong")),
    (403, "forbidden", asked("PUT", "/sequence/likes", {}, BEARER)),
    (403, "forbidden", asked("POST", "/sequence/photos/bump", {"above": 1}, BEARER)),
    (403, "cross-site", asked("GET", "/ticket/photos", None, BEARER, "sec-fetch-site: cross-site")),
]
WITHOUT_TOKENS = [
    (403, "forbidden", sent(request("/sequence/likes", method="PUT"))),
    (403, "cross-site", asked("GET", "/ticket/photos", None, "sec-fetch-site: cross-site")),
    (403, "cross-site", asked("PUT", "/sequence/likes", {}, "sec-fetch-site: cross-site")),
    (400, "bad-request", sent(b"no request\r\n\r\n")),
    (400, "bad-request", sent(request("/ticket/caf\u00e9"))),
    (400, "bad-request", sent(request("/livez", "transfer-encoding: chunked", method="POST") + b"x\r\n")),
    (400, "bad-request", asked("POST", "/ticket/photos", {}, "connection: upgrade", "upgrade: h2c")),
    (413, "bad-request", asked("PUT", "/sequence/likes", b" " * 70_000)),
    (413, "bad-request", asked("POST", "/sequence/photos/bump", b" " * 70_000)),
    (413, "bad-request", asked("POST", "/ticket/photos", b" " * 70_000)),
    (431, "bad-request", asked("GET", "/ticket/photos", None, "x: " + "y" * 20_000)),
    (431, "bad-request", asked("GET", "/livez?" + "y" * 20_000)),
    (404, "no-such-sequence", asked("GET", "/ticket/none")),
    (404, "no-such-sequence", asked("POST", "/block/none?size=3")),
    (404, "no-such-sequence", asked("GET", "/sequence/none")),
    (404, "no-such-sequence", asked("GET", "/decode/none/7")),
    (404, "no-such-sequence", asked("POST", "/sequence/none/bump", {"above": 5})),
    (404, "not-found", asked("GET", "/nothing")),
    (404, "not-found", asked("GET", "/sequence/")),
    (404, "not-found", asked("GET", "/favicon.ico")),
    (405, "method-not-allowed", asked("PUT", "/ticket/photos")),
    (405, "method-not-allowed", asked("DELETE", "/sequence/photos")),
    (405, "method-not-allowed", asked("OPTIONS", "/")),
    (405, "method-not-allowed", sent(request("tickets:443", method="CONNECT"))),
    (409, "conflict", asked("PUT", "/sequence/photos", {"bits": 32})),
    (409, "conflict", asked("PUT", "/sequence/photos", {"kind": "uuid4"})),
    (409, "conflict", asked("PUT", "/sequence/Photos")),
    (409, "conflict", asked("GET", "/block/sessions?size=3")),
    (409, "conflict", asked("POST", "/sequence/sessions/bump", {"above": 3})),
    (409, "above-ceiling", asked("PUT", "/sequence/likes", {"start": 2**63})),
    (409, "above-ceiling", asked("POST", "/sequence/photos/bump", {"above": 2**63})),
    (409, "force-required", asked("POST", "/sequence/photos/bump", {"above": 2**63 - 1000})),
    (422, "invalid", asked("GET", "/ticket/_x")),
    (422, "invalid", asked("GET", "/ticket/photos?count=0")),
    (422, "invalid", asked("GET", "/ticket/photos?n=5")),
    (422, "invalid", asked("POST", "/ticket/photos", {"count": 5})),
    (422, "invalid", asked("GET", "/ticket/photos?key=5")),
    (422, "invalid", asked("GET", "/ticket/stamps?count=17")),
    (422, "invalid", asked("GET", "/block/photos")),
    (422, "invalid", asked("GET", "/sequence/1")),
    (422, "invalid", asked("GET", "/sequence?limit=0")),
    (422, "invalid", asked("PUT", "/sequence/likes", {"bit": 64})),
    (422, "invalid", asked("PUT", "/sequence/likes", {"bits": 48})),
    (422, "invalid", asked("PUT", "/sequence/likes", b"{")),
    (422, "invalid", asked("PUT", "/sequence/likes", [5])),
    (422, "invalid", asked("POST", "/sequence/photos/bump", {})),
    (422, "invalid", asked("GET", "/decode/photos/x")),
    (422, "invalid", asked("GET", "/decode?kind=none&id=7")),
    (422, "invalid", asked("GET", "/?page=0")),
]  # fmt: skip


@pytest.mark.parametrize(("tokens", "status", "code", "ask"), [
    *((True, *case) for case in WITH_TOKENS), *((False, *case) for case in WITHOUT_TOKENS)
])  # fmt: skip
@virtual_time
async def test_a_refused_request_is_told_why_in_a_word(tokens: bool, status: int, code: str, ask: Ask) -> None:
    async with whole(tokens=tokens) as it:
        if not tokens:
            await it.make("sessions", kind="uuid4")
            await it.make("stamps", kind="instagram32")
        found = problem(await ask(it))
        assert (found["status"], found["code"]) == (status, code)


# --- what becomes of a request that is in order ----------------------------------------------------------------------


async def code_of(it: Whole, method: str, target: str, body: object = None) -> str:
    return str(problem(await it.ask(method, target, body))["code"])


@virtual_time
async def test_a_sequence_that_is_used_up() -> None:
    async with whole() as it:
        await it.make("small", bits=32, start=2**32 - 5)
        while (answer := await it.ask("GET", "/ticket/small")).startswith(b"HTTP/1.1 200"):
            pass
        assert problem(answer)["code"] == "exhausted"


@virtual_time
async def test_no_database_answers() -> None:
    async with whole() as it:
        for database in it.site.servers:
            database.down = True
        await asyncio.sleep(2)
        for target in ("/ticket/photos", "/block/photos?size=3", "/ticket/none", "/readyz"):
            assert await code_of(it, "GET", target) == "no-database"
        assert await code_of(it, "PUT", "/sequence/likes") == "no-database"
        for command in ("/ticket/photos", "/block/photos?size=3"):
            assert await code_of(it, "POST", command) == "no-database"


@virtual_time
async def test_a_request_that_runs_out_of_time() -> None:
    async with whole(request_timeout=0.001, longest=0.1) as it:
        assert await code_of(it, "GET", "/ticket/photos") == "out-of-time"


@virtual_time
async def test_a_server_that_drains() -> None:
    async with whole() as it:
        it.server.admin.draining = True
        assert await code_of(it, "GET", "/readyz") == "draining"
        it.server.desk.closed = True
        assert await code_of(it, "GET", "/ticket/photos") == "draining"


@pytest.mark.parametrize("off", [3600.0, -3600.0], ids=["ahead", "behind"])
@virtual_time
async def test_a_clock_that_is_wrong(off: float) -> None:
    async with whole() as it:
        await it.make("likes", kind="snowflake")
        assert (await it.ask("GET", "/ticket/likes")).startswith(b"HTTP/1.1 200")
        it.wall_off = off
        assert await code_of(it, "GET", "/ticket/likes") == "clock-ahead"


@virtual_time
async def test_a_clock_before_the_sequences_epoch() -> None:
    async with whole() as it:
        await it.make("likes", kind="simpleflake", epoch=int((TRUE_TIME + now()) * 1000))
        it.wall_off = -3600
        assert await code_of(it, "GET", "/ticket/likes") == "clock-ahead"


@virtual_time
async def test_a_database_that_may_not_draw_alone() -> None:
    async with whole(refuse_unverified=True) as it:
        it.site.servers[1].down = True
        await asyncio.sleep(2)
        for target in ("/ticket/photos", "/block/photos?size=3", "/readyz"):
            assert await code_of(it, "GET", target) == "unverified"
        await it.make("likes", kind="snowflake")
        await asyncio.sleep(2)
        assert await code_of(it, "GET", "/ticket/likes") == "unverified"


@virtual_time
async def test_a_bump_that_is_under_way() -> None:
    async with whole() as it:
        it.site.servers[1].down = True
        await asyncio.sleep(2)
        assert await code_of(it, "POST", "/sequence/photos/bump", {"above": 5}) == "not-confirmed"


@virtual_time
async def test_a_bump_that_servers_with_a_reserve_may_not_know_of() -> None:
    async with whole(reserve_seconds=10.0, probe_interval=5.0) as it:
        assert await code_of(it, "POST", "/sequence/photos/bump", {"above": 5}) == "not-confirmed"


@virtual_time
async def test_a_server_of_an_older_release() -> None:
    async with whole() as it:
        it.site.servers[1].older_probe = TRUE_TIME + now()
        assert await code_of(it, "PUT", "/sequence/likes", {"kind": "uuid4"}) == "older-server"


@virtual_time
async def test_more_connections_than_there_may_be() -> None:
    async with whole(most=1) as it:
        client = it.connect()
        for target in ("/ticket/photos", "/sequence"):
            assert await code_of(it, "GET", target) == "too-many-connections"
        client.transport.abort()


@virtual_time
async def test_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    async with whole() as it:
        monkeypatch.setattr(it.server.admin, "sequence", None)
        assert await code_of(it, "GET", "/sequence/photos") == "internal"
        monkeypatch.setattr(it.server.issuer, "issue", lambda taken: taken.desk.refuse(taken, UnknownError()))
        assert await code_of(it, "GET", "/ticket/photos") == "internal"


def test_the_words_are_those_that_clients_know() -> None:
    assert {status: set(map(str, codes)) for status, codes in STATUSES.items()} == TABLE
