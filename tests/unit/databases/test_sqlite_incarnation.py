"""When a file of the embedded pair begins another incarnation, and when it goes on."""

import asyncio
import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from app.common.errors import TicketDatabaseError, TicketDatabaseMisconfigured
from app.databases.protocol import Table
from app.databases.sqlite.database import SQLiteDatabase
from app.databases.sqlite.inspection import SQLiteInspector
from tests.contract.engines.storages import take

ENDINGS = ("", "-wal", "-shm", "-life")

_OTHER_PROCESS = """
import asyncio, sys
from pathlib import Path
from tests.contract.engines.storages import take
from app.databases.sqlite.database import SQLiteDatabase
async def main():
    database = SQLiteDatabase(Path(sys.argv[1]), 1, 2, 5.0)
    print((await database.probe()).incarnation, flush=True)
    sys.stdin.readline()
    await database.close()
asyncio.run(main())
"""


class OtherProcess:
    """Another process that has the file open."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _OTHER_PROCESS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.incarnation = self._process.stdout.readline().strip()

    def end(self) -> None:
        """It closes the database."""
        self._process.communicate("\n", timeout=30)

    def kill(self) -> None:
        """SIGKILL, and wait for the end; one that has ended stays ended."""
        self._process.kill()
        with self._process:
            self._process.wait(timeout=30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "odd.sqlite3"


@pytest.fixture
def other(path: Path) -> Iterator[Callable[[], OtherProcess]]:
    started: list[OtherProcess] = []

    def start() -> OtherProcess:
        started.append(OtherProcess(path))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@contextlib.asynccontextmanager
async def opened(path: Path, offset: int = 1, patience: float = 5.0) -> AsyncIterator[SQLiteDatabase]:
    database = SQLiteDatabase(path, offset, 2, patience)
    try:
        yield database
    finally:
        await database.close()


async def incarnation(path: Path, draws: int = 1) -> str:
    """The incarnation that a server finds which opens the file, draws and closes it."""
    async with opened(path) as database:
        look = await database.probe()
        table = await photos(database)
        for _ in range(draws):
            await take(database, table, 1, 0)
        return look.incarnation


async def photos(database: SQLiteDatabase) -> Table:
    return (await database.tables(["photos"]))["photos"]


def copy(path: Path, to: Path) -> Path:
    to.mkdir()
    for ending in ENDINGS:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(f"{path}{ending}", to)
    return to


# --- it goes on ----------------------------------------------------------------------------------------------------


async def test_a_file_that_was_closed_goes_on(path: Path) -> None:
    first = await incarnation(path)
    assert [await incarnation(path) for _ in range(3)] == [first] * 3


async def test_processes_that_have_it_open_at_the_same_time_agree(
    path: Path, other: Callable[[], OtherProcess]
) -> None:
    async with opened(path) as database:
        first = (await database.probe()).incarnation
        one, two = other(), other()
        assert [one.incarnation, two.incarnation] == [first, first]
    one.end()
    assert other().incarnation == first


async def test_whoever_closes_last_leaves_it_as_it_is(path: Path, other: Callable[[], OtherProcess]) -> None:
    async with opened(path) as database:
        first = (await database.probe()).incarnation
        other().end()
        assert (await database.probe()).incarnation == first
    process = other()
    process.end()
    assert process.incarnation == await incarnation(path) == first


async def test_one_that_is_killed_ends_nothing_while_another_has_it_open(
    path: Path, other: Callable[[], OtherProcess]
) -> None:
    async with opened(path) as database:
        await database.probe()
        process = other()
        process.kill()
        assert (await database.probe()).incarnation == process.incarnation
    assert await incarnation(path) == process.incarnation


async def test_a_check_up_neither_ends_it_nor_stands_in_its_way(path: Path) -> None:
    first = await incarnation(path)
    inspector = SQLiteInspector(path, 1, 2)
    await inspector.inspect()
    assert inspector.inspection.seen
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as reader:
        async with opened(path) as database:
            assert (await database.probe()).incarnation == first
            reader.execute("SELECT * FROM _sequences").fetchall()
    assert await incarnation(path) == first


async def test_one_that_is_refused_ends_nothing(path: Path) -> None:
    first = await incarnation(path)
    async with opened(path, offset=2) as database:
        for _ in range(2):
            with pytest.raises(TicketDatabaseMisconfigured):
                await database.probe()
    assert await incarnation(path) == first


# --- it ends -------------------------------------------------------------------------------------------------------


async def test_a_file_whose_last_process_was_killed_is_in_another_incarnation(
    path: Path, other: Callable[[], OtherProcess]
) -> None:
    incarnations = [await incarnation(path)]
    for _ in range(2):
        process = other()
        assert process.incarnation == incarnations[-1]
        process.kill()
        incarnations.append(await incarnation(path))
    assert len({*incarnations}) == 3


def overwrite(path: Path, saved: Path) -> None:
    shutil.copyfile(saved / path.name, path)


def overwrite_with_its_record(path: Path, saved: Path) -> None:
    for each in saved.iterdir():
        shutil.copyfile(each, path.parent / each.name)


def overwrite_with_its_record_and_times(path: Path, saved: Path) -> None:
    for each in saved.iterdir():
        shutil.copyfile(each, path.parent / each.name)
        shutil.copystat(each, path.parent / each.name)


def lose_the_record(path: Path, _: Path) -> None:
    Path(f"{path}-life").unlink()


def empty_the_record(path: Path, _: Path) -> None:
    Path(f"{path}-life").write_bytes(b"")


def tear_the_record(path: Path, _: Path) -> None:
    record = Path(f"{path}-life")
    record.write_bytes(record.read_bytes()[:200].ljust(512, b"\0"))


def another_file_with_the_same_content(path: Path, saved: Path) -> None:
    shutil.copy2(path, saved / "same")
    os.replace(saved / "same", path)


def a_log_from_somewhere_else(path: Path, saved: Path) -> None:
    shutil.copyfile(saved / path.name, f"{path}-wal")


def draw_by_hand(path: Path, _: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE _sequences SET last = 1")
        connection.commit()


@pytest.mark.parametrize(
    "harm",
    [
        overwrite,
        overwrite_with_its_record,
        overwrite_with_its_record_and_times,
        lose_the_record,
        empty_the_record,
        tear_the_record,
        another_file_with_the_same_content,
        a_log_from_somewhere_else,
        draw_by_hand,
    ],
)
async def test_what_was_done_to_a_closed_file_is_seen(
    harm: Callable[[Path, Path], None], path: Path, tmp_path: Path
) -> None:
    await incarnation(path)
    saved = copy(path, tmp_path / "saved")
    before = await incarnation(path)
    harm(path, saved)
    after = await incarnation(path)
    assert after != before
    assert await incarnation(path) == after


def put_back(path: Path, saved: Path) -> None:
    """As an operator does: the old one is gone before the new one is there, which may get its inode."""
    for ending in ("", "-wal", "-shm"):
        Path(f"{path}{ending}").unlink()
    shutil.copy2(saved / path.name, path)


def lose_the_log(path: Path, _: Path) -> None:
    Path(f"{path}-wal").unlink()
    Path(f"{path}-shm").unlink()


async def test_another_file_under_processes_that_have_it_open(path: Path, tmp_path: Path) -> None:
    """A third one opens it before the others have noticed: no incarnation is for both the old file and the new one."""
    await incarnation(path)
    saved = copy(path, tmp_path / "saved")
    async with opened(path) as one, opened(path) as two, opened(path) as third:
        before = {(await each.probe()).incarnation for each in (one, two)}
        put_back(path, saved)
        with pytest.raises(TicketDatabaseError, match="another file"):
            await third.probe()
        later = (await third.probe()).incarnation
        for each in (one, two):
            with pytest.raises(TicketDatabaseError, match="another file"):
                await each.probe()
            assert (await each.probe()).incarnation == later
        assert {later}.isdisjoint(before)


async def test_a_log_that_is_lost_under_a_process_that_has_it_open(
    path: Path, other: Callable[[], OtherProcess]
) -> None:
    """Who opens the file next sees it as it was before; it is told so, and what the other one has is not lost."""
    await incarnation(path)
    async with opened(path) as database:
        before = (await database.probe()).incarnation
        drawn = await take(database, await photos(database), 100, 0)
        lose_the_log(path, path)
        assert other().incarnation == ""
        with pytest.raises(TicketDatabaseError, match="another file"):
            await database.probe()
        assert (await database.probe()).incarnation != before
        assert (await take(database, await photos(database), 1, 0)).first > drawn.last


async def test_nothing_is_drawn_from_another_file_before_it_was_looked_at(path: Path, tmp_path: Path) -> None:
    await incarnation(path)
    saved = copy(path, tmp_path / "saved")
    async with opened(path) as database:
        before = (await database.probe()).incarnation
        table = await photos(database)
        await take(database, table, 5, 0)
        put_back(path, saved)
        drawn = await asyncio.gather(*(take(database, table, 1, 0) for _ in range(3)), return_exceptions=True)
        drawn += [(await asyncio.gather(take(database, table, 1, 0), return_exceptions=True))[0] for _ in range(2)]
        assert [type(each).__name__ for each in drawn] == ["TicketDatabaseUnavailable"] * 5
        assert (await database.probe()).incarnation != before
        await take(database, table, 1, 0)


def overwrite_the_record(path: Path) -> None:
    Path(f"{path}-life").write_bytes(b"nothing that a server writes")


async def test_a_record_that_somebody_else_wrote_over_is_taken_away(path: Path) -> None:
    async with opened(path) as one, opened(path, patience=0.3) as two:
        before = (await one.probe()).incarnation
        overwrite_the_record(path)
        with pytest.raises(TicketDatabaseError):
            await two.probe()
        with pytest.raises(TicketDatabaseError, match="another file"):
            await one.probe()
        assert (await one.probe()).incarnation == (await two.probe()).incarnation != before


async def test_a_record_that_cannot_be_opened_is_the_databases_failure(tmp_path: Path) -> None:
    path, in_the_way = tmp_path / "odd.sqlite3", tmp_path / "odd.sqlite3-life"
    os.mkdir(in_the_way)
    async with opened(path) as database:
        with pytest.raises(TicketDatabaseError, match="cannot be opened"):
            await database.probe()
        os.rmdir(in_the_way)
        await database.probe()


async def test_who_finds_another_record_than_its_own_does_not_say_how_it_leaves_the_file(path: Path) -> None:
    async with opened(path) as database:
        before = (await database.probe()).incarnation
        overwrite_the_record(path)
    assert await incarnation(path) != before
