"""The status page: what it shows, what it lets through to the browser, and who may read it."""

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest

from app.http.pages import add_pages
from app.http.pages.runbooks import TITLES, runbook_of
from app.tickets.sight import Status
from tests.contract.http_bench import USER, Bench, problem, running

pytestmark = pytest.mark.looptime

HOSTILE = '<script>alert("1")</script>&\''
DOCUMENTS = Path(__file__).parents[3] / "docs" / "operations"


@asynccontextmanager
async def paged(**options: Any) -> AsyncIterator[Bench]:
    """Run a server that has the page."""
    async with running(**options) as http:
        if not any(getattr(route, "path", None) == "/" for route in http.api.routes):
            add_pages(http.api, http.service, http.report)
        yield http


def text_of(answer: httpx.Response) -> str:
    """Return what a reader sees of the page, with one blank between two words."""
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8"), answer.text
    return " ".join(unescape(re.sub("<[^>]+>", " ", answer.text)).split())


def names_of(answer: httpx.Response) -> list[str]:
    """Return the names in the table of sequences."""
    return re.findall('<th scope="row">([^<]+)</th>', answer.text.partition('id="sequences"')[2])


def links_of(answer: httpx.Response) -> list[str]:
    """Return all addresses in the page but those that are data themselves."""
    links = re.findall('(?:href|src|action)="([^"]*)"', answer.text)
    return [unescape(link) for link in links if not link.startswith("data:")]


async def test_the_page_shows_health_databases_servers_and_sequences() -> None:
    async with paged() as http:
        drawn = (await http.get("/ticket/photos")).json()["id"]
        text = text_of(await http.get("/"))
        assert "db1:3306 up offset 1, up since" in text
        assert "db2:3306 up offset 2, up since" in text
        assert "test:1 this server db1:3306, db2:3306" in text
        assert re.search(rf"photos ticket, 64 bits {drawn} [\d,]{{20,}} 1 of 1, by name", text), text
        assert "embedded" not in text


async def test_the_embedded_pair_has_a_badge() -> None:
    async with paged(embedded=True) as http:
        assert '<p class="pill warn">embedded</p>' in (await http.get("/")).text


async def test_a_server_that_drains_says_so() -> None:
    async with paged() as http:
        http.report.is_draining = True
        assert '<p class="pill fail" role="status">Draining</p>' in (await http.get("/")).text


async def test_the_page_is_served_behind_any_prefix_and_runs_no_script_but_its_own() -> None:
    async with paged() as http:
        answer = await http.get("/")
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")
        assert not re.search(r"<style|\son[a-z]+=|\sstyle=|<script>", answer.text)
        assert len(links_of(answer)) >= 8
        for link in links_of(answer):
            behind = urljoin("http://proxy/tickets/", link)
            assert behind.startswith("http://proxy/tickets/"), link
            there = await http.get(behind.removeprefix("http://proxy/tickets"))
            assert there.status_code == 200, link


async def test_what_is_asked_for_does_not_become_markup() -> None:
    async with paged() as http:
        asked = {"search": HOSTILE, "decode_sequence": HOSTILE, "decode_id": HOSTILE, "other": HOSTILE}
        for query in (asked, {**asked, "after": HOSTILE}):
            answer = await http.get("/", params=query)
            assert HOSTILE in text_of(answer)
            assert "<script>" not in answer.text
            assert 'value="&lt;script&gt;alert(&#34;1&#34;)' in answer.text


async def test_what_a_database_says_does_not_become_markup() -> None:
    async with paged() as http:
        health = http.report.health()
        health["databases"][0].update(name=HOSTILE, last_error=HOSTILE, node=HOSTILE)
        health["warnings"] = [{"sequence": HOSTILE, "database": HOSTILE, "reason": HOSTILE}]
        http.report.health = lambda: health  # type: ignore[method-assign]
        answer = await http.get("/")
        assert text_of(answer).count(HOSTILE) >= 6
        assert "<script>" not in answer.text


async def test_a_database_that_cannot_be_used_has_its_reason_and_a_runbook() -> None:
    async with paged() as http:
        http.servers[1].restart(http.servers[0].snapshot())
        async with asyncio.timeout(600):
            while http.service.sight.members[1].status is not Status.QUARANTINED:
                await http.service.sight.moved()
        text = text_of(await http.get("/"))
        assert "1 of 2 databases not up" in text
        reason = (
            "is the same data as db1:3306 Runbook: Replace a ticket database ( docs/operations/replace-a-database.md )"
        )
        assert re.search(rf"db2:3306 quarantined offset 2, quarantined since [-:Z 0-9]+ {re.escape(reason)}", text), (
            text
        )


