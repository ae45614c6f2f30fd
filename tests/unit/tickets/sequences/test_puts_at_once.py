"""Servers that are asked to make a sequence at the same moment: one definition holds everywhere, one gets 201."""

import asyncio
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from app.common.errors import SequenceConflict, TicketError
from app.common.sequences import Width
from app.kinds.definition import Definition
from app.tickets.sequences.definitions import ABANDONED_SECONDS
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time

ROUNDS = 20
EPOCH = 1_600_000_000_000


async def put(server: FakeTicketServer, name: str, kind: str | None = None, **given: int) -> int | str:
    """The status that the client gets."""
    try:
        made, _ = await server.admin.make(name, kind, given)
    except SequenceConflict:
        return 409
    except TicketError as error:
        return str(error)
    return 201 if made else 200


def definitions(site: Site, name: str) -> list[Definition | None]:
    return [database.state.kinds.get(name.lower()) for database in site.servers]


def reasons(server: FakeTicketServer, name: str) -> list[tuple[str, str]]:
    found = server.admin.health()["warnings"]
    return [(each["database"], each["reason"]) for each in found if each["sequence"] == name]


async def at_once(site: Site, *asked: tuple[FakeTicketServer, str, str | None, Mapping[str, int]]) -> list[int | str]:
    answers = await asyncio.gather(*(put(server, name, kind, **given) for server, name, kind, given in asked))
    for definition in zip(*(definitions(site, name) for _, name, *_ in asked), strict=True):
        assert len({repr(each) for each in definition}) == 1, definition
    return answers


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (("instagram32", {}), ("instagram32", {}), {200}),
        (("ticket", {}), ("instagram", {"epoch": EPOCH}), {409}),
        ((None, {"start": 5}), (None, {"start": 1_000_000}), {200}),
        ((None, {"bits": 53}), (None, {"bits": 64}), {409}),
        ((None, {"bits": 53}), (None, {"bits": 53}), {200}),
        (("uuid4", {}), ("ulid", {}), {409}),
        ((None, {}), ("snowflake", {}), {200, 409}),
    ],
)
@pytest.mark.parametrize("databases", [2, 3])
def test_one_of_two_wins_everywhere(
    one: tuple[str | None, dict[str, int]], other: tuple[str | None, dict[str, int]], expected: set[int], databases: int
) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(databases) as site:
            servers = [await site.ticket_server() for _ in range(2)]
            won = []
            for number in range(ROUNDS):
                name = f"s{number}"
                answers = await at_once(site, (servers[0], name, *one), (servers[1], name, *other))
                assert answers.count(201) == 1, answers
                assert set(answers) - {201} <= expected, answers
                won.append(answers.index(201))
                entries = [server.catalog.entries[name] for server in servers]
                assert entries[0].kind is entries[1].kind
                assert entries[0].parameters == entries[1].parameters
                winner = (one, other)[won[-1]][1]
                for database in site.servers:
                    table = database.state.tables.get(name)
                    assert (table is not None) == (entries[0].kind.name == "ticket")
                    if table is not None:
                        assert table.width == winner.get("bits", 64)
                        assert table.counter >= winner.get("start", 1)
                for server in servers:
                    assert (
                        min(await server.desk.take(name), default=0)
                        >= (winner.get("start", 1) if entries[0].kind.name == "ticket" else 0)
                        if entries[0].kind.ordered and entries[0].kind.bits <= 64
                        else True
                    )
                    assert reasons(server, name) == []
            if 409 not in expected:  # else one of them may have more to ask before it claims the name
                assert set(won) == {0, 1}

    scenario()


@virtual_time
async def test_of_names_that_differ_by_case_alone_one_is_made() -> None:
    async with Site(2) as site:
        servers = [await site.ticket_server() for _ in range(2)]
        for number in range(ROUNDS):
            asked: list[tuple[FakeTicketServer, str, str | None, Mapping[str, int]]] = [
                (servers[0], f"song{number}", None, {}),
                (servers[1], f"Song{number}", None, {}),
            ]
            assert sorted(await at_once(site, *asked), key=str) == [201, 409]
            for database in site.servers:
                assert sum(name.lower() == f"song{number}" for name in database.state.tables) == 1


