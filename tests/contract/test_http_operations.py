"""The contract's rows on health, metrics and the description, and HEAD."""

import re

import pytest

from tests.contract.http_bench import USER, problem, running

pytestmark = pytest.mark.looptime

PROMETHEUS = {"accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"}
OPEN = {"/livez", "/readyz", "/healthz"}
PATHS = {"/ticket/{sequence}", "/block/{sequence}", "/sequence", "/sequence/{sequence}", "/sequence/{sequence}/bump",
         "/decode", "/decode/{sequence}/{id}", "/metrics", *OPEN}  # fmt: skip


async def test_readyz_and_healthz_while_databases_come_and_go() -> None:
    async with running() as http:
        assert (await http.get("/readyz")).json() == {"status": "ready"}
        health = await http.get("/healthz")
        told = health.json()
        assert (health.status_code, health.headers["cache-control"]) == (200, "no-store")
        assert told.keys() == {"status", "version", "databases", "warnings", "notes"}
        names = [(each["name"], each["offset"], each["status"]) for each in told["databases"]]
        assert names == [("db1:3306", 1, "up"), ("db2:3306", 2, "up")]
        http.servers[1].down = True
        await http.settle(1)
        health = await http.get("/healthz")
        assert (health.status_code, health.json()["status"]) == (200, "warn")
        assert health.json()["databases"][1]["status"] == "down"
        http.servers[0].down = True
        await http.settle(0)
        problem(await http.get("/readyz"), 503, "no-database")
        health = await http.get("/healthz")
        assert (health.status_code, health.json()["status"], health.headers["retry-after"]) == (503, "fail", "1")
        assert (await http.get("/livez")).status_code == 200


async def test_metrics_and_readyz_are_read_by_prometheus_and_a_server_that_drains_is_not_ready() -> None:
    async with running() as http:
        for path in ("/metrics", "/readyz"):
            answer = await http.get(path, headers=PROMETHEUS)
            assert answer.headers["content-type"].startswith("text/plain; version=")
            assert "tickets_ready 1.0" in answer.text.splitlines()
        http.report.is_draining = True
        problem(await http.get("/readyz"), 503, "draining")
        assert (await http.get("/healthz")).status_code == 503
        assert (await http.get("/livez")).status_code == (await http.get("/ticket/photos")).status_code == 200


async def test_what_is_asked_is_seen() -> None:
    async with running(tokens=[USER]) as http:
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        await http.get("/ticket/Photos?count=2", token=USER, headers={"traceparent": parent})
        await http.get("/sequence")
        drawn, denied = http.seen
        assert (drawn.protocol, drawn.what, drawn.sequence) == ("http", "GET /ticket/Photos?count=2", "Photos")
        assert (drawn.status, drawn.client, drawn.traceparent) == ("200", "127.0.0.1", parent)
        assert (denied.what, denied.sequence, denied.status) == ("GET /sequence", None, "401")
        assert USER not in repr(http.seen)
        assert http.tally.in_flight == 0


async def test_head_answers_as_get_without_a_body() -> None:
    async with running() as http:
        for path in (*OPEN, "/sequence", "/sequence/photos", "/docs", "/openapi.json", "/metrics"):
            head, get = await http.call("HEAD", path), await http.get(path)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-type"] == get.headers["content-type"]
        assert (await http.call("HEAD", "/sequence/photo")).status_code == 404


async def test_docs_are_readable_without_the_internet() -> None:
    async with running() as http:
        page = (await http.get("/docs")).text
        addresses = re.findall(r"""(?:src|href|url)\s*[=:]\s*["']([^"']+)["']""", page)
        assert len(addresses) >= 4
        for address in addresses:  # relative ones, since a proxy may serve this below a prefix
            assert not address.startswith("/")
            assert (await http.get(f"/{address}")).status_code == 200
        assert "://" not in page
        assert '"validatorUrl": null' in page


async def test_the_document_has_every_path_and_says_which_need_a_token() -> None:
    async with running() as http:
        paths = (await http.get("/openapi.json")).json()["paths"]
        assert paths.keys() == PATHS
        count = paths["/ticket/{sequence}"]["get"]["parameters"][1]["schema"]
        assert (count["type"], count["minimum"], count["maximum"]) == ("integer", 1, 1000)
        assert not any("security" in operation for path in paths.values() for operation in path.values())
    async with running(tokens=[USER]) as http:
        paths = (await http.get("/openapi.json", token=USER)).json()["paths"]
        for path, operations in paths.items():
            for operation in operations.values():
                assert ("security" in operation) == (path not in OPEN)
