"""The status page: what it shows and what it lets through to the browser."""

import re
from html import unescape
from urllib.parse import urljoin

import httpx
import pytest

from app.tickets.sight import Status
from app.version import VERSION
from tests.contract.http_bench import running

pytestmark = pytest.mark.looptime

HOSTILE = '<script>alert("1")</script>&\''
REPLACED = "Runbook: Replace a ticket database ( docs/operations/replace-a-database.md )"


def text_of(answer: httpx.Response) -> str:
    """Return what a reader sees of the page, with one blank between two words."""
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8"), answer.text
    return " ".join(unescape(re.sub("<[^>]+>", " ", answer.text)).split())


def names_of(answer: httpx.Response) -> list[str]:
    """Return the names in the table of sequences."""
    return re.findall('<th scope="row">([^<]+)</th>', answer.text.partition('id="sequences"')[2])


async def test_the_page_shows_health_databases_servers_and_sequences() -> None:
    async with running() as http:
        drawn = (await http.get("/ticket/photos")).json()["id"]
        text = text_of(await http.get("/"))
        assert "db1:3306 up offset 1, up since" in text
        assert "db2:3306 up offset 2, up since" in text
        assert "test:1 this server db1:3306, db2:3306" in text
        assert re.search(rf"photos ticket, 64 bits {drawn} [\d,]{{20,}} 1 of 1, by name", text), text
        assert "embedded" not in text
        http.report.is_draining = True
        assert f"test:1 version {VERSION} Draining" in text_of(await http.get("/"))
    async with running(databases=()) as http:
        assert f"test:1 version {VERSION} embedded All well" in text_of(await http.get("/"))
    async with running(count=1) as http:
        text = text_of(await http.get("/"))
        assert "Warnings db1:3306 unprotected: it is the only ticket database" in text
        assert f"high-water marks {REPLACED}" in text


async def test_databases_that_cannot_be_used_have_their_reason_and_a_runbook() -> None:
    async with running() as http:
        http.servers[1].restart(http.servers[0].data.copy())
        while http.service.sight.members[1].status is not Status.QUARANTINED:
            await http.service.sight.moved()
        text = text_of(await http.get("/"))
        assert "1 of 2 databases not up" in text
        said = re.escape(f"is the same data as db1:3306 {REPLACED}")
        assert re.search(rf"db2:3306 quarantined offset 2, quarantined since [-:Z 0-9]+ {said}", text), text
        http.servers[0].down = True
        await http.settle(0)
        text = text_of(await http.get("/"))
        assert "Not serving" in text
        assert "test:1 this server no ticket database" in text
        assert "photos" in text


async def test_the_page_is_served_behind_any_prefix_and_runs_no_script_but_its_own() -> None:
    async with running() as http:
        answer = await http.get("/")
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")
        assert not re.search(r"<style|\son[a-z]+=|\sstyle=|<script>", answer.text)
        links = [link for link in re.findall('(?:href|src|action)="([^"]*)"', answer.text) if link[:5] != "data:"]
        assert len(links) >= 8
        for link in links:
            behind = urljoin("http://proxy/tickets/", unescape(link))
            assert behind.startswith("http://proxy/tickets/"), link
            assert (await http.get(behind.removeprefix("http://proxy/tickets"))).status_code == 200, link


async def test_neither_what_is_asked_nor_what_a_database_says_becomes_markup() -> None:
    async with running() as http:
        asked = {"search": HOSTILE, "decode_sequence": HOSTILE, "decode_id": HOSTILE, "other": HOSTILE}
        for query in (asked, {**asked, "after": HOSTILE}):
            answer = await http.get("/", params=query)
            assert HOSTILE in text_of(answer)
            assert "<script>" not in answer.text
            assert 'value="&lt;script&gt;alert(&#34;1&#34;)' in answer.text
        health = http.report.health()
        health["databases"][0].update(name=HOSTILE, last_error=HOSTILE, node=HOSTILE)
        health["warnings"] = [{"sequence": HOSTILE, "database": HOSTILE, "reason": HOSTILE}]
        http.report.health = lambda: health  # type: ignore[method-assign]
        answer = await http.get("/")
        assert text_of(answer).count(HOSTILE) >= 6
        assert "<script>" not in answer.text


async def test_sequences_are_searched_and_paged_by_name() -> None:
    async with running() as http:
        names = [f"Item_{number:03}" for number in range(120)]
        for server in http.servers:
            for name in names:
                server.add(name)
        await http.service.listing.refresh()
        query, pages = "", list[list[str]]()
        while len(pages) < 3:
            answer = await http.get(f"/{query}")
            pages.append(names_of(answer))
            following = re.search(r'href="\./([^"]*)" rel="next"', answer.text)
            query = "" if following is None else unescape(following[1])
        assert (query, [len(page) for page in pages]) == ("", [50, 50, 21])
        assert [name for page in pages for name in page] == [*names, "photos"]
        assert "./?search=item&amp;after=Item_049" in (await http.get("/?search=item")).text
        assert names_of(await http.get("/?search=item&after=Item_049")) == names[50:100]


async def test_without_javascript_ids_are_read_and_the_page_is_loaded_again_unless_a_form_is_in_use() -> None:
    async with running() as http:
        for query, is_renewed in (("", True), ("?search=p", False), ("?decode_id=7", False)):
            text = (await http.get(f"/{query}")).text
            assert ('<noscript><meta http-equiv="refresh"' in text) is is_renewed
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
            assert alert is not None
            assert wrong in alert[1], answer.text
