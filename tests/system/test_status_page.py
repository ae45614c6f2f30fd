"""The status page in a real Chromium."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.harness.browser import Browser
from tests.harness.load import Load
from tests.harness.pair import MySQLPair
from tests.harness.processes import wait_until
from tests.harness.ticketd import PATIENT, TicketServer

pytestmark = pytest.mark.any_engine

LONG = f"/page/{'s' * 64}"
SHOWN = 100
"""The number of sequences on one page."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def server() -> Iterator[TicketServer]:
    with TicketServer(settings=PATIENT) as server:
        server.wait_ready()
        yield server


def wait_text(browser: Browser, selector: str, pattern: str, timeout: float = 40) -> None:
    try:
        wait_until(lambda: re.search(pattern, browser.text(selector)), timeout, f"{selector} to say {pattern}", 0.2)
    except TimeoutError as error:
        raise TimeoutError(f"{error}; it says {browser.text('body')}") from error


def test_it_shows_a_database_going_down_and_coming_back_without_a_reload(
    browser: Browser, own_pair: MySQLPair, tmp_path: Path
) -> None:
    even = f'[data-database="{own_pair.even.name}"]'
    browser.complaints.clear()
    browser.requested.clear()
    with TicketServer(own_pair.urls) as server:
        server.wait_health("pass", 60)
        browser.look(1200, 800)
        browser.open(f"{server.url}/")
        browser.value("window.mark = 'the same page'")
        assert browser.text("#headline") == "All well"
        assert server.name.partition(":")[2] in browser.text(".server")
        with Load([server.address], clients=2, pause=0.05) as load:
            load.run_for(1)
            wait_text(browser, "#rate", "[1-9]")
            wait_text(browser, '[data-sequence="photos"]', r"\d")
            own_pair.even.kill()
            wait_text(browser, f"{even} .pill", "down")
            wait_text(browser, f"{even} .error", "refuses|lost|closed|gone")
            assert browser.text("#headline") == "1 of 2 databases not up"
            assert "1 of 2 databases not up" in str(browser.value("document.title"))
            own_pair.even.restart()
            wait_text(browser, f"{even} .pill", "up", 60)
            wait_text(browser, "#headline", "All well", 60)
        with TicketServer(own_pair.urls) as other:
            port = other.name.partition(":")[2]
            wait_text(browser, ".servers", rf"(?s):{port}\s.*{own_pair.odd.name}, {own_pair.even.name}")
        assert browser.value("window.mark") == "the same page"
        assert browser.complaints == []
        assert {re.match(r"[a-z]+://[^/]*|data:", url)[0] for url in browser.requested} <= {server.url, "data:"}  # type: ignore[index]
        server.kill()
        wait_until(lambda: browser.value("!document.getElementById('lost').hidden"), 30, "the page to notice")
        server.start()
        server.wait_alive()
        wait_until(lambda: browser.value("document.getElementById('lost').hidden"), 30, "the page to notice", 0.2)


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (768, 1024), (360, 740)])
@pytest.mark.parametrize(
    "path", ["/", "/?of=flakes&id=00000198000000000000000000010000", "/docs", "/page/photos", LONG]
)
def test_nothing_sticks_out_on_any_screen(
    browser: Browser, server: TicketServer, path: str, width: int, height: int
) -> None:
    server.put(f"/sequence/{'long_' * 12}name")
    server.put(f"/sequence/{'s' * 64}", json={"kind": "snowflake"})
    server.put("/sequence/flakes", json={"kind": "flake"})
    server.ticket("photos")
    browser.look(width, height)
    browser.open(f"{server.url}{path}")
    browser.value("document.querySelectorAll('details').forEach((each) => each.open = true)")
    assert browser.value("document.documentElement.scrollWidth") <= width


def test_it_is_dark_where_the_reader_likes_it_dark(browser: Browser, server: TicketServer) -> None:
    def brightness(of: str, what: str) -> float:
        colour = str(browser.value(f"getComputedStyle(document.querySelector('{of}')).{what}"))
        return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 765

    for dark in (False, True):
        browser.look(1000, 800, dark=dark)
        browser.open(f"{server.url}/")
        back, text = brightness("body", "backgroundColor"), brightness("body", "color")
        assert (back < 0.2 and text > 0.8) if dark else (back > 0.8 and text < 0.2)


