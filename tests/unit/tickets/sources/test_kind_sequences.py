"""Sequences of other kinds than `ticket`, from the front desk down to the databases."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from app.common.errors import (
    ClockAhead,
    ClockWentBack,
    InvalidRequest,
    NotForThisKind,
    NoTicketDatabase,
    SequenceConflict,
    TicketError,
    TooManyAtOnce,
    Unavailable,
)
from app.kinds.table import KINDS
from tests.fakes.awaited import AwaitedRequest
from tests.fakes.ticket_database import TRUE_TIME
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time

HOUR, DAY, YEAR = 3600.0, 86_400.0, 31_536_000.0
EPOCH = int(TRUE_TIME * 1000) - 1_000_000_000


class Wall:
    """A server's clock. `off`: seconds that it is ahead of the true time."""

    def __init__(self, off: float = 0.0) -> None:
        self.off = off

    def __call__(self) -> float:
        return TRUE_TIME + asyncio.get_running_loop().time() + self.off


def true_ms() -> float:
    return (TRUE_TIME + asyncio.get_running_loop().time()) * 1000


async def made(server: FakeTicketServer, kind: str, **parameters: int) -> None:
    if kind in ("instagram", "snowflake"):
        parameters = {"epoch": EPOCH} | parameters
    assert (await server.admin.make("likes", kind, parameters))[0]


async def take(
    server: FakeTicketServer, count: int = 1, *, key: int | None = None, shard: int | None = None
) -> list[Any]:
    request = AwaitedRequest("likes", count, whole=False)
    if key is not None or shard is not None:
        request.address = key, shard
    server.desk.accept(request)
    return list(await request.future)


def read(server: FakeTicketServer, id_: object) -> dict[str, Any]:
    entry = server.catalog.entries["likes"]
    return entry.kind.decode(entry.parameters, str(id_))


COUNTED = ["instagram", "instagram32"]
IN_MEMORY = [name for name in KINDS if name not in ("ticket", *COUNTED)]


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


# --- clocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["instagram", "snowflake", "flake", "objectid", "uuid7", "ulid", "simpleflake"])
@pytest.mark.parametrize("off", [HOUR, YEAR])
def test_a_server_that_is_ahead_stamps_nothing_and_harms_nobody(kind: str, off: float) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            right, wall = await site.ticket_server(), Wall()
            wrong = await site.ticket_server(wall=wall)
            await made(right, kind)
            await take(right)
            await take(wrong)
            wall.off = off  # between two probes
            for _ in range(3):
                with pytest.raises(ClockAhead):
                    await take(wrong)
                (id_,) = await take(right)
                assert abs(read(right, id_)["time_ms"] - true_ms()) < 1000
                await asyncio.sleep(1.5)
            assert any("ahead" in warning["reason"] for warning in wrong.admin.health()["warnings"])
            wall.off = 0
            await take(wrong)

    scenario()


@pytest.mark.parametrize("off", [-0.3, -5.0, -HOUR, -DAY])
@virtual_time
async def test_instagram_goes_on_where_a_clock_was_set_back(off: float) -> None:
    async with Site(2) as site:
        wall = Wall()
        wrong, right = await site.ticket_server(wall=wall), await site.ticket_server()
        await made(wrong, "instagram")
        seen = await take(wrong, 10)
        wall.off = off
        for _ in range(5):
            seen += await take(wrong, 10)
            seen += await take(right, 10)
            await asyncio.sleep(0.5)
        assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("kind", ["snowflake", "flake", "objectid"])
def test_what_is_counted_in_memory_waits_for_a_clock_that_went_back_a_little(kind: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            wall = Wall()
            server = await site.ticket_server(wall=wall)
            await made(server, kind)
            seen = await take(server, 10)
            wall.off = -1.2
            seen += await take(server, 10)
            wall.off = -DAY
            began = true_ms()
            with pytest.raises(ClockWentBack):
                await take(server)
            assert true_ms() - began < 100
            wall.off = 0
            await asyncio.sleep(2)
            seen += await take(server, 10)
            assert seen == sorted(set(seen))

    scenario()


@virtual_time
async def test_more_than_a_moment_holds_are_stamped_a_little_ahead_and_then_wait() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server, "instagram32")
        answers = await asyncio.gather(*(take(server, 4) for _ in range(60)), return_exceptions=True)
        given = [id_ for ids in answers if isinstance(ids, list) for id_ in ids]
        refused = [error for error in answers if isinstance(error, TicketError)]
        assert len(given) == len(set(given)) >= 64
        assert refused
        assert max(read(server, id_)["time_ms"] for id_ in given) <= true_ms() + 2_000
        await asyncio.sleep(2)
        await take(server)
        with pytest.raises(TooManyAtOnce, match="likes gives 16 ids at once at the most: count is 17"):
            await take(server, 17)


async def given(server: FakeTicketServer, count: int) -> list[Any] | int:
    """That many ids, asked for as a client does that takes a 503 for what it says; or how many there are at most."""
    for _ in range(400):
        try:
            return await take(server, count)
        except TooManyAtOnce as error:
            return int(str(error).split()[2])
        except Unavailable:
            await asyncio.sleep(0.1)
    raise AssertionError(f"{count} ids at once were neither given nor refused for being too many")


@pytest.mark.parametrize("increment", [2, 3, 5, 16, 31, 33, 40, 90])
@pytest.mark.parametrize("kind", COUNTED)
def test_as_many_ids_as_are_named_at_the_most_are_given(kind: str, increment: int) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(3 if increment == 3 else 2, increment=increment) as site:
            server = await site.ticket_server(largest_block=65_535 // increment)
            await made(server, kind)
            most = await given(server, 1_000_000)
            assert isinstance(most, int)
            assert most == max(1, min(65_535 // increment, 33 // increment if kind == "instagram32" else 65_535))
            seen: list[Any] = []
            for count in (*range(1, min(most, 40) + 1), most, most):
                ids = await given(server, count)
                assert isinstance(ids, list), count
                assert len(ids) == count
                seen += ids
            assert len(set(seen)) == len(seen)
            for count in {most + 1, 32, 33, 1_000}:
                answer = await given(server, count)
                assert answer == most if isinstance(answer, int) else len(answer) == count <= most

    scenario()


@pytest.mark.parametrize("reserve_seconds", [0.0, 5.0])
def test_more_tickets_than_a_database_ever_draws_at_once_are_refused(reserve_seconds: float) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2, ["likes"], increment=100) as site:
            server = await site.ticket_server(largest_block=655, reserve_seconds=reserve_seconds)
            assert len(await take(server, 655)) == 655
            for count in (656, 1_000):
                with pytest.raises(
                    TooManyAtOnce, match=f"likes gives 655 tickets at once at the most: count is {count}"
                ):
                    await take(server, count)
            assert len(await take(server, 655)) == 655

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
