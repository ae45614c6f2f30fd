"""The connections of a ticket database: shared statements, deadlines, failures. On virtual time."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.databases.engines import open_database, parse_list
from app.databases.session import Book, Drawn, Mark, Marked, Note, Residue, Write
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused, SequenceMissing, SettingsError
from tests.unit.database_bench import TIMEOUT, Bench

pytestmark = pytest.mark.looptime


@pytest.fixture
async def bench(virtual_time: object) -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    await bench.close()


# --- shared statements -----------------------------------------------------------------------------------------------


async def test_draws_that_wait_share_the_next_statement(bench: Bench) -> None:
    life = await bench.look()
    for number in range(600):
        bench.server.add(f"s{number}")
    drawn = await asyncio.gather(*(bench.draw(life, f"s{number}", 3) for number in range(600)))
    assert drawn == [Drawn(1, 3)] * 600
    assert bench.calls["draw"] == 2  # 500 in the first


async def test_a_draw_that_finds_an_idle_connection_is_sent_at_once(bench: Bench) -> None:
    life = await bench.look()
    await bench.draw(life)
    before = asyncio.get_running_loop().time()
    assert await bench.draw(life) == Drawn(3, 1)
    assert asyncio.get_running_loop().time() - before == pytest.approx(0.002)


async def test_an_error_of_one_sequence_reaches_only_its_own_caller(bench: Bench) -> None:
    life = await bench.look()
    names = ("photos", "none")
    drawn, error = await asyncio.gather(*(bench.draw(life, name) for name in names), return_exceptions=True)
    assert drawn == Drawn(1, 1)
    assert isinstance(error, SequenceMissing)
    assert bench.calls["draw"] == 1
    assert bench.database.connections == 2


async def test_marks_of_one_ring_number_share_a_statement_and_each_has_its_result(bench: Bench) -> None:
    life = await bench.look()
    lanes = [Write(Book.MARKS, f"photos/{offset}", None, Note(tenure="t")) for offset in (1, 2)]
    assert await bench.database.write(lanes, "", life) == [True, True]
    bench.server.freeze()  # so that each of the two connections is busy
    reads = [asyncio.create_task(bench.database.read_ring(life)) for _ in range(2)]
    await asyncio.sleep(0.1)
    wanted = (("photos/1", "t", ""), ("photos/2", "other", ""), ("photos/3", "t", ""), ("photos/1", "t", "1.x"))
    marks = [
        asyncio.create_task(bench.database.mark(Mark(name, tenure, 9, 1, True), stamp, life))
        for name, tenure, stamp in wanted
    ]
    await asyncio.sleep(0.1)
    bench.server.thaw()
    assert await asyncio.gather(*marks) == [Marked.DONE, Marked.TENURE, Marked.TENURE, Marked.RING]
    assert bench.calls["mark"] == 2
    await asyncio.gather(*reads)
    rows = await bench.database.read(Book.MARKS, ["photos/1", "photos/3"], life)
    assert rows == {"photos/1": Note(9, 1, "t", True)}


async def test_reads_and_raises_that_share_a_statement_give_each_caller_its_own(bench: Bench) -> None:
    life = await bench.look()
    bench.server.data.notes[Book.FLOORS] |= {"a": Note(1), "b": Note(2)}
    names: tuple[list[str], ...] = (["a"], ["b", "c"], [])
    rows = await asyncio.gather(*(bench.database.read(Book.FLOORS, each, life) for each in names))
    assert rows == [{"a": Note(1)}, {"b": Note(2)}, {}]
    floors = ({"photos": 10}, {"photos": 7, "none": 1})
    high, low = await asyncio.gather(*(bench.database.raise_above(each, life) for each in floors))
    assert high == {"photos": None} == {"photos": low["photos"]}
    assert isinstance(low["none"], SequenceMissing)
    found, none = await asyncio.gather(*(bench.database.sequences([name], life) for name in ("photos", "none")))
    assert none == {}
    counter = found["photos"]
    assert not isinstance(counter, DatabaseError)
    assert counter.position == 10
    assert bench.calls["raise_above"] == 1


# --- deadlines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("connected", [True, False])
async def test_a_call_ends_with_the_timeout_and_its_connection_with_it(bench: Bench, connected: bool) -> None:
    life = await bench.look()
    if connected:
        await bench.draw(life)
    bench.server.freeze()
    before = asyncio.get_running_loop().time()
    with pytest.raises(DatabaseFailed, match=r"did not answer within 0\.5 s"):
        await bench.draw(life)
    assert asyncio.get_running_loop().time() - before == pytest.approx(TIMEOUT)
    assert bench.database.connections == 1
    bench.server.thaw()
    assert (await bench.draw(life)).first in (1, 5)  # the draw that was given up took effect where it had been sent


async def test_a_lost_answer_is_a_failure(bench: Bench) -> None:
    life = await bench.look()
    bench.server.loses = lambda _client, what: what == "draw"
    with pytest.raises(DatabaseFailed, match="did not answer"):
        await bench.draw(life)
    assert bench.server.data.counters["photos"].last == 1


async def test_a_connection_that_was_idle_for_long_is_not_used_again(bench: Bench) -> None:
    life = await bench.look()
    await bench.draw(life)
    before = bench.server.connects
    await asyncio.sleep(20)
    await bench.draw(life)
    assert bench.server.connects == before
    await asyncio.sleep(40)
    await bench.draw(life)
    assert bench.server.connects == before + 1


# --- connections -----------------------------------------------------------------------------------------------------


async def test_where_the_server_has_no_further_connection_the_open_ones_serve(bench: Bench) -> None:
    life = await bench.look()
    await bench.draw(life)
    bench.server.max_connections = 2
    drawn = await asyncio.gather(*(bench.draw(life) for _ in range(5)))
    assert len({each.first for each in drawn}) == 5
    tries = bench.server.connects
    await asyncio.gather(*(bench.draw(life) for _ in range(5)))
    assert bench.server.connects == tries  # the server was asked once, and not again so soon
    assert bench.database.connections == 2


async def test_a_call_that_waits_has_a_new_connection_when_the_only_one_ends(bench: Bench) -> None:
    life = await bench.look()
    await bench.draw(life)
    bench.server.max_connections = 2
    bench.server.loses = lambda _client, what: what == "draw"
    lost = asyncio.create_task(bench.draw(life))
    await asyncio.sleep(0.3)
    bench.server.loses = None
    assert await bench.draw(life) == Drawn(5, 1)
    with pytest.raises(DatabaseFailed, match="did not answer"):
        await lost


async def test_all_waiting_calls_fail_when_no_connection_can_be_opened(bench: Bench) -> None:
    life = await bench.look()
    bench.server.cut("client")
    results = await asyncio.gather(*(bench.draw(life) for _ in range(3)), return_exceptions=True)
    assert [str(result) for result in results] == ["cannot be reached"] * 3
    with pytest.raises(DatabaseFailed):
        await bench.look()
    bench.server.heal("client")
    assert await bench.look() == life
    assert await bench.draw(life) == Drawn(1, 1)


async def test_a_rejected_login_is_raised_as_such(bench: Bench) -> None:
    bench.server.login_rejected = True
    with pytest.raises(DatabaseRefused, match="user and password"):
        await bench.look()


async def test_a_draw_of_another_residue_has_connections_of_its_own(bench: Bench) -> None:
    life = await bench.look()
    drawing = await bench.frozen_draw(life)
    other = asyncio.create_task(bench.draw(life, residue=Residue(3, 4)))
    with pytest.raises(DatabaseFailed, match="another residue"):
        await drawing
    bench.server.thaw()
    assert (await other).first % 4 == 3
    assert bench.database.connections == 2


async def test_nothing_works_and_nothing_is_open_after_close(bench: Bench) -> None:
    life = await bench.look()
    drawing = await bench.frozen_draw(life)
    waiting = asyncio.create_task(bench.database.read_ring(life))
    await asyncio.sleep(0)
    await bench.database.close()
    for call in (drawing, waiting, bench.look(), bench.draw(life), bench.draw(life, residue=Residue(2, 2))):
        with pytest.raises(DatabaseFailed, match="were closed"):
            await call
    assert bench.database.connections == 0
    bench.server.thaw()


def test_no_secret_is_shown() -> None:
    assert "secret" not in repr(Bench().database)


# --- the list of databases -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("between", [" ", ",", ", ", "\n", " , "])
def test_urls_are_separated_by_white_space_or_by_a_comma_before_a_scheme(between: str) -> None:
    urls = between.join(("postgresql://u:own@a/d", "POSTGRES://u@b:7/d"))
    first, second = parse_list(f" {urls}\n", "given")
    assert (first.name, first.password, second.name, second.password) == ("a:5432", "own", "b:7", "given")
    assert repr(open_database(second, 0.5)) == "<database b:7, 0 connections, life not known>"


@pytest.mark.parametrize("text", ["", " ", "mysq://u:secret@a/d", "mysql:secret", "postgresql://u:secret@a/d, b"])
def test_a_list_that_cannot_be_read_is_refused_without_its_secret(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_list(text, None)
    assert "secret" not in str(caught.value)
