"""The catalog: sequences are found, made, made where they are missing, and forgotten when they are dropped."""

import asyncio

import pytest

from app.common.errors import AboveCeiling, InvalidRequest, NoTicketDatabase, SequenceConflict, UnknownSequence
from app.common.sequences import Width
from app.tickets.lanes.state import LaneState
from app.tickets.sequences.catalog import LOOK_UP_PAUSE
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time


async def take(server: FakeTicketServer, times: int, sequence: str) -> list[int]:
    return [(await server.desk.take(sequence, 1))[0] for _ in range(times)]


async def listed() -> None:
    await asyncio.sleep(8)


@virtual_time
async def test_what_the_databases_have_is_known_from_the_start() -> None:
    async with Site(2, ["photos", "accounts"]) as site:
        server = await site.ticket_server()
        assert sorted(server.catalog.entries) == ["accounts", "photos"]
        assert (await server.catalog.find("photos")).width is Width.BIGINT


@virtual_time
async def test_a_table_that_somebody_makes_is_found_at_the_first_request() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        for database in site.servers:
            database.make("songs", Width.INT, 1)
        assert await take(server, 2, "songs") == [1, 2]
        assert server.catalog.entries["songs"].width is Width.INT


@virtual_time
async def test_a_name_that_no_database_could_be_asked_for_may_be_a_sequence() -> None:
    """They count as up until the next probe, and are too busy to answer, or just gone."""
    async with Site(2) as site:
        server = await site.ticket_server()
        for database in site.servers:
            database.make("songs", Width.BIGINT, 1)
            database.down = True
        assert server.ring.any_up
        with pytest.raises(NoTicketDatabase, match="can be asked"):
            await server.catalog.find("songs")
        site.servers[0].down = False
        with pytest.raises(UnknownSequence):
            await server.catalog.find("nobody")


@virtual_time
async def test_names_that_nobody_has_cost_the_databases_few_questions_however_many_ask() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        before = sum(database.statements for database in site.servers)

        async def ask(number: int) -> None:
            with pytest.raises(UnknownSequence, match="PUT /sequence/nobody"):
                await server.catalog.find(f"nobody{number}")

        await asyncio.gather(*(ask(number) for number in range(200)))
        assert sum(database.statements for database in site.servers) - before < 30


@pytest.mark.parametrize("kind", [None, "ticket", "instagram"])
@virtual_time
async def test_who_makes_a_sequence_has_it_looked_up_once(kind: str | None) -> None:
    """A second look-up would wait for the pause between two."""
    async with Site(2) as site:
        server = await site.ticket_server()
        await listed()
        began = asyncio.get_running_loop().time()
        made, _ = await server.admin.make("songs", kind, {})
        assert made
        assert asyncio.get_running_loop().time() - began < LOOK_UP_PAUSE
        made, _ = await server.admin.make("songs", kind, {})
        assert not made


@virtual_time
async def test_whoever_asked_goes_away_and_the_others_get_their_answer() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        for database in site.servers:
            database.make("songs", Width.BIGINT, 1)
        asked = [asyncio.create_task(server.catalog.find("songs")) for _ in range(3)]
        await asyncio.sleep(0)
        asked[0].cancel()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert found[1] is found[2] is server.catalog.entries["songs"]


@virtual_time
async def test_made_on_every_database_that_is_up_and_on_the_others_when_they_come() -> None:
    async with Site(2) as site:
        site.servers[1].down = True
        server = await site.ticket_server()
        entry, made = await server.make("songs", Width.INT, 1000)
        assert made
        assert entry.width is Width.INT
        assert await take(server, 2, "songs") == [1001, 1003]
        site.servers[1].down = False
        await listed()
        tickets = await take(server, 6, "songs")
        assert {ticket % 2 for ticket in tickets} == {0, 1}
        assert min(tickets) > 1000
        assert site.servers[1].table("songs").width is Width.INT


async def made_while_the_second_is_away(site: Site, start: int) -> FakeTicketServer:
    site.servers[1].down = True
    server = await site.ticket_server()
    await server.make("songs", Width.INT, start)
    return server


