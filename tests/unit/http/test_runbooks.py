"""Each warning leads to a page of docs/operations that is there."""

import asyncio
import re
from typing import Any, cast

import pytest

from app.clients.connections import Connections
from app.clients.turns import Turns
from app.common.errors import ColumnExhausted, SequenceWentBack
from app.databases.mysql.line.server_settings import flaws_of
from app.http.pages import runbooks
from app.http.pages.runbooks import TITLES, address_among, documentation, runbook_of
from app.operations.metrics import Metrics
from tests.fakes.ticket_database import TRUE_TIME
from tests.fakes.ticket_server import Site
from tests.fakes.virtual_time import virtual_time
from tests.harness.checkout import REPOSITORY
from tests.unit.http.front import Front, front

OPERATIONS = REPOSITORY / "docs/operations"
BASE = "https://tickets.example/docs"


@pytest.mark.parametrize("page", TITLES)
def test_every_page_is_there_and_has_this_title(page: str) -> None:
    first, _, _ = (OPERATIONS / f"{page}.md").read_text(encoding="utf-8").partition("\n")
    assert first == f"# {TITLES[page]}"


def test_every_page_of_the_table_has_a_title_and_every_title_a_warning() -> None:
    used = {page for _, page in runbooks.PAGES} | {runbooks.ANY_OTHER}
    assert used == TITLES.keys()


def test_the_address_is_the_one_of_the_built_site() -> None:
    text = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    assert "use_directory_urls: false" in text
    assert "docs_dir: docs" in text
    assert runbook_of("exhausted: x", BASE).url == f"{BASE}/operations/sequence-at-its-end.html"
    assert runbook_of("exhausted: x", f"{BASE}/").url == f"{BASE}/operations/sequence-at-its-end.html"
    assert runbook_of("exhausted: x", None).url is None


@pytest.mark.parametrize(
    ("urls", "found"),
    [
        ([], None),
        (["Homepage, https://a.example", f"Documentation, {BASE}"], BASE),
        (["documentation,http://a.example/"], "http://a.example/"),
        (["Documentation, javascript:alert(1)"], None),
    ],
)
def test_the_address_stands_in_the_metadata(urls: list[str], found: str | None) -> None:
    assert address_among(urls) == found


def test_without_the_distribution_no_address_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runbooks, "DISTRIBUTION", "no-such-distribution")
    documentation.cache_clear()
    assert documentation() is None
    documentation.cache_clear()


def pages_of(it: Front) -> set[tuple[str, str]]:
    """The first two words of each warning, and its page."""
    warnings = it.server.admin.health()["warnings"]
    return {(" ".join(each["reason"].split()[:2]), page_of(each["reason"])) for each in warnings}


def page_of(reason: str) -> str:
    return runbook_of(reason, None).file.removeprefix("docs/operations/").removesuffix(".md")


@virtual_time
async def test_warnings_about_sequences() -> None:
    async with front() as it:
        await it.make("small", "ticket", bits=32, start=4_000_000_000)
        await it.make("full", "ticket", bits=32)
        for name in ("small", "small"):
            await it.id_of(name)
        it.server.lane("full", 1).report(ColumnExhausted())
        it.server.lane("photos", 1).suspend(SequenceWentBack("stands at 5 after 9 had been issued"))
        assert pages_of(it) == {
            ("93% of", "sequence-at-its-end"),
            ("exhausted: every", "sequence-at-its-end"),
            ("suspended: stands", "back-up-and-restore"),
        }


@virtual_time
async def test_warnings_about_databases_and_other_servers() -> None:
    async with Site(2) as site:
        it = Front(await site.ticket_server(reserve_seconds=2))
        site.servers[0].older_probe = TRUE_TIME + asyncio.get_running_loop().time() + 5
        await asyncio.sleep(3)
        assert pages_of(it) == {("a ticket", "upgrade"), ("no tickets", "upgrade")}
        site.servers[1].down = True
        await asyncio.sleep(5)
        assert ("unprotected: no", "replace-a-database") in pages_of(it)


@virtual_time
async def test_warnings_about_the_clock() -> None:
    async with Site(2) as site:
        off = 0.0
        it = Front(await site.ticket_server(wall=lambda: TRUE_TIME + asyncio.get_running_loop().time() + off))
        await it.make("likes", "snowflake")
        await it.id_of("likes")
        off = 3600.0
        await asyncio.sleep(3)
        assert ("this server's", "monitoring") in pages_of(it)


def test_warnings_about_settings() -> None:
    variables = {
        "innodb_flush_log_at_trx_commit": "2", "log_bin": "ON", "sync_binlog": "0", "innodb_doublewrite": "OFF",
        "innodb_flush_method": "nosync", "max_allowed_packet": "1024",
    }  # fmt: skip
    flaws = flaws_of(variables)
    assert len(flaws) == 5
    assert {page_of(flaw.wrong) for flaw in flaws} == {"databases"}


@virtual_time
async def test_a_warning_about_connections() -> None:
    connections = Connections(cast(Any, None), Metrics(), 0, Turns())
    (reason,) = connections.warnings()
    assert page_of(reason) == "connections-taken"


def test_any_other_warning_leads_to_the_overview() -> None:
    assert page_of("nobody has thought of this") == "index"


@virtual_time
async def test_the_page_names_the_runbook_or_links_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with front() as it:
        it.server.lane("photos", 1).report(ColumnExhausted())
        for target in ("/", "/page/photos"):
            page = (await it.get(target)).body.decode()
            assert "A 32-bit sequence at its end (<code>docs/operations/sequence-at-its-end.md</code>)" in page
            with monkeypatch.context() as patched:
                for module in ("status_page", "sequence_page"):
                    patched.setattr(f"app.http.pages.{module}.documentation", lambda: BASE)
                page = (await it.get(target)).body.decode()
            link = f'<a href="{BASE}/operations/sequence-at-its-end.html">A 32-bit sequence at its end</a>'
            assert link in page
        assert re.search('<b><a href="/page/photos">photos</a></b> on ', (await it.get("/")).body.decode())
