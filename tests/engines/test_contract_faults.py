"""What every engine's session promises while its server fails: real servers, which the tests kill, freeze and fill."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from app.databases.session import Book, Drawn, Mark, Marked, Note, Session, Want, Write
from app.errors import DatabaseError, DatabaseFailed, SequenceError
from tests.engines.bench import EVEN, ODD, Bench, counter, draw, record, server_bench
from tests.servers import DatabaseServer, engines
from tests.servers_shared import SharedServers

LONG = 60.0
FOREVER = range(1 << 30)


@pytest.fixture(scope="module", params=engines())
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """A server of these tests on each engine in turn."""
    with DatabaseServer(request.param) as server:
        yield server


@pytest.fixture
async def bench(server: DatabaseServer, shared_servers: SharedServers) -> AsyncIterator[Bench]:
    """A new database there, with the sequence `photos`, whatever a test before has left."""
    if not server.running:
        server.start()
    name = shared_servers.new_name()
    server.create_database(name)
    bench = server_bench(server, name)
    await bench.with_photos()
    yield bench
    await bench.close()


async def draw_last(session: Session, count: int = 1) -> int:
    return (await draw(session, "photos", count))[-1]


async def test_a_kill_loses_nothing_that_was_answered_and_an_older_copy_shows(
    bench: Bench, server: DatabaseServer, tmp_path: Path
) -> None:
    session = bench.sessions[0]
    before, ring = session.facts, await record(session, "1.word")
    assert await session.write([Write(Book.MARKS, "photos/1", None, Note(tenure="t"))], None) == [True]
    answered, enough = {"drawn": 0, "marked": 0}, asyncio.Event()

    async def draw_on(session: Session, count: int) -> None:
        for number in FOREVER:
            answered["drawn"] = max(answered["drawn"], await draw_last(session, count))
            if number == 100:
                enough.set()

    async def mark_on(session: Session) -> None:
        for number in FOREVER:
            mark = Mark("photos/1", "t", number, 0, False)
            assert await session.mark([mark], "1.word") == [Marked.DONE]
            answered["marked"] = max(answered["marked"], number)

    for count in (1, 2000):
        calls = [draw_on(await bench.open(residue), count) for residue in (ODD, EVEN)]
        tasks = [asyncio.create_task(call) for call in (*calls, mark_on(await bench.open(None)))]
        async with asyncio.timeout(LONG):
            await enough.wait()
            await asyncio.to_thread(server.kill)
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in ended] == [DatabaseFailed] * 3
        with pytest.raises(DatabaseFailed):
            await bench.open()
        if count == 1:
            server.copy_data(tmp_path / "copy")
        await asyncio.to_thread(server.start)
        session = await bench.open(ODD)
        assert (await counter(session)).position >= answered["drawn"]
        assert (await session.read(Book.MARKS, ["photos/1"]))["photos/1"].high >= answered["marked"]
        assert await draw_last(session) > answered["drawn"]
        enough.clear()
    assert await session.read_ring() == ring
    assert session.facts.births == before.births
    # Redis has no word of its own that outlives a restart
    assert (session.facts.machine == before.machine) == (server.engine != "redis")
    server.kill()
    server.restore_data(tmp_path / "copy")
    await asyncio.sleep(max(0.0, before.started + 4 - time.time()))
    server.start()
    session = await bench.open()
    assert (await counter(session)).position < answered["drawn"]
    assert session.facts.started > before.started + 2
    assert await session.read_ring() == ring


async def test_abort_ends_a_call_to_a_frozen_server_at_once(bench: Bench, server: DatabaseServer) -> None:
    session, other = await bench.open(), await bench.open(None)
    server.freeze()
    try:
        calls = [asyncio.create_task(draw(session)), asyncio.create_task(other.look("one:8000", Note()))]
        opening = asyncio.create_task(bench.open())
        assert (await asyncio.wait([*calls, opening], timeout=0.3))[0] == set()
        began = time.monotonic()
        session.abort()
        other.abort()
        opening.cancel()
        ended = await asyncio.gather(*calls, opening, return_exceptions=True)
        assert [type(each) for each in ended] == [DatabaseFailed, DatabaseFailed, asyncio.CancelledError]
        assert time.monotonic() - began < 8  # their own deadlines are later
    finally:
        server.thaw()
    with pytest.raises(DatabaseFailed):
        await draw(session)
    assert await draw_last(await bench.open()) >= 1


@contextmanager
def small_disk(server: DatabaseServer, spare: int) -> Iterator[None]:
    """Put the data of a stopped server on a file system with so many bytes to spare. Only root may mount it."""
    copy = server.data_dir.with_name("copy")
    server.copy_data(copy)
    size = spare + int(subprocess.check_output(["du", "-sb", copy]).split()[0])
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", server.data_dir], check=True)
    try:
        subprocess.run(["cp", "-a", f"{copy}/.", server.data_dir], check=True)
        yield
    finally:
        server.kill()
        subprocess.run(["umount", server.data_dir], check=True)


async def reopen(bench: Bench, server: DatabaseServer) -> Session:
    """Open a session, on a server that may be ending itself because its disk was full."""
    while True:
        if not server.running:
            server.start()
        with suppress(DatabaseError):
            return await bench.open()


async def test_a_full_disk_is_an_error_and_what_was_answered_stays(bench: Bench, server: DatabaseServer) -> None:
    server.kill()
    with small_disk(server, 64 << 20):
        server.start()
        session, filler, kept = await bench.open(), server.data_dir / "filler", dict[str, Note]()
        with suppress(OSError), filler.open("wb") as file:
            for _ in FOREVER:
                file.write(b"0" * 65_536)

        async def fill() -> None:
            for number in FOREVER:
                await draw(session)
                rows = {f"{number}/{row}": Note(number, text="x" * 4000) for row in range(100)}
                assert all(await session.write([Write(Book.MARKS, name, None, rows[name]) for name in rows], None))
                kept.update(rows)

        async with asyncio.timeout(LONG):
            with pytest.raises(DatabaseError):
                await fill()
            filler.unlink()
            session = await reopen(bench, server)
            assert await draw_last(session) > len(kept) // 100
            assert await session.read(Book.MARKS, list(kept)) == kept


async def test_draws_beside_truncate_and_drop_end_with_an_id_or_an_error(bench: Bench) -> None:
    stopped = asyncio.Event()

    async def draw_on(session: Session) -> int:
        given = 0
        while not stopped.is_set():
            try:
                (drawn,) = await session.draw([Want("photos", 1 + given % 50)])
                assert isinstance(drawn, Drawn | SequenceError)
                given += isinstance(drawn, Drawn)
            except DatabaseFailed:
                session = await bench.open(seconds=1)
        return given

    tasks = [asyncio.create_task(draw_on(await bench.open(seconds=1))) for _ in range(3)]
    async with asyncio.timeout(LONG):
        for what in ("empty", "drop", "add") * 5:
            await asyncio.to_thread(bench.do, what, "photos")
        stopped.set()
        assert all(await asyncio.gather(*tasks))


async def test_a_read_only_database_and_a_refused_login_are_named_and_no_secret_is(
    bench: Bench, server: DatabaseServer
) -> None:
    name = bench.address.database
    if server.engine == "postgresql":
        server.execute("CREATE ROLE clerk LOGIN SUPERUSER")
        server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    elif server.engine == "redis":
        server.execute("ACL SETUSER clerk on nopass ~* +@all")
    else:
        server.execute("CREATE USER clerk@'127.0.0.1'")  # root may write to a read-only server
        server.execute(f"GRANT ALL ON {name}.* TO clerk@'127.0.0.1'")
        server.execute("SET GLOBAL read_only = 1")
    bench.address = replace(bench.address, user="clerk")
    session = await bench.open()
    if server.engine == "redis":
        server.execute("REPLICAOF 127.0.0.1 1")
    with pytest.raises(DatabaseFailed, match="read-only"):
        await draw(session)
    bench.address = replace(bench.address, user="stranger", password="hunter2")
    with pytest.raises(DatabaseError, match=r"refuses|login|password") as raised:
        await bench.open()
    assert "hunter2" not in f"{raised.value} {raised.value!r} {bench.address}"
    server.kill()  # it starts as one that is not read-only
