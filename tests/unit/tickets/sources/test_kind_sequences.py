"""Sequences of other kinds than `ticket`, from the front desk down to the databases."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from app.common.errors import (
    InvalidRequest,
    NotForThisKind,
    NoTicketDatabase,
    SequenceConflict,
)
from app.kinds.table import KINDS
from tests.fakes.ticket_database import TRUE_TIME
from tests.fakes.ticket_server import Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.sources.stamping import COUNTED, EPOCH, HOUR, IN_MEMORY, Wall, made, read, take, true_ms


@pytest.mark.parametrize("databases", [2, 3])
@pytest.mark.parametrize("kind", [*COUNTED, *IN_MEMORY])
def test_several_servers_never_give_the_same_id(kind: str, databases: int) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(databases) as site:
            servers = [await site.ticket_server(wall=Wall(off)) for off in (-0.2, 0.0, 0.2)]
            await made(servers[0], kind)
            seen: Counter[Any] = Counter()
            for _ in range(10):
                times = 1 if kind == "instagram32" else 5
                answers = await asyncio.gather(*(take(server, 4) for server in servers for _ in range(times)))
                for ids in answers:
                    seen.update(ids)
                    if KINDS[kind].ordered:
                        assert ids == sorted(ids)
                await asyncio.sleep(1)
            assert max(seen.values()) == 1
            for id_ in seen:
                said = read(servers[0], id_)
                if "time_ms" in said:
                    assert abs(said["time_ms"] - true_ms()) < 15_000

    scenario()


@virtual_time
async def test_the_time_in_an_id_is_that_of_its_draw() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server, "instagram")
        for pause in (0, 0.001, 0.01, 1, 60, HOUR):
            await asyncio.sleep(pause)
            before = true_ms()
            (id_,) = await take(server)
            assert before - 1 <= read(server, id_)["time_ms"] <= true_ms()


@virtual_time
async def test_an_id_has_the_shard_that_was_asked_for() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server, "instagram", shards=2000)
        assert read(server, (await take(server))[0])["shard"] == 0
        assert read(server, (await take(server, shard=1999))[0])["shard"] == 1999
        assert [read(server, id_)["shard"] for id_ in await take(server, 3, key=31341)] == [1341] * 3
        for key, shard in ((1, 1), (None, 2000), (None, 8191)):
            with pytest.raises(InvalidRequest):
                await take(server, key=key, shard=shard)


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_a_kind_without_shards_takes_neither_key_nor_shard(kind: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            server = await site.ticket_server()
            await made(server, kind)
            await take(server)
            for address in ({"key": 1}, {"shard": 0}):
                with pytest.raises(InvalidRequest, match="no shards"):
                    await take(server, **address)

    scenario()


@virtual_time
async def test_plain_tickets_take_neither_key_nor_shard() -> None:
    async with Site(2, ["likes"]) as site:
        server = await site.ticket_server()
        with pytest.raises(InvalidRequest, match="no shards"):
            await take(server, key=1)


@pytest.mark.parametrize("kind", [*COUNTED, *IN_MEMORY])
def test_there_are_no_blocks_and_no_bumps_of_it(kind: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            server = await site.ticket_server()
            await made(server, kind)
            with pytest.raises(NotForThisKind):
                await server.desk.take("likes", 10, whole=True)
            with pytest.raises(NotForThisKind):
                await server.admin.bump("likes", 5, force=False)

    scenario()


# --- databases -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_ids_from_memory_go_on_while_no_database_answers(kind: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            server = await site.ticket_server()
            await made(server, kind)
            seen = await take(server, 10)
            for database in site.servers:
                database.down = True
            for _ in range(60):
                await asyncio.sleep(1)
                assert server.admin.ready
                seen += await take(server, 2)
            if kind == "snowflake":
                await asyncio.sleep(65)
                assert not server.admin.ready
                with pytest.raises(NoTicketDatabase):
                    await take(server)
            else:
                await asyncio.sleep(600)
                seen += await take(server, 2)
            for database in site.servers:
                database.down = False
            await asyncio.sleep(3)
            seen += await take(server, 2)
            assert len(set(seen)) == len(seen)

    scenario()


@virtual_time
async def test_a_database_that_comes_back_older_repeats_nothing_and_stays_near_the_time() -> None:
    async with Site(2) as site:
        servers = [await site.ticket_server() for _ in range(2)]
        await made(servers[0], "instagram")
        seen: list[int] = []
        for number in range(6):
            database = site.servers[number % 2]
            copy = database.snapshot()
            for _ in range(20):
                for server in servers:
                    seen += await take(server, 3)
                await asyncio.sleep(0.05)
            database.restore(copy)
            for _ in range(20):
                for server in servers:
                    ids = await take(server, 3)
                    assert all(abs(read(server, id_)["time_ms"] - true_ms()) < 1000 for id_ in ids)
                    seen += ids
                await asyncio.sleep(0.05)
        assert len(set(seen)) == len(seen)


# --- definitions -----------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_definition_never_changes() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server, "instagram", shards=2000)
        same = [("instagram", {}), ("instagram", {"shards": 2000}), (None, {"epoch": EPOCH}), (None, {})]
        for kind, given in same:
            assert not (await server.admin.make("likes", kind, given))[0]
        for kind, given in [("ticket", {}), ("snowflake", {}), ("instagram", {"shards": 1999}), (None, {"epoch": 1})]:
            with pytest.raises(SequenceConflict):
                await server.admin.make("likes", kind, given)
        for kind, given in [("instagram", {"bits": 64}), (None, {"bits": 64}), (None, {"random_bits": 22})]:
            with pytest.raises(InvalidRequest):
                await server.admin.make("likes", kind, given)
        with pytest.raises(SequenceConflict, match="case alone"):
            await server.admin.make("Likes", "uuid4", {})
        with pytest.raises(SequenceConflict):
            await server.admin.make("photos", "uuid4", {})


@virtual_time
async def test_every_server_and_every_database_comes_to_know_it() -> None:
    async with Site(2) as site:
        one = await site.ticket_server()
        site.servers[1].down = True
        await asyncio.sleep(2)
        await made(one, "instagram")
        other = await site.ticket_server()
        await take(other, 5)
        site.servers[1].down = False
        await asyncio.sleep(10)
        assert site.servers[0].state.kinds == site.servers[1].state.kinds
        site.servers[0].down = True
        await asyncio.sleep(2)
        third = await site.ticket_server()
        await take(third, 5)


@virtual_time
async def test_of_two_that_contradict_each_other_the_one_of_the_lowest_offset_is_served() -> None:
    async with Site(2) as site:
        site.servers[0].down = True
        one = await site.ticket_server()
        await made(one, "instagram")
        await site.stop(one)
        site.servers[0].down, site.servers[1].down = False, True
        other = await site.ticket_server()
        await made(other, "uuid4")
        site.servers[1].down = False
        await asyncio.sleep(12)
        assert isinstance((await take(other))[0], str)  # uuid4, of the first database
        (warning,) = [each for each in other.admin.health()["warnings"] if each["sequence"] == "likes"]
        assert warning["database"] == "fake2:3306"
        assert "kind instagram" in warning["reason"]


@virtual_time
async def test_none_is_made_while_a_server_serves_that_does_not_know_the_kind() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        site.servers[1].older_probe = TRUE_TIME + asyncio.get_running_loop().time()
        with pytest.raises(NoTicketDatabase, match="of an older release"):
            await made(server, "uuid4")
        assert "likes" not in server.catalog.entries
        await asyncio.sleep(30)
        await made(server, "uuid4")


@virtual_time
async def test_a_kind_of_a_newer_release_is_not_served() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server, "uuid4")
        for database in site.servers:
            definition = database.state.kinds["likes"]
            object.__setattr__(definition, "kind", "uuid9")
        fresh = await site.ticket_server()
        with pytest.raises(NoTicketDatabase, match="this release cannot make"):
            await take(fresh)
