"""Draws that are followed by the question where their id came from: what is sent, what is handed out, how often."""

from app.common.errors import SequenceUnavailable
from app.databases.mysql.draws.draws import DrawQueue
from app.databases.mysql.draws.generated_ids import QUESTION, GeneratedIds
from app.databases.protocol import Draw
from tests.unit.databases.draw_bench import Bench, turns

PLAIN = "REPLACE INTO `photos` (stub) VALUES ('a')"


def asking(seconds: float = 1000.0, pause: float = 0.0, idle: int = 1) -> Bench:
    """A bench whose queue asks behind the first draw of each table, and then once in so many seconds."""
    bench = Bench(idle)
    takes_steps = bench.queue.forms.takes_steps
    position, generated = bench.queue.position, GeneratedIds(seconds, pause)
    bench.queue = DrawQueue(bench.pool, 1, 2, position, bench.retried.append, generated=generated)
    bench.queue.forms.takes_steps = takes_steps
    return bench


async def test_the_first_draw_of_a_table_is_asked_about_and_those_after_it_are_not() -> None:
    bench = asking()
    (connection,) = bench.pool.all
    bench.start()
    assert connection.sent == [f"{PLAIN};{QUESTION}"]
    connection.leave_to_the_driver(7, 7)
    await turns()
    assert bench.answers == [("photos", Draw(7, 2, 1))]
    bench.start()
    assert connection.sent[1:] == [PLAIN]
    connection.answer(9)
    bench.start("songs")
    assert connection.sent[2].endswith(QUESTION)
    await bench.queue.close()


async def test_an_id_that_the_counter_has_not_given_is_not_handed_out_and_the_next_one_is_asked_about() -> None:
    bench = asking()
    (connection,) = bench.pool.all
    for number in (1, 2):
        bench.start()
        assert connection.sent[-1] == f"{PLAIN};{QUESTION}"
        connection.leave_to_the_driver(77, 0)
        await turns()
        assert bench.kinds() == [("photos", SequenceUnavailable)] * number
        assert connection.usable
    assert "has a trigger that sets the ids" in str(bench.answers[0][1])
    await bench.queue.close()


async def test_once_the_time_is_over_it_is_asked_again() -> None:
    bench = asking(seconds=0.0)
    (connection,) = bench.pool.all
    for id_ in (7, 9, 11):
        bench.start()
        assert connection.sent[-1].endswith(QUESTION)
        connection.leave_to_the_driver(id_, id_)
        await turns()
    assert [drawn for _, drawn in bench.answers] == [Draw(7, 2, 1), Draw(9, 2, 1), Draw(11, 2, 1)]
    await bench.queue.close()


async def test_many_tables_share_what_is_asked_in_a_second() -> None:
    ids = GeneratedIds(seconds=1.0, pause=0.1)
    names = [f"s{number}" for number in range(100)]
    for name in names:
        assert ids.are_due(name, 10.0)
        ids.check(name, 10.0, [7], 7)
    asked = 0
    for tick in range(1, 1001):  # ten seconds, in which each table is drawn from ten times
        now = 10.0 + tick / 100
        name = names[tick % 100]
        if ids.are_due(name, now):
            ids.check(name, now, [7], 7)
            asked += 1
    assert 80 <= asked <= 100


async def test_in_a_packet_of_several_each_is_asked_about_by_itself() -> None:
    bench = asking()
    (connection,) = bench.pool.all
    bench.start("busy")
    for name, least in (("a", 0), ("b", 500), ("c", 0)):
        bench.start(name, least=least)
    connection.leave_to_the_driver(1, 1)
    await turns()
    parts = connection.sent[1].split(";")
    assert [place for place, part in enumerate(parts) if part == QUESTION] == [2, 5, 7]
    #                               BEGIN a  ask  b!   b  ask  c  ask COMMIT
    connection.leave_to_the_driver(0, 3, 3, 499, 501, 0, 5, 5, 0)
    await turns()
    (_, a), (_, b), (_, c) = bench.answers[1:]
    assert (a, c) == (Draw(3, 2, 1), Draw(5, 2, 1))
    assert isinstance(b, SequenceUnavailable)
    await bench.queue.close()


async def test_a_block_is_asked_about_by_its_last_id() -> None:
    bench = asking()
    (connection,) = bench.pool.all
    for generated in (1, 0):
        bench.start("photos" if generated else "songs", 500)
        statements = connection.sent[-1].split(";")
        assert statements[-2:] == ["COMMIT", QUESTION]
        ids = [0, 1, 0, 3, 0, 999, 0]
        connection.leave_to_the_driver(*ids, 999 if generated else 1)
        await turns()
    (_, block), (_, refused) = bench.answers
    assert block == Draw(1, 2, 500)
    assert isinstance(refused, SequenceUnavailable)
    await bench.queue.close()
