"""The lives of a ticket database, cancelled callers, and faults at random. On virtual time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from random import Random

import pytest

from app.databases.session import Drawn, Mark
from app.errors import DatabaseError, DatabaseFailed, OtherLife
from tests.unit.database_bench import BEAT, TIMEOUT, Bench

pytestmark = pytest.mark.looptime


@pytest.fixture
async def bench(virtual_time: object) -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    await bench.close()


# --- lives -----------------------------------------------------------------------------------------------------------


async def test_two_servers_name_one_life_by_the_same_word_and_each_finds_the_next(bench: Bench) -> None:
    other = bench.another()
    first = await bench.look()
    assert (await other.look("other", BEAT))[1] == first
    bench.server.restart()
    with pytest.raises(DatabaseFailed):
        await bench.look()
    second = await bench.look()
    assert second != first
    with pytest.raises(DatabaseFailed):
        await other.look("other", BEAT)
    look, life = await other.look("other", BEAT)
    assert life == second
    assert look.heartbeats.keys() == {"me", "other"}
    await other.close()


async def test_a_call_for_an_earlier_life_is_refused_unsent(bench: Bench) -> None:
    first = await bench.look()
    bench.server.read_back(bench.server.snapshot())
    second = await bench.look()
    calls = bench.calls.total()
    for call in (bench.draw(first), bench.database.mark(Mark("a", "t", 1, 1, True), "", first)):
        with pytest.raises(OtherLife):
            await call
    assert bench.calls.total() == calls
    assert await bench.draw(second) == Drawn(1, 1)


async def test_a_connection_that_finds_another_life_serves_no_call_for_the_life_before(bench: Bench) -> None:
    first = await bench.look()
    bench.server.read_back(bench.server.snapshot())
    with pytest.raises(OtherLife):
        await bench.draw(first)
    assert bench.server.data.counters["photos"].last == 0


async def test_a_look_that_finds_another_life_ends_the_draws_that_are_under_way(bench: Bench) -> None:
    first = await bench.look()
    await bench.draw(first)
    bench.server.loses = lambda _client, what: what == "draw"
    drawing = asyncio.create_task(bench.draw(first))
    await asyncio.sleep(0.01)
    bench.server.read_back(bench.server.snapshot())
    second = await bench.look()
    with pytest.raises(OtherLife):
        await drawing
    bench.server.loses = None
    assert (await bench.draw(second)).first == 5


async def test_an_answer_counts_no_more_once_its_connection_was_ended(bench: Bench) -> None:
    life = await bench.look()
    await bench.draw(life)
    drawing = asyncio.create_task(bench.draw(life))
    await asyncio.sleep(0.0015)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.fakes.session.FakeSession.abort", lambda _session: None)  # it came too late for that
        bench.database._found("another")  # as a look does
        with pytest.raises(OtherLife):
            await drawing
    bench.server.open.clear()


# --- cancellation ----------------------------------------------------------------------------------------------------


async def test_a_statement_whose_caller_is_cancelled_is_aborted(bench: Bench) -> None:
    life = await bench.look()
    drawing = await bench.frozen_draw(life)
    drawing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await drawing
    assert bench.database.connections == 1
    bench.server.thaw()
    assert (await bench.draw(life)).first == 5


async def test_a_shared_statement_ends_when_all_its_callers_are_cancelled(bench: Bench) -> None:
    life = await bench.look()
    bench.server.loses = lambda _client, what: what == "draw"
    drawing = [asyncio.create_task(bench.draw(life)) for _ in range(3)]
    await asyncio.sleep(0.1)
    assert bench.database.connections == 2
    for task in drawing:
        task.cancel()
    await asyncio.gather(*drawing, return_exceptions=True)
    await asyncio.sleep(0.01)
    assert bench.database.connections == 1


async def test_a_caller_that_is_cancelled_as_it_gets_a_connection_hands_it_on(bench: Bench) -> None:
    async def look_and_cancel_the_next() -> None:
        await bench.look()
        following.cancel()

    looking = asyncio.create_task(look_and_cancel_the_next())
    following = asyncio.create_task(bench.look())
    await asyncio.wait([looking, following])
    assert following.cancelled()
    await bench.look()
    assert bench.server.connects == 1


async def test_a_caller_that_is_cancelled_before_the_statement_is_sent_uses_up_nothing(bench: Bench) -> None:
    life = await bench.look()
    drawing = [asyncio.create_task(bench.draw(life)) for _ in range(3)]
    await asyncio.sleep(0)
    drawing[0].cancel()
    assert (await asyncio.gather(*drawing, return_exceptions=True))[1:] == [Drawn(1, 1), Drawn(3, 1)]


async def test_a_cancelled_caller_leaves_a_shared_statement_to_the_other_callers(bench: Bench) -> None:
    life = await bench.look()
    drawing = [asyncio.create_task(bench.draw(life)) for _ in range(3)]
    await asyncio.sleep(0.0065)  # the connection is open, and the draw on its way
    assert (bench.calls["draw"], bench.calls["draw answer"]) == (1, 0)
    drawing[0].cancel()
    results = await asyncio.gather(*drawing, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == [Drawn(3, 1), Drawn(5, 1)]
    assert bench.calls["draw"] == 1


# --- faults at random ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
async def test_under_random_faults_calls_end_in_time_and_no_id_comes_twice(bench: Bench, seed: int) -> None:
    random, loop, ids = Random(seed), asyncio.get_running_loop(), Counter[int]()
    life = await bench.look()
    bench.server.max_connections = 5

    async def client() -> None:
        nonlocal life
        for _ in range(30):
            before = loop.time()
            call = asyncio.create_task(bench.draw(life) if random.random() < 0.7 else bench.look())
            await asyncio.wait([call], timeout=random.choice((0.003, 5.0)))
            call.cancel()
            (result,) = await asyncio.gather(call, return_exceptions=True)
            assert loop.time() - before <= TIMEOUT + 0.01
            if isinstance(result, Drawn):
                ids[result.first] += 1
            elif isinstance(result, str):
                life = result
            else:
                assert isinstance(result, DatabaseError | asyncio.CancelledError)
            await asyncio.sleep(random.random() * 0.02)

    async def trouble() -> None:
        server = bench.server
        harm = (
            server.restart,
            server.freeze,
            server.hold_answers,
            server.end_connections,
            lambda: server.cut("client"),
        )
        while True:
            await asyncio.sleep(random.random() * 0.2)
            random.choice(harm)()
            await asyncio.sleep(random.random() * random.choice((0.05, 0.8)))
            server.thaw()
            server.hold_answers(False)
            server.heal("client")

    harming = asyncio.create_task(trouble())
    await asyncio.gather(*(client() for _ in range(12)))
    harming.cancel()
    await asyncio.wait([harming])
    bench.server.thaw()
    bench.server.hold_answers(False)
    bench.server.heal("client")
    assert ids
    assert max(ids.values()) == 1
    assert bench.database.connections <= 5
    await asyncio.sleep(60)
    life = await bench.look()
    assert (await bench.draw(life)).first not in ids
