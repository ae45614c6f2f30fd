"""The embedded pair: its folder, its files, and what becomes of them when the process or the disk fails."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.databases.session import Book, Note, Write
from app.databases.sqlite.folder import Folder, lock_folder
from app.databases.sqlite.session import FIRST_SEQUENCES, SQLiteSession, connect
from app.errors import DatabaseFailed, DatabaseRefused
from tests.engines import bench


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    folder = lock_folder(tmp_path)
    yield folder
    folder.close()


async def opened(folder: Folder, number: int = 0, seconds: float = 5.0) -> SQLiteSession:
    return await connect(folder.addresses[number], bench.ODD, seconds)


async def draw(session: SQLiteSession) -> int:
    return (await bench.draw(session))[0]


def execute(path: Path, script: str) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(script)


async def test_a_folder_is_of_one_process_and_each_locking_is_another_life(tmp_path: Path) -> None:
    births, bodies, path = set[str](), set[str](), tmp_path / "a" / "b"
    for number in range(2):
        folder = lock_folder(path)
        with pytest.raises(DatabaseRefused, match=r"another process uses .*/a/b"):
            lock_folder(path)
        session, other = await opened(folder), await opened(folder)
        look = await session.look("one:8000", Note())
        assert session.facts.births == other.facts.births == look.facts.births
        assert set(await other.sequences(None)) == {name.lower() for name in FIRST_SEQUENCES}
        assert await draw(session) == 1 + 2 * number
        births.add(session.facts.births)
        bodies.add(look.ring.body)
        folder.close()
    assert (len(births), len(bodies)) == (2, 1)
    (tmp_path / "file").touch()
    with pytest.raises(DatabaseRefused, match=f"{tmp_path}/file"):
        lock_folder(tmp_path / "file" / "data")


async def test_a_file_that_is_replaced_during_use_is_refused(tmp_path: Path, folder: Folder) -> None:
    session, path = await opened(folder), tmp_path / "odd.sqlite3"
    path.rename(tmp_path / "old")
    with pytest.raises(DatabaseFailed, match="unable to open"):
        await opened(folder)
    path.touch()
    for call in (opened(folder), session.look("one:8000", Note())):
        with pytest.raises(DatabaseRefused, match="replaced or removed"):
            await call


OLDER = """
CREATE TABLE _sequences (
    name TEXT NOT NULL PRIMARY KEY, bits INTEGER NOT NULL, last INTEGER NOT NULL, created TEXT NOT NULL);
INSERT INTO _sequences VALUES ('photos', 32, 4711, 'birth');
CREATE TABLE _kinds (sequence TEXT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, parameters TEXT NOT NULL);
PRAGMA user_version = 1;
"""


async def test_a_file_of_an_older_release_goes_on_where_it_was_unless_it_has_kinds(
    tmp_path: Path, folder: Folder
) -> None:
    execute(tmp_path / "odd.sqlite3", OLDER)
    execute(tmp_path / "even.sqlite3", OLDER + "INSERT INTO _kinds VALUES ('likes', 'instagram', '{}');")
    session = await opened(folder)
    assert list(await session.sequences(None)) == ["photos"]
    assert await draw(session) == 4713
    for _ in range(2):
        with pytest.raises(DatabaseRefused, match="Upgrade notes"):
            await opened(folder, 1)
    execute(tmp_path / "even.sqlite3", "PRAGMA user_version = 3")
    with pytest.raises(DatabaseRefused, match="later release"):
        await opened(folder, 1)
    (tmp_path / "even.sqlite3").write_bytes(b"x" * 8192)
    with pytest.raises(DatabaseRefused, match="not a database: restore the file"):
        await opened(folder, 1)


async def test_a_locked_file_fails_in_time_and_abort_ends_a_call_at_once(tmp_path: Path, folder: Folder) -> None:
    quick, *patient = [await opened(folder, seconds=seconds) for seconds in (0.2, 60.0, 60.0)]
    with contextlib.closing(sqlite3.connect(tmp_path / "odd.sqlite3", isolation_level=None)) as stranger:
        stranger.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseFailed, match="locked"):
            await draw(quick)
        calls = [asyncio.create_task(draw(session)) for session in patient]
        assert (await asyncio.wait(calls, timeout=0.1))[0] == set()
        for session in patient:
            session.abort()
        async with asyncio.timeout(5):
            ended = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in ended] == [DatabaseFailed] * 2
        stranger.execute("ROLLBACK")
    with pytest.raises(DatabaseFailed, match="closed"):
        await draw(quick)
    assert await draw(await opened(folder)) == 1


async def test_a_full_file_fails_and_keeps_what_was_answered(folder: Folder) -> None:
    session = await opened(folder)
    await session.run(lambda connection: connection.execute("PRAGMA max_page_count = 50"))
    kept = 0

    async def fill() -> None:
        nonlocal kept
        while True:
            await draw(session)
            await session.write([Write(Book.MARKS, str(kept), None, Note(text="x" * 4000))], None)
            kept += 1

    with pytest.raises(DatabaseFailed, match="full"):
        await fill()
    session = await opened(folder)
    assert 0 < kept == len(await session.page(Book.MARKS, "", 1000))
    assert await draw(session) > 2 * kept