@virtual_time
async def test_the_start_holds_on_a_database_that_comes_later_though_nobody_has_drawn() -> None:
    async with Site(2) as site:
        server = await made_while_the_second_is_away(site, 1_000_000)
        site.servers[1].down = False
        await listed()
        tickets = await take(server, 6, "songs")
        assert {ticket % 2 for ticket in tickets} == {0, 1}
        assert min(tickets) >= 1_000_000


@virtual_time
async def test_the_start_is_remembered_while_the_database_that_has_it_is_away() -> None:
    async with Site(2) as site:
        server = await made_while_the_second_is_away(site, 1_000_000)
        site.servers[0].down = True
        await asyncio.sleep(2)
        site.servers[1].down = False
        await listed()
        assert await take(server, 2, "songs") == [1_000_000, 1_000_002]


@virtual_time
async def test_after_a_restart_the_start_is_where_the_database_that_has_it_stands() -> None:
    async with Site(2) as site:
        server = await site.restart(await made_while_the_second_is_away(site, 1_000_000))
        site.servers[1].down = False
        await listed()
        assert min(await take(server, 6, "songs")) >= 1_000_000


@virtual_time
async def test_what_is_missing_is_made_above_the_counter_that_was_read_of_a_database_that_is_away() -> None:
    async with Site(2) as site:
        site.servers[1].down = True
        server = await site.ticket_server()
        site.servers[0].make("songs", Width.INT, 1_000_000)  # without a definition, and nothing is drawn
        await listed()
        site.servers[0].down = True
        await asyncio.sleep(2)
        site.servers[1].down = False
        await listed()
        assert min(await take(server, 2, "songs")) >= 1_000_000


@virtual_time
async def test_what_is_missing_is_made_above_the_marks_about_a_database_that_is_away() -> None:
    async with Site(2) as site:
        site.servers[0].make("songs", Width.INT, 1_000_000)
        server = await site.ticket_server()
        await listed()
        tickets = [await take(server, 1, "songs") for _ in range(4)]
        await asyncio.sleep(2.2)
        server = await site.restart(server)
        site.servers[0].down = True
        site.servers[1].drop("songs")
        await listed()
        assert min(await take(server, 2, "songs")) > max(tickets)[0]


@virtual_time
async def test_what_is_missing_is_not_made_while_nothing_is_known_of_the_database_that_has_it() -> None:
    """Its counter is not among those that have been read."""
    async with Site(2, [f"s{number}" for number in range(60)]) as site:
        site.servers[1].down = True
        server = await site.ticket_server()
        site.servers[0].make("songs", Width.BIGINT, 1_000_000)
        await server.catalog.find("songs")
        site.servers[0].down = True
        await asyncio.sleep(2)
        site.servers[1].down = False
        await listed()
        assert "songs" not in site.servers[1].state.tables
        site.servers[0].down = False
        await listed()
        tickets = await take(server, 6, "songs")
        assert {ticket % 2 for ticket in tickets} == {0, 1}
        assert min(tickets) >= 1_000_000


@virtual_time
async def test_made_again_is_found_and_differs_by_its_width_alone() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        first, made = await server.make("songs", Width.INT, None)
        assert made
        for width, start in ((Width.INT, None), (None, None), (None, 500)):
            again, made = await server.make("songs", width, start)
            assert again is first
            assert not made
        with pytest.raises(SequenceConflict, match="32 bits"):
            await server.make("songs", Width.BIGINT, None)


@virtual_time
async def test_a_name_that_differs_by_case_alone_is_a_conflict() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        with pytest.raises(SequenceConflict, match="photos differs from Photos by case"):
            await server.make("Photos", None, None)


@virtual_time
async def test_what_cannot_be_made() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        with pytest.raises(AboveCeiling):
            await server.make("songs", Width.INT, 2**32 - 1)
        for name in ("", "a;b", "_songs", "1a"):
            with pytest.raises(InvalidRequest):
                await server.make(name, None, None)
        for database in site.servers:
            database.down = True
        await asyncio.sleep(2)
        with pytest.raises(NoTicketDatabase):
            await server.make("songs", None, None)