@virtual_time
async def test_of_many_one_wins_for_each_name() -> None:
    async with Site(3) as site:
        servers = [await site.ticket_server(longest=0.02) for _ in range(4)]
        for number in range(10):
            asked: list[tuple[FakeTicketServer, str, str | None, Mapping[str, int]]] = [
                (servers[0], f"s{number}", None, {"start": 7}),
                (servers[1], f"s{number}", "uuid4", {}),
                (servers[2], f"s{number}", None, {"bits": 32}),
                (servers[3], f"s{number}", "instagram", {"epoch": EPOCH}),
                (servers[0], f"s{number}", "ulid", {}),
            ]
            answers = await at_once(site, *asked)
            assert answers.count(201) == 1, answers
            assert set(answers) <= {200, 201, 409}, answers


async def cut(server: FakeTicketServer, reached: Iterable[int]) -> None:
    """Have a server reach these databases alone."""
    for offset, database in enumerate(server.databases, 1):
        database.cut = offset not in reached  # type: ignore[attr-defined]


REACHES = [(1,), (2,), (3,), (1, 2), (1, 3), (2, 3), (1, 2, 3)]
IN_COMMON = [pair for pair in itertools.combinations_with_replacement(REACHES, 2) if set(pair[0]) & set(pair[1])]