def test_it_can_be_read_without_scripts(browser: Browser, server: TicketServer) -> None:
    server.ticket("photos")
    browser.look(1000, 800, scripts=False)
    try:
        browser.open(f"{server.url}/")
        text = browser.text("body")
        for expected in ("All well", "odd.sqlite3", "even.sqlite3", "photos", "up", "tickets/s"):
            assert expected in text
        assert 'http-equiv="refresh"' in server.get("/").text
    finally:
        browser.look(1000, 800)


def test_many_sequences_have_pages_and_a_search(browser: Browser) -> None:
    with TicketServer(settings=PATIENT) as server:
        server.wait_ready()
        paths = [f"/sequence/many_{number:03}" for number in range(SHOWN + 5)]
        with ThreadPoolExecutor(20) as makers:  # the databases are asked for unknown names ten times a second
            assert {reply.status for reply in makers.map(server.put, paths)} <= {200, 201}
        total = server.get("/sequence").json()["total"]
        browser.look(1200, 800)
        browser.complaints.clear()
        browser.open(f"{server.url}/")
        assert f"1 to {SHOWN} of {total}" in browser.text(".pages")
        browser.value("document.querySelector('.pages [rel=next]').click()")
        wait_text(browser, ".pages", f"{SHOWN + 1} to ")
        browser.value("document.querySelector('[role=search] input').value = 'MANY_10'")
        server.put("/sequence/many_109")  # it is there after the page has fetched itself again
        wait_until(lambda: f"of {total + 1}," in browser.text(".pages"), 30, "the page to count one more", 0.2)
        assert browser.value("document.querySelector('[role=search] input').value") == "MANY_10"
        browser.value("document.querySelector('[role=search] button').click()")
        wait_text(browser, "#sequences", "many_100")
        assert browser.value("location.search") == "?search=MANY_10&sort="
        names = "[...document.querySelectorAll('[data-sequence]')].map((each) => each.dataset.sequence).join()"
        assert browser.value(names) == "many_100,many_101,many_102,many_103,many_104,many_109"
        browser.value("window.mark = 'the same page'")
        server.put("/sequence/many_108")
        wait_text(browser, "#sequences", "many_108")
        assert browser.value("window.mark") == "the same page"
        browser.open(f"{server.url}/?search=many_10")
        browser.value("document.querySelector('[aria-sort], th.n a').click()")
        wait_text(browser, "th[aria-sort] a", "Rate here")
        assert browser.value("location.search") == "?search=many_10&sort=rate"
        assert browser.value("document.querySelector('[name=sort]').value") == "rate"
        browser.value("document.querySelector('[name=warned]').click()")
        browser.value("document.querySelector('[role=search] button').click()")
        wait_text(browser, "#sequences", "No sequence with “many_10” in its name has a warning")
        assert browser.complaints == []


def test_what_is_tried_in_the_docs_is_answered(browser: Browser, server: TicketServer) -> None:
    browser.look(1200, 900)
    browser.complaints.clear()
    browser.open(f"{server.url}/docs")
    browser.value("document.querySelector('form[data-path=\"/ticket/{sequence}\"] button').click()")
    wait_text(browser, "pre.shown", '(?s)GET /ticket/photos.*200.*"id"')
    assert browser.complaints == []


@pytest.mark.parametrize("scripts", [True, False])
def test_the_box_says_what_an_id_says(browser: Browser, server: TicketServer, scripts: bool) -> None:
    server.put("/sequence/likes", json={"kind": "instagram"})
    browser.look(1200, 800, scripts=scripts)
    browser.complaints.clear()
    try:
        if scripts:
            browser.open(f"{server.url}/")
            browser.value("document.querySelector('#decode [name=of]').value = 'likes'")
            browser.value("document.querySelector('#decode [name=id]').value = '2217813737473025833'")
            browser.value("document.querySelector('#decode button').click()")
            wait_text(browser, "#decode", "2020-01-09T21:07:01.721Z")
            browser.value("window.mark = 'the same page'")
            server.put("/sequence/made_meanwhile")
            wait_text(browser, "#sequences", "made_meanwhile")
            assert browser.value("window.mark") == "the same page"
            assert browser.value("document.querySelector('#decode [name=id]').value") == "2217813737473025833"
        else:
            browser.open(f"{server.url}/?of=likes&id=2217813737473025833")
        text = browser.text("#decode")
        for expected in ("instagram", "2020-01-09T21:07:01.721Z", "1001", "809"):
            assert expected in text
        browser.open(f"{server.url}/?of=likes&id=7e3")
        assert "whole number from 1 to" in browser.text("#decode [role=alert]")
        browser.open(f"{server.url}/?kind=snowflake&epoch=1288834974657&id=1")
        assert "2010-11-04T01:42:54.657Z" in browser.text("#decode")
        assert browser.complaints == []
    finally:
        browser.look(1000, 800)


