"""A ticket database: shared statements, deadlines, connections, cancelled callers, and lives. On virtual time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from random import Random

import pytest

from app.databases.address import Address
from app.databases.database import Database
from app.databases.life import find_life
from app.databases.session import Book, Drawn, Mark, Marked, Note, Residue, Want, Write
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused, NoAnswer, OtherLife, SequenceMissing
from tests.fakes.server import FakeServer
from tests.fakes.session import fake_connect

pytestmark = pytest.mark.looptime
TIMEOUT = 0.5
ADDRESS = Address("db", 3306, "u", "d", "secret")


class Bench:
    """A fake server, a database on it, and the number of each of its calls. A way takes a millisecond.

    life: that draws are meant for; the one that was found at first.
    """

    life: str

    def __init__(self) -> None:
        self.server = FakeServer()
        self.server.add("photos")
        self.calls: Counter[str] = Counter()
        self.database = Database(ADDRESS, fake_connect(self.server, wait=self._way), TIMEOUT)

    async def _way(self, _client: str, _server: FakeServer, what: str) -> None:
        self.calls[what] += 1
        await asyncio.sleep(0.001)

    async def look(self) -> str:
        return (await self.database.look("me", Note(text="{}")))[1]

    async def draw(self, sequence: str = "photos", count: int = 1, offset: int = 1) -> Drawn:
        return await self.database.draw(Want(sequence, count), Residue(offset, 2), self.life)

    async def lost_draw(self) -> "asyncio.Task[Drawn]":
        """A draw that is under way, and never gets its answer."""
        self.server.loses = lambda _client, what: what == "draw"
        task = asyncio.create_task(self.draw())
        await asyncio.sleep(0.1)
        return task


@pytest.fixture
async def bench(virtual_time: object) -> AsyncIterator[Bench]:
    """At the end nothing may be open, and no session was used again after it had failed."""
    bench = Bench()
    bench.life = await bench.look()
    yield bench
    await bench.database.close()
    assert bench.server.misused == 0
    assert bench.server.open == set()


async def test_draws_that_wait_share_the_next_statement_and_an_error_reaches_only_its_own_caller(bench: Bench) -> None:
    for number in range(600):
        bench.server.add(f"s{number}")
    names = ("none", *(f"s{number}" for number in range(600)))
    error, *drawn = await asyncio.gather(*(bench.draw(name, 3) for name in names), return_exceptions=True)
    assert (type(error), drawn) == (SequenceMissing, [Drawn(1, 3)] * 600)
    assert bench.calls["draw"] == 2  # 500 in the first


async def test_what_shares_a_statement_gives_each_caller_its_own(bench: Bench) -> None:
    life, database = bench.life, bench.database
    writes = [
        Write(Book.MARKS, f"photos/{lane}", old, Note(tenure="t")) for lane, old in ((1, None), (2, Note()), (2, None))
    ]
    assert await asyncio.gather(*(database.write([each], "", life) for each in writes)) == [[True], [False], [True]]
    # the first of several calls has an idle connection, and the others share one
    lanes_marked = (("2", "t", ""), ("1", "t", ""), ("2", "other", ""), ("3", "t", ""), ("1", "t", "1.x"))
    marks = [(Mark(f"photos/{lane}", tenure, 9, 1, True), stamp) for lane, tenure, stamp in lanes_marked]
    found = await asyncio.gather(*(database.mark(mark, stamp, life) for mark, stamp in marks))
    assert found == [Marked.DONE, Marked.DONE, Marked.TENURE, Marked.TENURE, Marked.RING]
    assert bench.calls["mark"] == 3
    names: tuple[list[str], ...] = (["photos/2"], ["photos/1"], ["photos/2", "c"], [])
    rows = await asyncio.gather(*(database.read(Book.MARKS, each, life) for each in names))
    assert [list(each) for each in rows] == [["photos/2"], ["photos/1"], ["photos/2"], []]
    floors = ({"photos": 3}, {"photos": 10}, {"photos": 7, "none": 1})
    *high, low = await asyncio.gather(*(database.raise_above(each, life) for each in floors))
    assert (high, low["photos"], type(low["none"])) == ([{"photos": None}] * 2, None, SequenceMissing)
    assert bench.server.data.counters["photos"].last == 10
    counters = await asyncio.gather(*(database.sequences([name], life) for name in ("x", "photos", "none")))
    assert [list(each) for each in counters] == [[], ["photos"], []]


@pytest.mark.parametrize("connected", [True, False])
async def test_a_call_ends_with_the_timeout_and_its_connection_with_it(bench: Bench, connected: bool) -> None:
    if connected:
        await bench.draw()
    bench.server.freeze()
    before = asyncio.get_running_loop().time()
    with pytest.raises(NoAnswer, match=r"did not answer within 0\.5 s"):
        await bench.draw()
    assert asyncio.get_running_loop().time() - before == pytest.approx(TIMEOUT)
    assert bench.database.connections == 1
    bench.server.thaw()
    assert (await bench.draw()).first in (1, 5)  # the draw that was given up took effect where it had been sent


async def test_a_connection_that_was_idle_for_long_is_not_used_again(bench: Bench) -> None:
    await bench.draw()
    before = bench.server.connects
    for seconds, connects in ((20, 0), (40, 1)):
        await asyncio.sleep(seconds)
        await bench.draw()
        assert bench.server.connects == before + connects


async def test_where_the_server_has_no_further_connection_the_open_ones_serve(bench: Bench) -> None:
    await bench.draw()
    bench.server.max_connections = 2
    await asyncio.gather(*(bench.draw() for _ in range(5)))
    tries = bench.server.connects
    await asyncio.gather(*(bench.draw() for _ in range(5)))
    assert bench.server.connects == tries  # the server was asked once, and not again so soon
    lost = await bench.lost_draw()
    bench.server.loses = None
    assert await bench.draw() == Drawn(25, 1)  # on a new connection, once the only one has ended
    with pytest.raises(NoAnswer):
        await lost


async def test_all_waiting_calls_fail_when_no_connection_can_be_opened(bench: Bench) -> None:
    bench.server.login_rejected = True
    refused = await asyncio.gather(*(bench.draw() for _ in range(3)), return_exceptions=True)
    bench.server.cut("client")
    failed = await asyncio.gather(bench.draw(), bench.draw(), bench.look(), return_exceptions=True)
    assert [*map(type, (*refused, *failed))] == [DatabaseRefused] * 3 + [DatabaseFailed] * 3
    bench.server.heal("client")
    bench.server.login_rejected = False
    assert (await bench.look(), await bench.draw()) == (bench.life, Drawn(1, 1))


async def test_another_residue_or_a_close_ends_the_draws_of_the_one_before(bench: Bench) -> None:
    await bench.draw()
    bench.server.freeze()
    drawing = asyncio.create_task(bench.draw())
    await asyncio.sleep(0.01)
    other = asyncio.create_task(bench.draw(offset=2))
    with pytest.raises(DatabaseFailed, match="another residue"):
        await drawing
    bench.server.thaw()
    assert (await other).first % 2 == 0
    bench.server.end_connections()
    opening = asyncio.gather(*(bench.draw(offset=offset) for offset in (2, 1)), return_exceptions=True)
    assert all(not isinstance(each, Drawn) or each.first % 2 == offset for offset, each in enumerate(await opening))
    bench.server.freeze()
    calls = [asyncio.create_task(call) for call in (bench.draw(), bench.database.read_ring(bench.life))]
    await asyncio.sleep(0)
    await bench.database.close()
    for call in (*calls, bench.look(), bench.draw(), bench.draw(offset=2)):
        with pytest.raises(DatabaseFailed, match="were closed"):
            await call


async def test_a_cancelled_caller_leaves_a_shared_statement_to_the_other_callers(bench: Bench) -> None:
    drawing = [asyncio.create_task(bench.draw()) for _ in range(3)]
    await asyncio.sleep(0.0065)  # the connection is open, and the draw on its way
    assert (bench.calls["draw"], bench.calls["draw answer"]) == (1, 0)
    drawing.pop(0).cancel()
    assert await asyncio.gather(*drawing) == [Drawn(3, 1), Drawn(5, 1)]
    assert bench.calls["draw"] == 1


@pytest.mark.parametrize("seed", range(8))
async def test_under_random_faults_calls_end_in_time_and_no_id_comes_twice(bench: Bench, seed: int) -> None:
    random, loop, ids, server = Random(seed), asyncio.get_running_loop(), Counter[int](), bench.server
    server.max_connections = 5

    async def client() -> None:
        for _ in range(30):
            before = loop.time()
            call = asyncio.create_task(bench.draw() if random.random() < 0.7 else bench.look())
            await asyncio.wait([call], timeout=random.choice((0.003, 5.0)))
            call.cancel()
            (result,) = await asyncio.gather(call, return_exceptions=True)
            assert loop.time() - before <= TIMEOUT + 0.01
            if isinstance(result, Drawn):
                ids[result.first] += 1
            elif isinstance(result, str):
                bench.life = result
            else:
                assert isinstance(result, DatabaseError | asyncio.CancelledError)
            await asyncio.sleep(random.random() * 0.02)

    async def trouble() -> None:
        faults = (server.restart, server.freeze, server.hold_answers, server.end_connections)
        while True:
            await asyncio.sleep(random.random() * 0.2)
            random.choice((*faults, partial(server.cut, "client")))()
            try:
                await asyncio.sleep(random.random() * random.choice((0.05, 0.8)))
            finally:
                server.thaw()
                server.hold_answers(False)
                server.heal("client")

    harming = asyncio.create_task(trouble())
    await asyncio.gather(*(client() for _ in range(12)))
    harming.cancel()
    await asyncio.wait([harming])
    assert max(ids.values()) == 1
    assert bench.database.connections <= 5
    await asyncio.sleep(60)
    bench.life = await bench.look()
    assert (await bench.draw()).first not in ids


async def test_a_connection_serves_no_call_for_another_life(bench: Bench) -> None:
    bench.server.read_back(bench.server.data.copy())
    for call in (bench.draw(), bench.draw(), bench.database.mark(Mark("a", "t", 1, 1, True), "", bench.life)):
        with pytest.raises(OtherLife):  # the first connection finds the next life
            await call
    assert bench.calls["draw"] == bench.calls["mark"] == 0
    bench.life = await bench.look()
    assert await bench.draw() == Drawn(1, 1)


async def test_a_look_that_finds_another_life_ends_the_draws_that_are_under_way(bench: Bench) -> None:
    await bench.draw()
    drawing = [await bench.lost_draw(), await bench.lost_draw(), asyncio.create_task(bench.draw())]
    bench.server.read_back(bench.server.data.copy())
    bench.life = await bench.look()
    assert list(map(type, await asyncio.gather(*drawing, return_exceptions=True))) == [OtherLife] * 3
    bench.server.loses = None
    assert (await bench.draw()).first == 7


async def test_an_answer_counts_no_more_once_its_connection_was_ended(bench: Bench) -> None:
    await bench.draw()
    drawing = asyncio.create_task(bench.draw())
    await asyncio.sleep(0.0015)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.fakes.session.FakeSession.abort", lambda _session: None)  # it came too late for that
        bench.database._found("another")  # as a look does
        with pytest.raises(OtherLife):
            await drawing
    bench.server.open.clear()


async def life_of(server: FakeServer) -> str:
    """The life that a new connection finds."""
    return await find_life(await fake_connect(server)(ADDRESS, None, 1.0))


async def test_all_connections_agree_on_the_word_of_a_life() -> None:
    server = FakeServer(like_mysql=True)  # the start that it tells is a second off, by turns
    lives = {*await asyncio.gather(*(life_of(server) for _ in range(5))), await life_of(server)}
    assert [len(life) for life in lives] == [16]
    row = server.data.notes[Book.LIVES][server.machine]
    server.data.notes[Book.LIVES][server.machine] = row._replace(tenure=None)  # a row without a word is no life
    assert await life_of(server) == server.data.notes[Book.LIVES][server.machine].tenure
    server.data.ring = server.data.ring._replace(text='{"bodies": 1}')
    with pytest.raises(DatabaseRefused, match="ring record is damaged"):
        await life_of(server)


@pytest.mark.parametrize("what", ["restart", "restore", "wipe", "read_back", "move"])
async def test_the_life_changes_with_every_event_that_may_take_the_data_back(what: str) -> None:
    server = FakeServer()
    before, snapshot = await life_of(server), server.data.copy()
    assert await life_of(server.copy()) != before == await life_of(server)
    getattr(server, what)(*([snapshot] if what in ("restore", "read_back") else []))
    assert await life_of(server) not in (before, "")