@pytest.mark.parametrize(("first", "second"), IN_COMMON, ids=str)
def test_servers_that_reach_one_database_in_common_agree(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(3) as site:
            servers = [await site.ticket_server() for _ in range(2)]
            for server, reached in zip(servers, (first, second), strict=True):
                await cut(server, reached)
            await asyncio.sleep(4)
            for number in range(8):
                answers = await asyncio.gather(
                    put(servers[0], f"s{number}", "ticket", start=5), put(servers[1], f"s{number}", "uuid4")
                )
                assert sorted(answers, key=str) == [201, 409], answers
                kinds = {server.catalog.entries[f"s{number}"].kind.name for server in servers}
                assert kinds == {"ticket" if answers[0] == 201 else "uuid4"}
            for server in servers:
                await cut(server, (1, 2, 3))
            await asyncio.sleep(12)
            for number in range(8):
                assert len({repr(each) for each in definitions(site, f"s{number}")}) == 1
                for server in servers:
                    assert reasons(server, f"s{number}") == []

    scenario()


@pytest.mark.parametrize("kinds", [("uuid4", None), (None, "uuid4"), ("uuid4", "ulid")], ids=str)
def test_two_that_reached_none_in_common_both_win_and_the_lowest_offset_stands(
    kinds: tuple[str | None, str | None],
) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            servers = [await site.ticket_server() for _ in range(2)]
            for offset, server in enumerate(servers, 1):
                await cut(server, [offset])
            await asyncio.sleep(4)
            for server, kind in zip(servers, kinds, strict=True):
                assert await put(server, "likes", kind) == 201
            for server in servers:
                await cut(server, [1, 2])
            await asyncio.sleep(15)
            standing = kinds[0] or "ticket"
            servers.append(await site.ticket_server())
            for server in servers:
                assert server.catalog.entries["likes"].kind.name == standing
                assert await server.desk.take("likes")
                assert site.servers[1].name in {database for database, _ in reasons(server, "likes")}
            definition = site.servers[1].state.kinds["likes"]
            assert definition.kind == (kinds[1] or "ticket")
            del site.servers[1].state.kinds["likes"]  # as /healthz says
            site.servers[1].drop("likes") if standing != "ticket" else None
            await asyncio.sleep(12)
            assert [each.kind for each in definitions(site, "likes") if each] == [standing, standing]
            assert reasons(servers[0], "likes") == []

    scenario()


@virtual_time
async def test_a_server_that_ends_at_any_moment_leaves_a_name_that_another_one_completes() -> None:
    async with Site(2) as site:
        servers = [await site.ticket_server() for _ in range(2)]
        seen = set()
        for step in range(150):
            name = f"s{step}"
            asking = asyncio.create_task(put(servers[0], name, None, bits=32, start=7))
            await asyncio.sleep(0.001 * step)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            answer = await put(servers[1], name, None, bits=64, start=9)
            seen.add(answer)
            assert answer in (201, 409)
            for database in site.servers:
                table = database.state.tables[name]
                assert (table.width, table.counter) == ((64, 9) if answer == 201 else (32, 7))
        assert seen == {201, 409}


@virtual_time
async def test_the_start_holds_on_a_database_that_was_away_whichever_server_makes_it_there() -> None:
    async with Site(2) as site:
        one = await site.ticket_server()
        site.servers[1].down = True
        await asyncio.sleep(3)
        assert await put(one, "songs", None, start=1_000_000) == 201
        await site.stop(one)
        site.servers[0].table("songs").counter = 1  # nobody knows it from the table
        site.servers[1].down = False
        await site.ticket_server()
        await asyncio.sleep(12)
        assert site.servers[1].table("songs").counter >= 1_000_000


@virtual_time
async def test_a_sequence_that_was_dropped_may_be_made_as_another() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        assert await put(server, "songs", None, bits=32) == 201
        await asyncio.sleep(6)
        for database in site.servers:
            database.drop("songs")
        await asyncio.sleep(ABANDONED_SECONDS + 20)
        assert definitions(site, "songs") == [None, None]
        assert await put(server, "songs", "uuid4") == 201


@virtual_time
async def test_a_table_that_an_older_server_makes_of_a_kinds_name_does_not_end_the_kind() -> None:
    async with Site(2) as site:
        servers = [await site.ticket_server() for _ in range(2)]
        assert await put(servers[0], "likes", "uuid4") == 201
        await asyncio.sleep(6)
        for database in site.servers:
            database.make("likes", Width.BIGINT, 1)
        await asyncio.sleep(12)
        servers.append(await site.ticket_server())
        for server in servers:
            assert len(str((await server.desk.take("likes"))[0])) == 36
            found = reasons(server, "likes")
            assert sorted(database for database, _ in found) == ["fake1:3306", "fake2:3306"]
            assert all("older release" in reason for _, reason in found)
        for database in site.servers:
            database.drop("likes")
        await asyncio.sleep(12)
        assert [reasons(server, "likes") for server in servers] == [[], [], []]


@virtual_time
async def test_a_table_of_years_ago_goes_on_where_a_database_after_it_has_a_definition() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        site.servers[1].state.kinds["photos"] = Definition("photos", "uuid4", {})
        servers = [server, await site.ticket_server()]
        await asyncio.sleep(12)
        for each in servers:
            assert isinstance((await each.desk.take("photos"))[0], int)
        assert site.servers[0].state.kinds == {}


@virtual_time
async def test_a_busy_database_is_asked_again_and_is_not_passed_over() -> None:
    async with Site(2) as site:
        servers = [await site.ticket_server() for _ in range(2)]
        for number in range(5):
            site.servers[0].deadlocks = 3
            answers: list[Any] = await at_once(
                site, (servers[0], f"s{number}", "uuid4", {}), (servers[1], f"s{number}", "ulid", {})
            )
            assert sorted(answers) == [201, 409]


@virtual_time
async def test_a_listing_that_has_not_seen_the_claim_does_not_end_the_making() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        first, last = server.ring.members
        define = last.database.define

        async def nothing() -> dict[str, Definition]:
            return {}

        async def beside_a_listing(definition: Definition, old: Definition | None = None) -> Definition:
            kept = await define(definition, old)
            first.database.definitions = nothing  # type: ignore[method-assign]
            await server.catalog.definitions.read(first)
            return kept

        last.database.define = beside_a_listing  # type: ignore[method-assign]
        assert await put(server, "likes", "uuid4") == 201
        assert await put(server, "songs") == 201


@pytest.mark.parametrize("kind", ["instagram", None])
def test_a_put_is_answered_whatever_the_server_reads_or_forgets_of_definitions_meanwhile(kind: str | None) -> None:
    """Another ring makes the server forget what it has read, and a database may be read in the middle of a PUT."""

    @virtual_time
    async def scenario() -> None:
        async with Site() as site:
            server = await site.ticket_server()
            for milliseconds in range(140):  # the look-up of a new name takes 100 of them
                for disturb in (server.catalog.definitions.forget, server.catalog.forget):
                    name = f"s{milliseconds}_{disturb.__qualname__.partition('.')[0]}"
                    asked = asyncio.create_task(put(server, name, kind))
                    await asyncio.sleep(milliseconds / 1000)
                    disturb()
                    assert await asked in (200, 201, "no ticket database could make the sequence")  # or 503: ask again
                    assert await put(server, name, kind) in (200, 201)

    scenario()