def test_kinds_and_numbers_are_shown(browser: Browser, server: TicketServer) -> None:
    for name, kind in (("likes", "instagram"), ("messages", "snowflake"), ("events", "flake"), ("sessions", "uuid7")):
        server.put(f"/sequence/{name}", json={"kind": kind})
        assert server.get(f"/ticket/{name}").status == 200
    browser.look(1200, 800)
    browser.complaints.clear()
    browser.open(f"{server.url}/")
    for name, words in (("likes", "instagram.*2046-06-27"), ("messages", "snowflake.*2080-07-10"),
                        ("events", "flake"), ("sessions", "uuid7"), ("photos", "64 bits")):  # fmt: skip
        assert re.search(f"(?s)^{name} {words}", browser.text(f'[data-sequence="{name}"]'))
    assert re.search(r"(?s)^worker number\s+\d+ leased for \d", browser.text("#worker"))
    assert re.search(r"(?s)^instance number\s+\d+$", browser.text("#instance"))
    assert browser.complaints == []


def test_a_name_leads_to_the_page_of_its_sequence(browser: Browser, server: TicketServer) -> None:
    server.ticket("photos")
    browser.look(1200, 800)
    browser.complaints.clear()
    browser.open(f"{server.url}/")
    browser.value("document.querySelector('[data-sequence=photos] a').click()")
    wait_text(browser, "h1", "^photos$")
    assert f"curl {server.url}/ticket/photos" in browser.text("pre")
    browser.value("window.mark = 'the same page'")
    last = server.ticket("photos")
    wait_text(browser, "#live", f"\\b{last}\\b")
    assert browser.value("window.mark") == "the same page"
    assert browser.complaints == []


def press(browser: Browser, key: str, code: int, **more: str) -> None:
    about = {"key": key, "code": key, "windowsVirtualKeyCode": code}
    browser.command("Input.dispatchKeyEvent", type="keyDown", **about, **more)
    browser.command("Input.dispatchKeyEvent", type="keyUp", **about)


def test_the_keyboard_alone_reaches_every_link_and_box(browser: Browser, server: TicketServer) -> None:
    server.ticket("photos")
    reached = "document.activeElement.dataset.reached = 1"
    for path in ("/", "/page/photos"):
        browser.look(1200, 800, scripts=False)
        browser.open(f"{server.url}{path}")
        browser.value("document.body.focus()")
        for _ in range(60):
            press(browser, "Tab", 9)
            browser.value(reached)
            if browser.value("document.activeElement.matches('details:not([open]) > summary')"):
                press(browser, "Enter", 13, text="\r")
        all_of_them = ":is(a[href], input:not([type=hidden]), select, button, summary, pre)"
        assert browser.value(f"document.querySelectorAll('{all_of_them}').length") > 5
        assert browser.value(f"document.querySelectorAll('{all_of_them}:not([data-reached])').length") == 0
    browser.look(1000, 800)


class _Loads(HTMLParser):
    """What a page makes a browser load, and what of it could run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "srcset", "data") or (name == "href" and tag == "link"):
                self.found.append(str(value))
            if name.startswith("on") or name == "style":
                self.handlers.append(name)


@pytest.mark.parametrize("path", ["/", "/docs", "/page/photos"])
def test_the_pages_load_nothing_and_forbid_everything_else(server: TicketServer, path: str) -> None:
    reply = server.get(path)
    assert reply.status == 200
    page = _Loads()
    page.feed(reply.text)
    assert [each for each in page.found if not each.startswith("data:")] == []
    assert page.handlers == []
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert reply.headers["cache-control"] == "no-store"
    assert len(reply.body) < 100_000
