"""The contract's rows on health, metrics and the description, and HEAD."""

import asyncio
import re

import pytest

from app.operations import metrics
from tests.contract.http_bench import NOW, USER, Bench, problem, running

pytestmark = pytest.mark.looptime

PROMETHEUS = {"accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"}
OPEN = {"/livez", "/readyz", "/healthz"}
PATHS = {"/ticket/{sequence}", "/block/{sequence}", "/sequence", "/sequence/{sequence}", "/sequence/{sequence}/bump",
         "/decode", "/decode/{sequence}/{id}", "/metrics", *OPEN}  # fmt: skip


async def warned(http: Bench) -> list[tuple[str | None, str | None, str]]:
    """Return the warnings of /healthz: each with its sequence, database and reason."""
    found = (await http.get("/healthz")).json()
    return [(each["sequence"], each["database"], each["reason"]) for each in found["warnings"]]


async def samples(http: Bench) -> list[str]:
    """Return the lines of /metrics."""
    return (await http.get("/metrics")).text.splitlines()


async def test_a_server_warns_until_its_databases_are_level_or_if_it_has_only_one_but_not_if_it_is_embedded(
    http: Bench,
) -> None:
    assert {database for _, database, _ in await warned(http)} == {"db1:3306", "db2:3306"}
    assert all("before this warning ends" in reason for *_, reason in await warned(http))
    await asyncio.sleep(10)
    answer = await http.get("/healthz")
    told = answer.json()
    assert (answer.status_code, told["status"], answer.headers["cache-control"]) == (200, "pass", "no-store")
    assert told.keys() == {"status", "version", "databases", "warnings", "notes"}
    assert [each["offset"] for each in told["databases"] if each["status"] == "up"] == [1, 2]
    async with running(databases=()) as embedded:
        told = (await embedded.get("/healthz")).json()
        assert (told["status"], told["embedded"]) == ("pass", True)
    async with running(count=1) as alone:
        assert any(reason.startswith("unprotected: it is the only") for *_, reason in await warned(alone))


@pytest.mark.parametrize("refuses", [False, True])
async def test_readyz_and_healthz_while_databases_go(refuses: bool) -> None:
    async with running(unverified="refuse" if refuses else "serve") as http:
        assert (await http.get("/readyz")).json() == {"status": "ready"}
        http.servers[1].down = True
        await http.settle(1)
        assert (await http.get("/readyz")).status_code == (503 if refuses else 200)
        answer = await http.get("/healthz")
        told, status = answer.json(), (503, "fail") if refuses else (200, "warn")
        assert (answer.status_code, told["status"], "retry-after" in answer.headers) == (*status, refuses)
        away = told["databases"][1]
        assert (away["name"], away["status"], away["last_error"]) == ("db2:3306", "down", "the connection was lost")
        assert any(reason.startswith("unprotected: ") for _, on, reason in await warned(http) if on == "db1:3306")
        found = await samples(http)
        assert 'tickets_database_unprotected{database="db1:3306"} 1.0' in found
        assert 'tickets_database_up{database="db2:3306",offset="2"} 0.0' in found
        http.servers[0].down = True
        await http.settle(0)
        problem(await http.get("/readyz"), 503, "no-database")
        assert (await http.get("/healthz")).json()["status"] == "fail"
        assert (await http.get("/livez")).status_code == 200


async def test_what_is_near_its_end_and_a_clock_that_is_ahead_are_warned_of(http: Bench) -> None:
    await http.make("a_year", kind="instagram32", epoch=int(NOW * 1000))
    for server in http.servers:
        server.add("nearly", 32, 2**32 - 101)
        server.add("over", 32, 2**32 - 1)
    http.ahead = 300 * 86_400.0
    await asyncio.sleep(20)
    found = await warned(http)
    assert ("nearly", "db1:3306", "100% of its ids are used up") in found
    assert ("over", "db2:3306", "exhausted: every id has been used") in found
    assert ("a_year", None, "its ids end at 2027-06-21T05:07:12.000Z") in found
    assert any("clock is 25,920,000.0 s ahead" in reason for *_, reason in found)
    lines = await samples(http)
    assert 'tickets_headroom{database="db1:3306",sequence="nearly"} 50.0' in lines
    assert "tickets_clock_ahead_seconds 2.592e+07" in lines
    for number in range(120):
        http.servers[0].add(f"over{number}", 32, 2**32 - 1)
    await asyncio.sleep(20)
    found = await warned(http)
    assert sum(sequence is not None for sequence, *_ in found) == 100
    assert any("more warnings about sequences are not listed" in reason for *_, reason in found)


