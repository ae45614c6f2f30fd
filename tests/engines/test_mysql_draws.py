"""Draws on MySQL and MariaDB: the form of every size, the end of a column, tables of Flickr's schema."""

import asyncio
import itertools

import pytest

from app.databases.session import Drawn, Residue, Session, Want, most_ids
from app.errors import DatabaseRefused, SequenceBusy, SequenceExhausted
from tests.engines.bench import BOTH, EVEN, ODD, Bench, counter, draw, line_of

pytestmark = BOTH

SIZES = [*range(1, 26), 31, 32, 33, 50, 63, 64, 65, 99, 100, 128, 255, 256, 500, 1000, 1001, 4096, 9999, 10_000, 50_000]
FLICKR = (
    "CREATE TABLE Tickets64 (`id` bigint(20) unsigned NOT NULL auto_increment, `stub` char(1) NOT NULL default '', "
    "PRIMARY KEY (`id`), UNIQUE KEY `stub` (`stub`)) ENGINE={}"
)


@pytest.mark.parametrize("residue", [Residue(1, 1), EVEN, Residue(3, 5), Residue(16, 16)])
async def test_a_draw_of_any_size_skips_little_and_both_its_ends_are_on_disk(bench: Bench, residue: Residue) -> None:
    session = await bench.with_photos(residue)
    last, gap = 0, 0
    for size in [size for size in SIZES if size <= most_ids(residue.increment)]:
        wide = residue.increment * (-(-(size - 1) // 7) if size > 8 else 1)
        ids = await draw(session, "photos", size, last=last)
        assert 0 < ids[0] - last <= gap + wide, size
        stubs = "','".join("abcdefgh"[: min(size, 8)])
        ends = bench.run(f"SELECT MIN(id), MAX(id) FROM photos WHERE stub IN ('{stubs}')")
        assert ends == [(ids[0], ids[-1])], size
        last, gap = ids[-1], wide


@pytest.mark.parametrize("residue", [ODD, EVEN])
async def test_near_the_end_of_a_column_single_tickets_go_on_and_none_comes_twice(
    bench: Bench, residue: Residue
) -> None:
    end = (1 << 31) - 1
    columns = "id INT NOT NULL AUTO_INCREMENT, stub CHAR(1) NOT NULL, PRIMARY KEY (stub), KEY (id)"
    bench.run(f"CREATE TABLE photos ({columns}) AUTO_INCREMENT={end - 400}")
    sessions = [await bench.open(residue), await bench.open(residue)]
    last, given = (await counter(sessions[0])).ceiling, list[int]()
    for count, ceiling in ((30, last), (8, last), (1, last), (1, (1 << 63) - 1)):
        refused = 0
        for session in itertools.islice(itertools.cycle(sessions), 500):
            (result,) = await session.draw([Want("photos", count, 0, 0, ceiling)])
            if isinstance(result, Drawn):
                given += range(result.first, result.first + 2 * result.count, 2)
            elif (refused := refused + 1) == 4:
                break
        assert isinstance(result, SequenceExhausted)
    assert given == sorted(set(given))
    assert end - 5 < given[-1] <= end - (not line_of(sessions[0]).mariadb)


async def test_an_id_that_may_be_a_columns_end_is_passed_over_in_a_wider_column(bench: Bench) -> None:
    session = await bench.open(ODD)
    end, passed = (1 << 32) - 1, 0 if line_of(session).mariadb else 2
    await session.make("photos", 64, end - 4)
    await session.sequences(["photos"])  # as a caller does before its first draw
    assert await draw(session, "photos", 1) == [end - 2]
    assert await draw(session, "photos", 1) == [end + passed]
    await session.make("groups", 64, end - 16)
    await session.sequences(["groups"])
    first = end + passed if passed else end - 14
    assert await draw(session, "groups", 8) == list(range(first, first + 16, 2))


async def test_an_id_of_another_residue_is_refused(bench: Bench) -> None:
    session = await bench.with_photos()
    await line_of(session).step("SET SESSION auto_increment_offset = 2")
    with pytest.raises(DatabaseRefused, match="which is not 1 in steps of 2"):
        await session.draw([Want("photos", 1), Want("photos", 1)])


@pytest.mark.parametrize("storage", ["InnoDB", "MyISAM"])
async def test_a_table_of_flickrs_schema_is_served_with_a_warning(bench: Bench, storage: str) -> None:
    bench.run(FLICKR.format(storage))
    session, other = await bench.open(ODD), await bench.open(EVEN)
    births, given = set(), [0]
    for size in (1, 8, 9, 1000, 1, 3):
        given += await draw(session, "Tickets64", size, last=given[-1])
        await draw(other, "Tickets64", size)
        found = await counter(session, "tickets64")
        assert found.position >= given[-1]
        assert len(found.warnings) == 1
        births.add(found.birth)
    assert given == sorted(set(given))
    assert len(births) == 1
    assert await session.raise_above({"Tickets64": 1_000_001}) == {"Tickets64": None}
    assert await draw(session, "Tickets64", 1) == [1_000_003]


async def test_deadlocks_of_flickrs_keys_are_busy_and_no_id_comes_twice(bench: Bench) -> None:
    bench.run(FLICKR.format("InnoDB"))

    async def draw_some(session: Session) -> list[int]:
        given: list[int] = []
        for count in (1, 2, 1, 8, 1, 20) * 8:
            (result,) = await session.draw([Want("Tickets64", count)])
            assert isinstance(result, Drawn | SequenceBusy)
            if isinstance(result, Drawn):
                given += range(result.first, result.first + 2 * result.count, 2)
        return given

    sessions = [await bench.open(ODD) for _ in range(4)]
    given = list(itertools.chain(*await asyncio.gather(*map(draw_some, sessions))))
    assert len(given) == len(set(given)) > 100