async def test_a_warning_has_its_database_its_reason_and_its_runbook() -> None:
    async with paged(count=1) as http:
        text = text_of(await http.get("/"))
        assert "Warnings db1:3306 unprotected: it is the only ticket database" in text
        assert "high-water marks Runbook: Replace a ticket database ( docs/operations/replace-a-database.md )" in text


async def test_without_databases_the_page_still_says_how_things_are() -> None:
    async with paged() as http:
        for server in http.servers:
            server.down = True
        await http.settle(0)
        text = text_of(await http.get("/"))
        assert "Not serving" in text
        assert "test:1 this server no ticket database" in text
        assert "photos" in text


async def test_an_empty_ring_has_no_sequence() -> None:
    async with paged() as http:
        for server in http.servers:
            server.drop("photos")
        await http.service.listing.refresh()
        answer = await http.get("/")
        assert "This server knows of no sequence." in text_of(answer)
        assert names_of(answer) == []


async def test_sequences_are_searched_and_paged_by_name() -> None:
    async with paged() as http:
        for server in http.servers:
            for number in range(120):
                server.add(f"Item_{number:03}")
        await http.service.listing.refresh()
        names = [f"Item_{number:03}" for number in range(120)]
        query = ""
        pages: list[list[str]] = []
        while len(pages) < 5:
            answer = await http.get(f"/{query}")
            pages.append(names_of(answer))
            following = re.search(r'href="\./([^"]*)" rel="next"', answer.text)
            if following is None:
                break
            query = unescape(following[1])
        assert [len(page) for page in pages] == [50, 50, 21]
        assert [name for page in pages for name in page] == [*names, "photos"]
        answer = await http.get("/?search=M_1")
        assert names_of(answer) == names[100:]
        assert "20 of 20, by name" in text_of(answer)
        assert 'rel="next"' not in answer.text
        answer = await http.get("/?search=item")
        assert "./?search=item&amp;after=Item_049" in answer.text, links_of(answer)
        assert names_of(await http.get("/?search=item&after=Item_049")) == names[50:100]


async def test_the_page_is_loaded_again_without_javascript_unless_a_form_is_in_use() -> None:
    async with paged() as http:
        for query, is_renewed in (("", True), ("?search=p", False), ("?decode_id=7", False)):
            text = (await http.get(f"/{query}")).text
            assert ('<noscript><meta http-equiv="refresh"' in text) is is_renewed


async def test_an_id_is_read_without_javascript() -> None:
    async with paged() as http:
        await http.make("likes", kind="instagram")
        id_text = (await http.get("/ticket/likes?shard=5")).json()["id_str"]
        text = text_of(await http.get("/", params={"decode_sequence": "LIKES", "decode_id": f" {id_text} "}))
        assert "sequence likes kind instagram" in text
        assert "shard 5 counter" in text
        for sequence, asked, wrong in (
            ("nothing", "7", "there is no sequence nothing"),
            ("photos", "x", "id"),
            ("photos", "9" * 5_000, "id"),
            ("photos", "", "Give both the sequence and the id."),
        ):
            answer = await http.get("/", params={"decode_sequence": sequence, "decode_id": asked})
            alert = re.search('<p class="bad" role="alert">([^<]+)</p>', answer.text)
            assert answer.status_code == 200
            assert alert is not None
            assert wrong in alert[1], answer.text


async def test_reading_the_page_and_its_files_takes_a_token_where_tokens_are_set() -> None:
    async with paged(tokens=[USER]) as http:
        for path in ("/", "/static/status.css", "/static/status.js"):
            refused = await http.get(path)
            problem(refused, 401, "unauthenticated")
            assert "Basic realm" in refused.headers["www-authenticate"]
            login = base64.b64encode(f"operator:{USER}".encode()).decode()
            assert (await http.get(path, headers={"authorization": f"Basic {login}"})).status_code == 200
        assert USER not in (await http.get("/", token=USER)).text


def test_each_runbook_is_a_page_of_the_documentation_with_that_title() -> None:
    for page, title in TITLES.items():
        assert (DOCUMENTS / f"{page}.md").read_text(encoding="utf-8").startswith(f"# {title}\n")


@pytest.mark.parametrize(
    ("reason", "page"),
    [
        ("91% of its ids are used up", "sequence-at-its-end"),
        ("it is kind x, which this release cannot serve", "upgrade"),
        ("its high-water marks are not compared with all others yet since it started", "back-up-and-restore"),
        ("holds other data than the database in use at offset 2: a:1 draws from it", "replace-a-database"),
        ("this server's clock is 2.0 s ahead of the ticket databases': it stamps no ids", "monitoring"),
        ("sync_binlog=0 with the binary log on loses tickets in a crash: set it to 1", "databases"),
        ("anything else", "index"),
    ],
)
def test_a_reason_leads_to_its_runbook(reason: str, page: str) -> None:
    assert runbook_of(reason) == (TITLES[page], f"docs/operations/{page}.md")