@virtual_time
async def test_what_one_database_lacks_is_made_above_where_the_others_stand() -> None:
    async with Site(2) as site:
        site.servers[0].make("songs", Width.INT, 1)
        site.servers[0].table("songs").draw(500, 1, 2)
        server = await site.ticket_server()
        await listed()
        assert site.servers[1].table("songs").width is Width.INT
        tickets = await take(server, 4, "songs")
        assert {ticket % 2 for ticket in tickets} == {0, 1}
        assert min(tickets) > 999


@virtual_time
async def test_a_table_that_was_dropped_on_one_database_is_remade_above_its_mark_only() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        before = await take(server, 40, "photos")
        await asyncio.sleep(2.2)
        site.servers[0].drop("photos")
        during = await take(server, 6, "photos")
        await listed()
        after = await take(server, 6, "photos")
        assert not set(before) & set(during + after)
        assert {ticket % 2 for ticket in after} == {0, 1}


@virtual_time
async def test_dropped_everywhere_is_forgotten_when_all_can_be_asked() -> None:
    async with Site(2, ["photos", "songs"]) as site:
        server = await site.ticket_server()
        await take(server, 2, "songs")
        for database in site.servers:
            database.drop("songs")
        await listed()
        assert "songs" not in server.catalog.entries
        assert not [key for key in server.catalog.lanes if key[0] == "songs"]
        with pytest.raises(UnknownSequence):
            await server.desk.take("songs", 1)


@virtual_time
async def test_what_waits_for_a_sequence_that_is_dropped_and_made_again_is_drawn_by_its_new_lanes() -> None:
    async with Site(2, ["photos", "songs"]) as site:
        server = await site.ticket_server()
        await take(server, 2, "songs")
        old = [server.catalog.lanes["songs", offset] for offset in (1, 2)]
        for database in site.servers:
            database.drop("songs")
        await listed()
        assert [lane.state for lane in old] == [LaneState.RETIRED] * 2
        for database in site.servers:
            database.make("songs", Width.BIGINT, 1)
        issued = [lane.issued for lane in old]
        await take(server, 4, "songs")
        new = [server.catalog.lanes["songs", offset] for offset in (1, 2)]
        assert not set(old) & set(new)
        assert [lane.issued for lane in old] == issued
        assert [lane.state for lane in old] == [LaneState.RETIRED] * 2


@virtual_time
async def test_dropped_while_another_is_away_is_made_again_because_that_one_may_have_it() -> None:
    async with Site(2, ["photos", "songs"]) as site:
        server = await site.ticket_server()
        before = await take(server, 20, "songs")
        site.servers[1].down = True
        await asyncio.sleep(2)
        site.servers[0].drop("songs")
        await listed()
        assert "songs" in server.catalog.entries
        site.servers[1].down = False
        await listed()
        after = await take(server, 4, "songs")
        assert {ticket % 2 for ticket in after} == {0, 1}
        assert not set(before) & set(after)


@virtual_time
async def test_a_counter_below_what_was_issued_is_noticed_without_a_draw() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 40, "photos")
        lane = server.lane("photos", 1)
        token = lane.marks.token
        site.servers[0].truncate("photos")
        await listed()
        assert server.metrics.violations["fake1:3306", "order"] == 0
        assert lane.marks.token != token  # suspended, moved up, checked
        assert lane.state is LaneState.OPEN


@virtual_time
async def test_a_column_that_was_widened_is_exhausted_no_more() -> None:
    async with Site(2, []) as site:
        for database in site.servers:
            database.make("small", Width.INT, 1)
            database.use_up("small", 2)
        server = await site.ticket_server()
        with pytest.raises(Exception, match="exhausted"):
            await take(server, 10, "small")
        for database in site.servers:
            database.table("small").width = Width.BIGINT
        await listed()
        assert min(await take(server, 4, "small")) >= 2**32 - 2


@virtual_time
async def test_widths_that_differ_are_warned_of_and_the_narrower_one_counts() -> None:
    async with Site(2, []) as site:
        site.servers[0].make("songs", Width.INT, 1)
        site.servers[1].make("songs", Width.BIGINT, 1)
        server = await site.ticket_server()
        entry = await server.catalog.find("songs")
        assert entry.differs
        assert entry.width is Width.INT
        assert entry.ceiling == 2**32 - 1
        reasons = [warning["reason"] for warning in server.admin.health()["warnings"]]
        assert any("differ" in reason for reason in reasons)
