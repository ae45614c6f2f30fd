"""The contract's table of errors, row by row, and who may ask for what."""

from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import pytest

from app.databases.record import State
from tests.contract.http_bench import ADMIN, USER, Bench, problem, running

pytestmark = pytest.mark.looptime


async def down(http: Bench, left: int) -> None:
    for server in http.servers[left:]:
        server.down = True
    await http.settle(left)


async def frozen(http: Bench) -> None:
    for server in http.servers:
        server.freeze()


async def used_up(http: Bench, left: int = 0) -> None:
    for server in http.servers:
        server.add("last", 32, 2**32 - 1 - left)


async def clock_ahead(http: Bench) -> None:
    await http.make("likes", kind="instagram")
    http.ahead = 5.0


async def growing(http: Bench) -> None:
    sight = http.service.sight
    assert sight.record is not None
    record = sight.record.next(sight.record.number + 1, state=State.CHANGING)
    for server in http.servers:
        server.data.ring = server.data.ring._replace(stamp=record.stamp, text=record.dump())
    while sight.record != record:
        await sight.moved()


async def defect(http: Bench) -> None:
    http.report.sequence = Mock(side_effect=RuntimeError("a secret"))  # type: ignore[method-assign]


DRAW, BUMP = "GET /ticket/photos", "POST /sequence/photos/bump"
ROWS: list[Any] = [
    (404, "no-such-sequence", "PUT /sequence/photo makes", "GET /ticket/photo", {}, None),
    (404, "not-found", "no such page", "GET /tickets/photos", {}, None),
    (404, "not-found", "no such page", "GET /ticket/photos/", {}, None),
    (405, "method-not-allowed", "GET, HEAD, PUT", "DELETE /sequence/photos", {}, None),
    (409, "above-ceiling", "4294967295", "PUT /sequence/a", {"json": {"bits": 32, "start": 2**32}}, None),
    (409, "above-ceiling", str(2**63 - 1), BUMP, {"json": {"above": 2**63}}, None),
    (410, "exhausted", "last", "GET /ticket/last", {}, used_up),
    (410, "exhausted", "last", "GET /ticket/last?count=1000", {}, lambda http: used_up(http, 20)),
    (413, "bad-request", "65,536", "POST /ticket/photos", {"content": b" " * 65_537}, None),
    (500, "internal", "log", "GET /sequence/photos", {}, defect),
    (503, "no-database", "photos", DRAW, {}, lambda http: down(http, 0)),
    (503, "out-of-time", "0.2 s", DRAW, {}, frozen),
    (503, "draining", "shutting down", DRAW, {}, lambda http: http.service.desk.end()),
    (503, "clock-ahead", "5.0 s ahead", "GET /ticket/likes", {}, clock_ahead),
    (503, "unverified", "refuse", DRAW, {}, lambda http: down(http, 1)),
    (503, "not-confirmed", "db2", BUMP, {"json": {"above": 100}}, lambda http: down(http, 1)),
    (503, "growing", "grow", DRAW, {}, growing),
]
"""Status, code, a part of the detail, the request and its body, and what is done first."""
OPTIONS: dict[str, dict[str, Any]] = {"out-of-time": {"request_timeout": 0.2}, "unverified": {"unverified": "refuse"}}


@pytest.mark.parametrize("row", ROWS)
async def test_row(row: Any) -> None:
    status, code, says, request_line, body, prepare = row
    async with running(**OPTIONS.get(code, {})) as http:
        if prepare is not None:
            await prepare(http)
        detail = problem(await http.call(*request_line.split(), **body), status, code)
        assert says in detail
        assert "secret" not in detail


async def test_a_large_body_is_refused_also_where_its_length_is_not_said(http: Bench) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(70):
            yield b" " * 1000

    as_json = {"content-type": "application/json"}
    problem(await http.call("PUT", "/sequence/a", content=pieces(), headers=as_json), 413, "bad-request")


PAGES = "/", "/static/status.css", "/metrics", "/docs", "/openapi.json", "/no-such-page"
DATA = "/sequence", "/sequence/photos", "/decode/photos/1", "/ticket/photos", "/block/photos?size=2"
CHANGES: list[tuple[str, str, Any]] = [("PUT", "/sequence/photos", {}), ("POST", "/sequence/photos/bump", {"above": 1})]
BASIC = {"authorization": "Basic " + b64encode(f"me:{USER}".encode()).decode()}


async def test_where_tokens_are_set_each_request_needs_one_that_may(http: Bench) -> None:
    http.access.replace([USER], [ADMIN])
    for path in ("/livez", "/readyz", "/healthz"):
        assert (await http.get(path)).status_code == 200
    for path in (*PAGES, *DATA):
        for token in (None, "wrong-token-of-tests", ""):
            answer = await http.get(path, token=token)
            problem(answer, 401, "unauthenticated")
            assert answer.headers["www-authenticate"].startswith('Bearer realm="tickets"')
        for token in (USER, ADMIN):
            assert (await http.get(path, token=token)).status_code == (404 if path == "/no-such-page" else 200)
    for method, path, body in CHANGES:
        for token in (None, "wrong-token-of-tests"):
            problem(await http.call(method, path, content=b"{", token=token), 401, "unauthenticated")
        problem(await http.call(method, path, json=body, token=USER), 403, "forbidden")
        assert (await http.call(method, path, json=body, token=ADMIN)).status_code == 200
    asked = (await http.get("/docs")).headers["www-authenticate"]  # a browser logs in, for reading only
    assert asked == 'Bearer realm="tickets", Basic realm="tickets", charset="UTF-8"'
    page = await http.get("/", headers=BASIC)
    assert (page.status_code, USER in page.text) == (200, False)
    for method, path in (("GET", "/ticket/photos"), ("PUT", "/sequence/a")):
        problem(await http.call(method, path, headers=BASIC), 401, "unauthenticated")


@pytest.mark.parametrize("headers", [{"sec-fetch-site": "cross-site"}, {"origin": "https://elsewhere.example"}])
async def test_a_browser_may_neither_draw_nor_change_for_another_site(http: Bench, headers: dict[str, str]) -> None:
    drawing = [("GET", "/ticket/photos"), ("POST", "/ticket/photos"), ("GET", "/block/photos?size=2")]
    for method, path in (*drawing, *[each[:2] for each in CHANGES]):
        problem(await http.call(method, path, headers=headers), 403, "cross-site")
    assert http.drawn == [0, 0]
    assert (await http.get("/sequence", headers=headers)).status_code == 200
    assert (await http.post("/ticket/photos", headers={"origin": "http://127.0.0.1:8000"})).status_code == 200


async def test_without_tokens_a_change_is_asked_for_by_address(http: Bench) -> None:
    """The page of a site on the internet may have its name lead to this machine (DNS rebinding)."""
    for host, status in (("elsewhere.example:8000", 403), ("localhost:8000", 201), ("127.0.0.1", 200)):
        assert (await http.call("PUT", "/sequence/a", headers={"host": host})).status_code == status
    http.access.replace([USER], [])
    assert (await http.call("PUT", "/sequence/a", headers={"host": "tickets"}, token=USER)).status_code == 200
