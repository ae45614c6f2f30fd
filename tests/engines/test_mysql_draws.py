"""Draws on MySQL and MariaDB: the form of every size, the end of a column, tables of Flickr's schema."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from app.databases.session import Counter, Drawn, Residue, Session, Want, most_ids
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused, SequenceBusy, SequenceExhausted
from tests.engines.mysql_bench import EVEN, ODD, MySQLBench, mysql_bench
from tests.servers import engines
from tests.servers_shared import FreshDatabase, SharedServers

SIZES = [*range(1, 26), 31, 32, 33, 50, 63, 64, 65, 99, 100, 128, 255, 256, 500, 1000, 1001, 4096, 9999, 10_000, 50_000]
FLICKR = (
    "CREATE TABLE `{name}` (`id` bigint(20) unsigned NOT NULL auto_increment, `stub` char(1) NOT NULL default '', "
    "PRIMARY KEY (`id`), UNIQUE KEY `stub` (`stub`)) ENGINE={engine}"
)


@pytest.fixture(params=engines("mariadb", "mysql"))
async def bench(
    request: pytest.FixtureRequest, fresh_database: FreshDatabase, shared_servers: SharedServers
) -> AsyncIterator[MySQLBench]:
    """An empty database on MySQL and on MariaDB."""
    async with mysql_bench(request.param, fresh_database, shared_servers) as made:
        yield made


def drawn_of(result: Drawn | DatabaseError) -> Drawn:
    assert isinstance(result, Drawn), result
    return result


async def draw(session: Session, name: str, count: int, last: int = 0, above: int = 0) -> range:
    drawn = drawn_of((await session.draw([Want(name, count, above, last)]))[0])
    assert drawn.count >= count
    assert session.residue is not None
    step = session.residue.increment
    return range(drawn.first, drawn.first + step * drawn.count, step)


@pytest.mark.parametrize("residue", [Residue(1, 1), EVEN, Residue(3, 5), Residue(16, 16)])
async def test_a_draw_of_any_size_skips_little_and_both_its_ends_are_on_disk(
    bench: MySQLBench, residue: Residue
) -> None:
    session = await bench.open(residue)
    await session.make("photos", 64, 0)
    rows = "SELECT MIN(id), MAX(id) FROM photos WHERE stub IN ('{}')"
    last, gap = 0, 0
    for size in [size for size in SIZES if size <= most_ids(residue.increment)]:
        wide = residue.increment * (-(-(size - 1) // 7) if size > 8 else 1)
        ids = await draw(session, "photos", size, last)
        assert 0 < ids[0] - last <= gap + wide, size
        stubs = "abcdefgh"[: min(size, 8)]
        ((lowest, highest),) = bench.run(rows.format("','".join(stubs)))
        assert (lowest, highest) == (ids[0], ids[-1]), size
        last, gap = ids[-1], wide


async def test_draws_of_every_size_at_the_same_time_have_no_id_in_common(bench: MySQLBench) -> None:
    sessions = [await bench.open(residue) for residue in (ODD, ODD, EVEN)]
    await sessions[0].make("photos", 64, 0)

    async def draw_all(session: Session, sizes: list[int]) -> list[range]:
        given, last = [], 0
        for size in sizes:
            given.append(await draw(session, "photos", size, last))
            last = given[-1][-1]
        return given

    orders = [SIZES, SIZES[::-1], SIZES[20:] + SIZES[:20]]
    lists = await asyncio.gather(*map(draw_all, sessions, orders))
    for side in (lists[0] + lists[1], lists[2]):
        side.sort(key=lambda ids: ids[0])
        for lower, higher in itertools.pairwise(side):
            assert lower[-1] < higher[0]


@pytest.mark.parametrize("column", ["INT UNSIGNED", "INT"])
@pytest.mark.parametrize("residue", [ODD, EVEN])
async def test_near_the_end_of_a_column_single_tickets_go_on_and_none_comes_twice(
    bench: MySQLBench, column: str, residue: Residue
) -> None:
    end = (1 << (32 if "UN" in column else 31)) - 1
    bench.run(
        f"CREATE TABLE photos (id {column} NOT NULL AUTO_INCREMENT, stub CHAR(1) NOT NULL, PRIMARY KEY (stub), "
        f"KEY (id)) AUTO_INCREMENT={end - 400}"
    )
    sessions = [await bench.open(residue), await bench.open(residue)]
    found = (await sessions[0].sequences(["photos"]))["photos"]
    assert isinstance(found, Counter)
    given: list[int] = []
    for count, ceiling in ((30, found.ceiling), (8, found.ceiling), (1, found.ceiling), (1, (1 << 63) - 1)):
        refused = 0
        for session in itertools.cycle(sessions):
            (result,) = await session.draw([Want("photos", count, 0, 0, ceiling)])
            if isinstance(result, Drawn):
                given += range(result.first, result.first + 2 * result.count, 2)
            else:
                assert isinstance(result, SequenceExhausted)
                refused += 1
                if refused == 4:
                    break
    assert given == sorted(set(given))
    assert end - 5 < given[-1] <= end - (bench.server.engine == "mysql")


async def test_an_id_that_may_be_a_columns_end_is_passed_over_in_a_wider_column(bench: MySQLBench) -> None:
    session = await bench.open(ODD)
    end = (1 << 32) - 1
    passed = 2 * (bench.server.engine == "mysql")
    await session.make("photos", 64, end - 4)
    assert list(await draw(session, "photos", 1)) == [end - 2]
    assert list(await draw(session, "photos", 1)) == [end + passed]
    await session.make("groups", 64, end - 16)
    first = end + passed if passed else end - 14
    assert list(await draw(session, "groups", 8)) == list(range(first, first + 16, 2))


async def test_an_id_of_another_residue_ends_the_session(bench: MySQLBench) -> None:
    session = await bench.open(ODD)
    await session.make("photos", 64, 0)
    await session._line.run(["SET SESSION auto_increment_offset = 2"])
    with pytest.raises(DatabaseRefused, match="which is not 1 in steps of 2"):
        await session.draw([Want("photos", 1), Want("photos", 1)])
    with pytest.raises(DatabaseFailed):
        await session.read_ring()


async def test_a_trigger_that_changes_ids_is_found_out(bench: MySQLBench) -> None:
    session = await bench.open(ODD)
    await session.make("photos", 64, 0)
    await draw(session, "photos", 1)
    bench.run("CREATE TRIGGER t BEFORE INSERT ON photos FOR EACH ROW SET NEW.id = 1000")
    with pytest.raises((DatabaseRefused, DatabaseFailed)):
        await session.draw([Want("photos", 1)])


@pytest.mark.parametrize("storage", ["InnoDB", "MyISAM"])
async def test_a_table_of_flickrs_schema_is_served_with_a_warning(bench: MySQLBench, storage: str) -> None:
    bench.run(FLICKR.format(name="Tickets64", engine=storage))
    session, other = await bench.open(ODD), await bench.open(EVEN)
    births, given = set(), [0]
    for size in (1, 8, 9, 1000, 1, 3):
        given += await draw(session, "Tickets64", size, given[-1])
        await draw(other, "Tickets64", size)
        found = (await session.sequences(["tickets64"]))["tickets64"]
        assert isinstance(found, Counter)
        assert found.position >= given[-1]
        assert len(found.warnings) == 1
        births.add(found.birth)
    assert given == sorted(set(given))
    assert len(births) == 1
    assert await session.raise_above({"Tickets64": 1_000_001}) == {"Tickets64": None}
    assert list(await draw(session, "Tickets64", 1)) == [1_000_003]


async def test_deadlocks_of_flickrs_keys_are_busy_and_no_id_comes_twice(bench: MySQLBench) -> None:
    bench.run(FLICKR.format(name="Tickets64", engine="InnoDB"))
    sessions = [await bench.open(ODD) for _ in range(4)]

    async def draw_some(session: Session) -> list[int]:
        given: list[int] = []
        for count in (1, 2, 1, 8, 1, 20) * 8:
            (result,) = await session.draw([Want("Tickets64", count)])
            if isinstance(result, Drawn):
                given += range(result.first, result.first + 2 * result.count, 2)
            else:
                assert isinstance(result, SequenceBusy)
        return given

    given = list(itertools.chain(*await asyncio.gather(*map(draw_some, sessions))))
    assert len(given) == len(set(given)) > 100