async def test_prometheus_reads_metrics_and_readyz_and_a_server_that_drains_is_not_ready(http: Bench) -> None:
    for path in ("/metrics", "/readyz"):
        answer = await http.get(path, headers=PROMETHEUS)
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert "tickets_ready 1.0" in answer.text.splitlines()
    http.report.is_draining = True
    problem(await http.get("/readyz"), 503, "draining")
    assert (await http.get("/healthz")).status_code == 503
    assert (await http.get("/livez")).status_code == (await http.get("/ticket/photos")).status_code == 200


async def test_requests_and_statements_are_counted(http: Bench) -> None:
    for path in ["/ticket/photos?count=2"] * 3 + ["/block/photos?size=10", "/ticket/nothing"]:
        await http.get(path)
    found = await samples(http)
    assert {
        'tickets_requests_total{endpoint="ticket",outcome="ok"} 3.0',
        'tickets_requests_total{endpoint="block",outcome="ok"} 1.0',
        'tickets_requests_total{endpoint="ticket",outcome="no-such-sequence"} 1.0',
        'tickets_issued_total{sequence="photos"} 16.0',
        'tickets_issue_seconds_bucket{endpoint="ticket",le="+Inf"} 3.0',
        'tickets_issue_seconds_count{endpoint="block"} 1.0',
        "tickets_in_flight 0.0",
        "tickets_sequences 1.0",
    } <= set(found)
    assert sum(float(line.split()[1]) for line in found if line.startswith("tickets_statement_tickets_sum")) >= 16


async def test_sequences_without_series_of_their_own_have_one_count_that_never_goes_back(
    http: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "OWN_SERIES", 2)
    for name in ("a", "b", "c", "photos"):
        await http.make(name)
        await http.get(f"/ticket/{name}")
    wanted = {'tickets_issued_total{sequence="_other"} 2.0', "tickets_sequences_folded 2.0"}
    found = await samples(http)
    assert wanted <= set(found)
    (own, _) = (line for line in found if line.startswith("tickets_issued_total") and line.endswith(" 1.0"))
    (folded, _) = {"a", "b", "c", "photos"} - set(
        re.findall(r'tickets_issued_total{sequence="(\w+)"}', "\n".join(found))
    )
    http.service.desk.forget(http.service.catalog.entries[folded])
    assert {own, *wanted} <= set(await samples(http))


async def test_what_is_asked_is_seen(http: Bench) -> None:
    http.access.replace([USER], [])
    await http.get("/ticket/Photos?count=2", token=USER, headers={"traceparent": "00-0af7651916cd43dd-b7ad-01"})
    await http.get("/sequence")
    found = [(each.what, each.sequence, each.client, each.status, each.traceparent) for each in http.seen]
    asked = "GET /ticket/Photos?count=2", "Photos", "127.0.0.1", "200", "00-0af7651916cd43dd-b7ad-01"
    assert found == [asked, ("GET /sequence", None, "127.0.0.1", "401", None)]


async def test_head_answers_as_get_without_a_body(http: Bench) -> None:
    for path in (*OPEN, "/sequence", "/sequence/photos", "/docs", "/openapi.json", "/metrics"):
        head, get = await http.call("HEAD", path), await http.get(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == get.headers["content-type"]
    assert (await http.call("HEAD", "/sequence/photo")).status_code == 404


async def test_docs_are_readable_without_the_internet(http: Bench) -> None:
    page = (await http.get("/docs")).text
    addresses = re.findall(r"""(?:src|href|url)\s*[=:]\s*["']([^"']+)["']""", page)
    assert len(addresses) >= 4
    for address in addresses:  # relative ones, since a proxy may serve this below a prefix
        assert not address.startswith("/")
        assert (await http.get(f"/{address}")).status_code == 200
    assert "://" not in page
    assert '"validatorUrl": null' in page


async def test_the_document_has_every_path_and_says_which_need_a_token(http: Bench) -> None:
    for needs_token in (False, True):
        http.access.replace([USER] * needs_token, [])
        paths = (await http.get("/openapi.json", token=USER)).json()["paths"]
        assert paths.keys() == PATHS
        for path, operations in paths.items():
            for operation in operations.values():
                assert ("security" in operation) == (needs_token and path not in OPEN)
    count = paths["/ticket/{sequence}"]["get"]["parameters"][1]["schema"]
    assert (count["type"], count["minimum"], count["maximum"]) == ("integer", 1, 1000)
