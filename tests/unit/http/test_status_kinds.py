"""The status page and the metrics of a server with sequences of every kind."""

import asyncio
import html
import re
import time
from urllib.parse import quote

import pytest

from app.common.errors import ClockAhead, ClockWentBack, ColumnExhausted
from app.kinds.table import KINDS
from app.operations.recent_requests import INTERVALS
from tests.fakes.ticket_database import TRUE_TIME
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.http.front import Front, front, now_ms

DAY_MS = 86_400_000


class Wall:
    """A server's clock. `off`: seconds that it is ahead of the true time."""

    off = 0.0

    def __call__(self) -> float:
        return now_ms() / 1000 + self.off


async def text(it: Front, target: str = "/") -> str:
    """The page's text, without its tags."""
    body = (await it.get(target)).body.decode()
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", body.partition("<body>")[2].partition("<script>")[0])).split())


async def row(it: Front, name: str) -> str:
    """The row of one sequence."""
    body = (await it.get("/")).body.decode()
    (found,) = re.findall(f'(?s)<tr data-sequence="{name}">(.*?)</tr>', body)
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", found)).split())


async def samples(it: Front) -> dict[str, float]:
    lines = (await it.get("/metrics")).body.decode().splitlines()
    return {key: float(value) for key, _, value in (each.rpartition(" ") for each in lines if each[0] != "#")}


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "ticket"])
def test_a_row_says_the_kind_and_when_its_time_ends(kind: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with front() as it:
            await it.make("likes", kind)
            await it.id_of("likes")
            shown = await row(it, "likes")
            assert shown.startswith(f"likes {kind} ")
            assert "bits" not in shown
            assert "%" not in shown
            ends = (await it.get("/sequence/likes")).json().get("ends")
            assert (ends[:10] in shown) if ends else re.search(r"\b\d{4}-\d\d-\d\d\b", shown) is None

    scenario()


@virtual_time
async def test_a_row_of_plain_tickets_is_as_ever() -> None:
    async with front() as it:
        await it.make("small", "ticket", bits=32)
        await it.id_of("small")
        assert re.match(r"small 32 bits 0 /s .* > 99.99 %", await row(it, "small"))


@pytest.mark.parametrize(("days", "soon"), [(91, False), (89, True)])
def test_an_end_within_ninety_days_stands_out(days: int, soon: bool) -> None:
    @virtual_time
    async def scenario() -> None:
        async with front() as it:
            end = int(time.time() * 1000) + days * DAY_MS  # the page goes by the real time
            await it.make("likes", "instagram", epoch=end - (1 << 40))
            assert ('class="soon"' in (await it.get("/")).body.decode()) is soon

    scenario()


@virtual_time
async def test_the_worker_number_and_the_instance_number_are_shown_once_there_are_any() -> None:
    async with front() as it:
        assert "worker number" not in await text(it)
        assert "instance number" not in await text(it)
        await it.make("likes", "snowflake")
        await it.make("flakes", "flake")
        said = (await it.get(f"/decode/likes/{await it.id_of('likes')}")).json()
        worker = 32 * said["datacenter"] + said["worker"]
        instance = int((await it.get(f"/decode/flakes/{await it.id_of('flakes')}")).json()["worker"], 16)
        shown = await text(it)
        assert re.search(rf"worker number {worker} leased for (2 min|1 min \d+ s)", shown)
        assert f"instance number {instance}" in shown
        assert (await samples(it))[f'tickets_worker{{database="fake{2 - worker % 2}:3306"}}'] == worker
        assert 100 < (await samples(it))["tickets_worker_lease_seconds"] <= 121


@virtual_time
async def test_a_server_without_a_worker_number_says_so() -> None:
    async with Site(2) as site:
        it = Front(await site.ticket_server())
        await it.make("likes", "snowflake")
        await it.id_of("likes")
        assert not [key for key in await samples(Front(await site.ticket_server())) if key == "tickets_worker"]
        for database in site.servers:
            database.down = True
        await asyncio.sleep(60)
        assert 30 < (await samples(it))["tickets_worker_lease_seconds"] < 70
        await asyncio.sleep(80)
        assert (await samples(it))["tickets_worker_lease_seconds"] == 0
        assert "leased for 0 s" in await text(it)


# -- clocks


async def refused_for(server: FakeTicketServer, error: type[Exception]) -> None:
    with pytest.raises(error):
        await server.desk.take("likes")


@virtual_time
async def test_requests_refused_for_a_wrong_clock_have_an_outcome_of_their_own() -> None:
    async with Site(2) as site:
        wall = Wall()
        it = Front(await site.ticket_server(wall=wall))
        await it.make("likes", "snowflake")
        await it.id_of("likes")
        wall.off = 3600
        await refused_for(it.server, ClockAhead)
        await asyncio.sleep(2)
        found = await samples(it)
        assert 3599 < found["tickets_clock_ahead_seconds"] < 3601
        wall.off = -3600
        await refused_for(it.server, ClockWentBack)
        await asyncio.sleep(2)
        found = await samples(it)
        assert found['tickets_requests_total{endpoint="ticket",outcome="clock"}'] == 2
        assert -3601 < found["tickets_clock_ahead_seconds"] < -3599
        assert re.search(r"failed 2\b", await text(it))


@virtual_time
async def test_a_request_that_a_kind_cannot_serve_is_its_clients_fault() -> None:
    async with front() as it:
        await it.make("likes", "uuid4")
        await refused_for_block(it.server)
        assert (await samples(it))['tickets_requests_total{endpoint="block",outcome="invalid"}'] == 1


async def refused_for_block(server: FakeTicketServer) -> None:
    with pytest.raises(Exception, match="has no blocks"):
        await server.desk.take("likes", 10, whole=True)


# -- the box


@virtual_time
async def test_the_box_says_what_an_id_says() -> None:
    async with front() as it:
        await it.make("likes", "instagram")
        page = (await it.get("/")).body.decode()
        assert '<form class="search" action="/#decode">' in page
        assert "decoded" not in page.partition("<body>")[2]
        shown = await text(it, "/?of=likes&id=2217813737473025833")
        for part in ("sequence likes", "kind instagram", "time 2020-01-09T21:07:01.721Z", "shard 1001", "counter 809"):
            assert part in shown
        page = (await it.get("/?of=likes&id=2217813737473025833&search=lik&page=1")).body.decode()
        assert 'value="2217813737473025833"' in page
        assert '<input type="hidden" name="search" value="lik">' in page


@pytest.mark.parametrize(
    ("of", "id_", "why"),
    [
        ("likes", "0", "whole number from 1 to"),
        ("nothing", "7", "there is no sequence nothing"),
        ("<b>", "7", "1 to 64 letters"),
        ("likes", "<script>alert(1)</script>", "whole number from 1 to"),
        ("likes", '"><b>', "whole number from 1 to"),
    ],
)
def test_the_box_says_why_an_id_cannot_be_read(of: str, id_: str, why: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with front() as it:
            await it.make("likes", "instagram")
            page = (await it.get(f"/?of={quote(of)}&id={quote(id_)}")).body.decode()
            assert '<p class="bad" role="alert">' in page
            assert why in html.unescape(page)
            plain = (await it.get("/?of=likes&id=x")).body.decode()
            assert page.count("<b>") == plain.count("<b>")
            assert "<script>alert" not in page

    scenario()


@virtual_time
async def test_half_of_what_the_box_asks_for_is_nothing() -> None:
    async with front() as it:
        for target in ("/?of=photos", "/?kind=ulid", "/?of=photos&id=%20", "/?epoch=x"):
            assert '<p class="bad" role="alert">' not in (await it.get(target)).body.decode()
        for target in ("/?id=7", "/?of=&id=7", "/?id=7&epoch=5", "/?of=photos&kind=ticket&id=7"):
            assert "Name the sequence of the id, or its kind" in await text(it, target)
        await it.get("/?of=photos&id=7&id=8", 422)
        assert (await it.get("/?of=%20photos%20&id=%207", method="HEAD")).body
        assert "offset 1" in await text(it, "/?of=%20photos%20&id=%207")


@virtual_time
async def test_the_box_reads_an_id_of_any_kind_from_elsewhere() -> None:
    async with front() as it:
        shown = await text(it, "/?kind=instagram&epoch=0&id=2217813737473025833&of=&shards=")
        said = (await it.get("/decode?kind=instagram&epoch=0&id=2217813737473025833")).json()
        for key, value in said.items():
            assert f"{key} {value}" in shown or value is None
        page = (await it.get("/?kind=instagram&epoch=0&id=7")).body.decode()
        assert "<option selected>instagram</option>" in page
        assert 'name="epoch" maxlength="19" inputmode="numeric" value="0"' in page
        for target, why in (
            ("/?kind=nothing&id=7", "there is no such kind of sequence"),
            ("/?kind=instagram&epoch=-5&id=7", "epoch has to be a whole number, in digits"),
            (f"/?kind=instagram&epoch={'9' * 20}&id=7", "epoch has to be a whole number, in digits"),
            (f"/?kind=instagram&epoch={'9' * 19}&id=7", "epoch is a whole number from 0"),
            ("/?kind=uuid7&epoch=5&id=7", "epoch"),
        ):
            assert why in await text(it, target), target


# -- order and choice


async def rows(it: Front, target: str) -> list[str]:
    return re.findall(r'<tr data-sequence="(\w+)"', (await it.get(target)).body.decode())


async def with_some_in_use(it: Front) -> None:
    """`photos` is not in use, `accounts` has the least headroom, `likes` ends first, `small` is the fastest."""
    end = int(time.time() * 1000) + 100 * DAY_MS
    await it.make("accounts", "ticket", bits=32, start=4_000_000_000)
    await it.make("small", "ticket", bits=32, start=9)
    await it.make("likes", "instagram", epoch=end - (1 << 40))
    for count in range(3):
        await it.rates.sample()
        for name in ("small", "small", "accounts", "likes"):
            for _ in range(count):
                await it.id_of(name)
        await asyncio.sleep(2)
    await it.rates.sample()


@virtual_time
async def test_the_table_is_sorted_by_rate_headroom_or_end() -> None:
    async with front() as it:
        await with_some_in_use(it)
        assert await rows(it, "/") == ["accounts", "likes", "photos", "small"]
        assert (await rows(it, "/?sort=rate"))[0] == "small"
        assert (await rows(it, "/?sort=rate"))[-1] == "photos"
        assert (await rows(it, "/?sort=headroom"))[:2] == ["accounts", "small"]
        assert (await rows(it, "/?sort=headroom"))[-1] == "likes"
        assert (await rows(it, "/?sort=end"))[0] == "likes"
        assert (await rows(it, "/?sort=end"))[-1] == "photos"
        assert await rows(it, "/?sort=headroom&search=S") == ["accounts", "small", "photos", "likes"]
        page = (await it.get("/?sort=end&search=s")).body.decode()
        assert re.findall(r'aria-sort="(\w+)"><a href="([^"]*)"', page) == [
            ("ascending", "/?search=s&amp;sort=end#sequences")
        ]
        assert '<input type="hidden" name="sort" value="end">' in page
        assert "sort has to be one of rate, headroom, end" in await it.refused("/?sort=name")


@virtual_time
async def test_an_exhausted_sequence_comes_first() -> None:
    async with front() as it:
        await with_some_in_use(it)
        for lane in it.server.catalog.entries["photos"].rotation.lanes:
            lane.report(ColumnExhausted())
        for sort in ("headroom", "end"):
            assert (await rows(it, f"/?sort={sort}"))[0] == "photos"


@virtual_time
async def test_only_sequences_with_a_warning_are_shown() -> None:
    async with front() as it:
        await with_some_in_use(it)
        assert await rows(it, "/?warned=1") == ["accounts", "likes"]
        assert await rows(it, "/?warned=1&sort=end") == ["likes", "accounts"]
        assert await rows(it, "/?warned=1&search=small") == []
        assert "No sequence with “small” in its name has a warning." in await text(it, "/?warned=1&search=small")
        await it.refused("/?warned=2")


# -- latency and errors


@virtual_time
async def test_latency_and_errors_of_the_last_minute_stand_beside_the_rate() -> None:
    async with front() as it:
        assert "p50 – p99 – errors 0 in the last 60 s" in await text(it)
        it.server.metrics.requests_answered("ticket", 0.03, 99)
        it.server.metrics.requests_answered("ticket", 9, 2)
        it.server.metrics.requests_refused("ticket", "unavailable", 1)
        assert "p50 37.8 ms p99 > 2.5 s errors 1 (0.9 %) in the last 60 s" in await text(it)
        for _ in range(INTERVALS + 1):
            await it.rates.sample()
        it.server.metrics.requests_answered("ticket", 0.0001, 1)
        assert "p50 < 0.5 ms p99 < 0.5 ms errors 0" in await text(it)


# -- the ticket servers


@virtual_time
async def test_all_ticket_servers_are_shown_with_the_databases_that_they_reach() -> None:
    async with Site(2) as site:
        it = Front(await site.ticket_server())
        other = await site.ticket_server()
        await asyncio.sleep(3)
        (name,) = it.server.admin.other_servers
        shown = await text(it)
        assert re.search(r"Reaches [\w.-]+:8000 this server fake1:3306, fake2:3306 ", shown)
        assert f"{name} fake1:3306, fake2:3306 " in shown
        await site.stop(other)
        await asyncio.sleep(3)
        assert name not in await text(it)


@virtual_time
async def test_a_server_that_reaches_one_database_of_two_stands_out() -> None:
    async with Site(2) as site:
        it = Front(await site.ticket_server())
        assert "1 of 2" not in await text(it)
        site.servers[1].down = True
        await asyncio.sleep(5)
        assert re.search(r"this server fake1:3306 1 of 2 ", await text(it))
        site.servers[0].down = True
        await asyncio.sleep(5)
        assert "this server no ticket database 0 of 2" in await text(it)


@virtual_time
async def test_a_server_of_an_earlier_release_has_no_name() -> None:
    async with Site(2) as site:
        it = Front(await site.ticket_server())
        site.servers[0].older_probe = TRUE_TIME + asyncio.get_running_loop().time() + 5
        await asyncio.sleep(3)
        assert "a server of an earlier release does not announce its name" in await text(it)
