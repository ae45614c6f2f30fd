"""The page of one sequence."""

import html
import re
from collections.abc import Iterator

import pytest

from app.common.errors import SequenceUnavailable
from app.http.pages.address import Address
from app.http.pages.examples import Drawn, examples
from app.kinds.table import KINDS
from tests.fakes.ticket_server import Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.http.front import Front, front


async def text(it: Front, target: str, host: str = "tickets") -> str:
    """The page's text, without its tags."""
    body = (await it.get(target, host=host)).body.decode()
    return html.unescape(re.sub("<[^>]*>", " ", body.partition("<body>")[2].partition("<script>")[0]))


@virtual_time
async def test_it_shows_the_kind_the_positions_and_the_rate() -> None:
    async with front() as it:
        await it.make("small", "ticket", bits=32)
        ids = sorted([int(await it.id_of("small")), int(await it.id_of("small"))])
        shown = " ".join((await text(it, "/page/small")).split())
        assert "kind ticket" in shown
        assert "length of an id 32 bits" in shown
        for offset, last in enumerate(ids, start=1):
            assert re.search(rf"fake{offset}:3306 {offset} up {last} [\d,]{{9,}}", shown)
        assert "0 tickets/s" in shown


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "ticket"])
def test_a_kind_shows_its_parameters_and_no_position(kind: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with front() as it:
            await it.make("likes", kind)
            await it.id_of("likes")
            found = (await it.get("/sequence/likes")).json()
            shown = " ".join((await text(it, "/page/likes")).split())
            assert f"kind {kind} length of an id {found['bits']} bits" in shown
            for name in KINDS[kind].parameters:
                assert f"{name.replace('_', ' ')} {found[name]}" in shown
            assert "Position on each ticket database" not in shown

    scenario()


@virtual_time
async def test_a_warning_about_the_sequence_is_on_its_page_alone() -> None:
    async with front() as it:
        await it.make("late", "ticket")
        it.server.lane("photos", 1).suspend(SequenceUnavailable("its table is locked"))
        assert "fake1:3306  suspended: its table is locked" in await text(it, "/page/photos")
        assert "its table is locked" not in await text(it, "/page/late")


@virtual_time
async def test_a_page_that_is_not_there_says_why_and_the_json_stays() -> None:
    async with front() as it:
        assert "there is no sequence nothing" in await it.refused("/page/nothing", 404)
        assert "1 to 64 letters" in await it.refused("/page/9")
        assert (await it.get("/page/photos", method="HEAD")).headers["content-type"].startswith("text/html")
        for accept in ("*/*", "text/html,application/xhtml+xml,*/*;q=0.8"):
            assert (await it.get("/sequence/photos", accept=accept)).json()["sequence"] == "photos"


@virtual_time
async def test_a_browser_is_asked_for_a_login() -> None:
    async with front(tokens=("the-token-of-a-client",)) as it:
        answer = await it.get("/page/photos", 401)
        assert "Basic" in answer.headers["www-authenticate"]
        assert "log in with any user name and a token as the password" in answer.json()["detail"]


# -- the examples

HOSTILE = [
    "tickets'; rm -rf ~ #", 'a"><script>alert(1)</script>', "$(reboot)", "`reboot`", "a b", "a\\", "-oProxyCommand=x",
    "tickets:80:80", "tickets:x", "user@tickets", "tickets/path", "", "[::1", "::1", "a" * 300, "tickéts",
]  # fmt: skip


@pytest.mark.parametrize("host", HOSTILE)
def test_a_host_that_could_do_harm_is_not_in_the_examples(host: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with front() as it:
            page = (await it.get("/page/photos", host=host)).body.decode()
            assert "curl http://127.0.0.1:2/ticket/photos\n" in page
            assert not host or len(host) < 4 or host not in html.unescape(page)

    scenario()


@pytest.mark.parametrize(
    ("host", "bare"),
    [("tickets.example:8000", "tickets.example"), ("[::1]:8000", "::1"), ("10.0.0.1", "10.0.0.1"), ("a_b:1", "a_b")],
)
def test_the_examples_have_the_address_that_the_reader_used(host: str, bare: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with front() as it:
            shown = await text(it, "/page/photos", host=host)
            assert f'Tickets(["http://{host}"])' in shown
            assert f"redis-cli -h {bare} -p 6379 INCR photos" in shown
            assert "TOKEN" not in shown

    scenario()


def drawn(kind: str, *, needs_token: bool = False) -> Drawn:
    parameters = KINDS[kind].parameters
    return Drawn("likes", kind == "ticket", "shards" in parameters, KINDS[kind].bits, needs_token)


def texts(kind: str, *, needs_token: bool = False, redis_port: int | None = 6379) -> Iterator[str]:
    address = Address("tickets", "http://tickets:8000")
    for each in examples(drawn(kind, needs_token=needs_token), address, redis_port):
        yield each.text or each.note


@pytest.mark.parametrize("kind", KINDS)
def test_every_python_example_can_be_compiled(kind: str) -> None:
    *_, python, sqlalchemy, django = texts(kind, needs_token=True)
    for each in (python, sqlalchemy, django):
        compile(each, kind, "exec")


def test_the_examples_fit_the_kind() -> None:
    ticket, instagram, uuid = ("\n".join(texts(kind)) for kind in ("ticket", "instagram", "uuid7"))
    assert "/block/likes?size=" in ticket
    assert "TICKET.BLOCK likes" in ticket
    assert "?key=" not in ticket
    assert "?key=" in instagram
    assert "COUNT 1 KEY" in instagram
    assert "block" not in instagram.lower()
    assert "BigInteger" in instagram
    assert "String(36)" in uuid
    assert "TicketField" not in uuid


def test_each_example_has_a_place_for_the_token_where_one_is_needed() -> None:
    for example in texts("instagram", needs_token=True):
        assert "TOKEN" in example


def test_without_the_redis_protocol_the_page_says_so() -> None:
    _, redis, *_ = texts("ticket", redis_port=None)
    assert "TICKETS_REDIS_PORT" in redis


@virtual_time
async def test_the_reserve_is_shown_where_tickets_are_drawn_ahead() -> None:
    async with Site(2) as site:
        it = Front(await site.ticket_server(reserve_seconds=2))
        await it.id_of("photos")
        assert re.search(r"in reserve\s+\d+", await text(it, "/page/photos"))
    async with front() as it:
        assert "in reserve" not in await text(it, "/page/photos")


@virtual_time
async def test_the_openapi_document_describes_every_page() -> None:
    async with front() as it:
        paths = (await it.get("/openapi.json")).json()["paths"]
        assert {"/", "/page/{sequence}", "/docs", "/openapi.json"} <= paths.keys()
