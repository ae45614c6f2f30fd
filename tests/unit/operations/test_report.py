"""What /healthz warns of, and what /metrics counts, on fake databases and virtual time."""

import asyncio
import re
from typing import Any

import pytest

from tests.contract.http_bench import NOW, Bench, running

pytestmark = pytest.mark.looptime


async def health(http: Bench) -> dict[str, Any]:
    found: dict[str, Any] = (await http.get("/healthz")).json()
    return found


async def reasons(http: Bench) -> list[tuple[str | None, str | None, str]]:
    return [(each["sequence"], each["database"], each["reason"]) for each in (await health(http))["warnings"]]


async def settled(http: Bench) -> None:
    """Let the databases be level for good: nothing is left to warn of."""
    await asyncio.sleep(10)
    assert (await health(http))["status"] == "pass"


async def metric(http: Bench, name: str, **labels: str) -> float:
    """Return the value of one sample."""
    for line in (await http.get("/metrics")).text.splitlines():
        found = re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line)
        if found and dict(re.findall(r'(\w+)="([^"]*)"', found[1] or "")) == labels:
            return float(found[2])
    raise AssertionError(f"{name} {labels} is not there")


async def test_a_server_warns_until_its_databases_are_level_and_the_embedded_pair_of_nothing() -> None:
    async with running() as http:
        assert {database for _, database, _ in await reasons(http)} == {"db1:3306", "db2:3306"}
        assert all("before this warning ends" in reason for *_, reason in await reasons(http))
        await settled(http)
    async with running(databases=()) as http:
        found = await health(http)
        assert (found["status"], found["embedded"]) == ("pass", True)


@pytest.mark.parametrize("refuses", [False, True])
async def test_while_one_database_is_away_the_other_is_unprotected(refuses: bool) -> None:
    async with running(unverified="refuse" if refuses else "serve") as http:
        await settled(http)
        assert (await http.get("/readyz")).status_code == 200
        http.servers[1].down = True
        await http.settle(1)
        assert (await http.get("/readyz")).status_code == (503 if refuses else 200)
        found = await health(http)
        assert found["status"] == ("fail" if refuses else "warn")
        assert found["databases"][1]["last_error"] == "the connection was lost"
        warned = [reason for _, database, reason in await reasons(http) if database == "db1:3306"]
        assert any(reason.startswith("unprotected: ") for reason in warned)
        assert await metric(http, "tickets_database_unprotected", database="db1:3306") == 1
        assert await metric(http, "tickets_database_up", database="db2:3306", offset="2") == 0


async def test_what_is_near_its_end_and_a_clock_that_is_ahead_are_warned_of() -> None:
    async with running() as http:
        ceiling = (1 << 32) - 1
        for server in http.servers:
            server.add("nearly", 32, ceiling - 100)
            server.add("over", 32, ceiling)
        await http.make("short", kind="instagram32", epoch=int(NOW * 1000) - 370 * 86_400_000)
        http.ahead = 5.0
        await asyncio.sleep(20)
        found = await reasons(http)
        assert ("nearly", "db1:3306", "100% of its ids are used up") in found
        assert ("over", "db2:3306", "exhausted: every id has been used") in found
        assert any("clock is 5.0 s ahead" in reason for *_, reason in found)
        assert await metric(http, "tickets_headroom", sequence="over", database="db1:3306") == 0
        assert await metric(http, "tickets_clock_ahead_seconds") == pytest.approx(5, abs=0.1)


async def test_the_warnings_about_sequences_are_a_hundred_at_most_and_one_that_counts() -> None:
    async with running() as http:
        for number in range(120):
            http.servers[0].add(f"s{number}", 32, (1 << 32) - 1)
        await asyncio.sleep(20)
        found = await reasons(http)
        assert len([reason for *_, reason in found if "exhausted" in reason]) == 100
        assert any("more warnings about sequences are not listed" in reason for *_, reason in found)


async def test_requests_and_statements_are_counted() -> None:
    async with running() as http:
        for _ in range(3):
            await http.get("/ticket/photos?count=2")
        await http.get("/block/photos?size=10")
        await http.get("/ticket/nothing")
        assert await metric(http, "tickets_requests_total", endpoint="ticket", outcome="ok") == 3
        assert await metric(http, "tickets_requests_total", endpoint="block", outcome="ok") == 1
        assert await metric(http, "tickets_requests_total", endpoint="ticket", outcome="no-such-sequence") == 1
        assert await metric(http, "tickets_issued_total", sequence="photos") == 16
        drawn = [await metric(http, "tickets_statement_tickets_sum", database=f"db{n}:3306") for n in (1, 2)]
        assert sum(drawn) >= 16
        assert await metric(http, "tickets_issue_seconds_bucket", endpoint="ticket", le="+Inf") == 3
        assert await metric(http, "tickets_issue_seconds_count", endpoint="block") == 1
        assert await metric(http, "tickets_in_flight") == 0
        assert await metric(http, "tickets_sequences") == 1


async def test_sequences_beyond_those_with_series_of_their_own_are_folded_into_a_count_that_never_goes_back() -> None:
    async with running() as http:
        names = [f"s{number}" for number in range(502)]
        for server in http.servers:
            for name in names:
                server.add(name)
        await asyncio.sleep(20)
        listed = set(re.findall(r'tickets_issued_total{sequence="(\w+)"}', (await http.get("/metrics")).text))
        own, folded = sorted(listed - {"_other"}), sorted({"photos", *names} - listed)
        assert (len(own), len(folded), await metric(http, "tickets_sequences_folded")) == (500, 3, 3)
        for name in [own[-1], *folded]:
            await http.get(f"/ticket/{name}")
        assert await metric(http, "tickets_issued_total", sequence=own[-1]) == 1
        assert await metric(http, "tickets_issued_total", sequence="_other") == 3
        http.service.desk.forget(http.service.catalog.entries[folded[0]])
        assert await metric(http, "tickets_issued_total", sequence="_other") == 3
        await http.get(f"/ticket/{folded[0]}")
        assert await metric(http, "tickets_issued_total", sequence="_other") == 4


async def test_a_position_is_of_the_databases_offset_and_the_headroom_is_what_is_left() -> None:
    async with running() as http:
        await http.make("small", bits=32)
        ids = (await http.get("/ticket/small?count=9")).json()["ids"]
        found = (await http.get("/sequence/small")).json()
        last = {each["offset"]: each["last"] for each in found["databases"] if each["last"] is not None}
        assert last[ids[-1] % 2 or 2] >= ids[-1]
        for each in found["databases"]:
            assert each["headroom"] == ((1 << 32) - 1 - (each["last"] or each["offset"] - 2)) // 2
