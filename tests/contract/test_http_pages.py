"""The status page: what it shows and what it lets through to the browser."""

import re
from html import unescape
from urllib.parse import urljoin

import httpx
import pytest

from app.http.pages import status
from app.tickets.sight import Status
from app.version import VERSION
from tests.contract.http_bench import Bench, running

HOSTILE = '<script>alert("1")</script>&\''
REPLACED = "Runbook: Replace a ticket database ( docs/operations/replace-a-database.md )"


def text_of(answer: httpx.Response) -> str:
    """Return what a reader sees of the page, with one blank between two words."""
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8"), answer.text
    return " ".join(unescape(re.sub("<[^>]+>", " ", answer.text)).split())


async def test_the_page_shows_health_databases_servers_and_sequences(http: Bench) -> None:
    drawn = (await http.get("/ticket/photos")).json()["id"]
    text = text_of(await http.get("/"))
    assert "db1:3306 up offset 1, up since" in text
    assert "test:1 this server db1:3306, db2:3306" in text
    assert re.search(rf"photos ticket, 64 bits {drawn} [\d,]{{20,}} 1 of 1, by name", text), text
    http.report.is_draining = True
    assert f"test:1 version {VERSION} Draining" in text_of(await http.get("/"))
    http.report.is_draining = False
    http.servers[1].restart(http.servers[0].data.copy())
    while http.service.sight.members[1].status is not Status.QUARANTINED:
        await http.service.sight.moved()
    text = text_of(await http.get("/"))
    assert "1 of 2 databases not up" in text
    assert "Warnings db1:3306 unprotected: no other ticket database" in text
    said = re.escape(f"is the same data as db1:3306 {REPLACED}")
    assert re.search(rf"db2:3306 quarantined offset 2, quarantined since [-:Z 0-9]+ {said}", text), text
    http.servers[0].down = True
    await http.settle(0)
    text = text_of(await http.get("/"))
    assert all(each in text for each in ("Not serving", "test:1 this server no ticket database", "photos"))
    async with running(databases=()) as embedded:
        assert f"test:1 version {VERSION} embedded All well" in text_of(await embedded.get("/"))


async def test_the_page_is_served_behind_any_prefix_and_runs_no_script_but_its_own(http: Bench) -> None:
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


async def test_neither_what_is_asked_nor_what_a_database_says_becomes_markup(http: Bench) -> None:
    health = http.report.health()
    health["databases"][0].update(name=HOSTILE, last_error=HOSTILE, node=HOSTILE)
    health["warnings"] = [{"sequence": HOSTILE, "database": HOSTILE, "reason": HOSTILE}]
    http.report.health = lambda: health  # type: ignore[method-assign]
    for after in ("", HOSTILE):
        asked = {"search": HOSTILE, "decode_sequence": HOSTILE, "decode_id": HOSTILE, "other": HOSTILE, "after": after}
        answer = await http.get("/", params=asked)
        assert text_of(answer).count(HOSTILE) >= 7
        assert "<script>" not in answer.text
        assert 'value="&lt;script&gt;alert(&#34;1&#34;)' in answer.text


async def test_sequences_are_searched_and_paged_by_name(http: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "SHOWN", 1)
    await http.make("photo_sets")
    for query, wanted, following in (
        ("search=photo", ["photo_sets"], ["./?search=photo&amp;after=photo_sets"]),
        ("search=photo&after=photo_sets", ["photos"], []),
    ):
        page = (await http.get(f"/?{query}")).text
        assert re.findall('<th scope="row">([^<]+)</th>', page.partition('id="sequences"')[2]) == wanted
        assert re.findall('href="([^"]*)" rel="next"', page) == following


async def test_without_javascript_ids_are_read_and_the_page_is_renewed_unless_a_form_is_in_use(http: Bench) -> None:
    for query, is_renewed in (("", True), ("?search=p", False), ("?decode_id=7", False)):
        text = (await http.get(f"/{query}")).text
        assert ('<noscript><meta http-equiv="refresh"' in text) is is_renewed
    read = {"decode_sequence": "PHOTOS", "decode_id": " 8 "}
    assert "sequence photos kind ticket id_str 8 offset 2" in text_of(await http.get("/", params=read))
    for sequence, asked, wrong in (
        ("nothing", "7", "there is no sequence nothing"),
        ("photos", "9" * 5_000, "id"),
        ("photos", "", "Give both the sequence and the id."),
    ):
        answer = await http.get("/", params={"decode_sequence": sequence, "decode_id": asked})
        (alert,) = re.findall('<p class="bad" role="alert">([^<]+)</p>', answer.text)
        assert wrong in alert
