"""How draws share the connections of a database, and when each is answered; on connections that a test answers."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from app.common.errors import (
    ColumnExhausted,
    SequenceMissing,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseUnavailable,
)
from app.databases.mysql.draws.draws import CONNECTIONS
from app.databases.protocol import Draw
from tests.unit.databases.draw_bench import TIMEOUT, Bench, of_tables, table, turns

# --- one way ---------------------------------------------------------------------------------------------------------


async def test_a_lone_draw_is_sent_and_answered_without_a_task() -> None:
    bench = Bench()
    bench.start()
    (connection,) = bench.pool.all
    assert connection.sent == ["REPLACE INTO `photos` (stub) VALUES ('a')"]
    connection.answer(7)
    assert bench.answers == [("photos", Draw(7, 2, 1))]
    assert len(asyncio.all_tasks()) == 1
    assert bench.pool.idle == [connection]


async def test_those_that_wait_share_a_packet_in_the_order_of_their_names() -> None:
    bench = Bench()
    for name in ("photos", "songs", "albums"):
        bench.start(name)
    (connection,) = bench.pool.all
    connection.answer(7)
    assert connection.sent[1].split(";") == [
        "BEGIN",
        "REPLACE INTO `albums` (stub) VALUES ('a')",
        "REPLACE INTO `songs` (stub) VALUES ('a')",
        "COMMIT",
    ]
    connection.answer(0, 3, 5, 0)
    assert bench.answers == [("photos", Draw(7, 2, 1)), ("albums", Draw(3, 2, 1)), ("songs", Draw(5, 2, 1))]
    await bench.queue.close()


async def test_what_an_answer_starts_finds_the_connection_free() -> None:
    bench = Bench()
    bench.queue.start_draw(table(), 1, 0, lambda _: bench.start("next"))
    (connection,) = bench.pool.all
    connection.answer(7)
    assert "`next`" in connection.sent[1]
    assert len(asyncio.all_tasks()) == 1


# --- with a least ----------------------------------------------------------------------------------------------------


async def test_a_draw_with_a_least_is_a_transaction_of_two_statements() -> None:
    bench = Bench()
    bench.start(least=100)
    (connection,) = bench.pool.all
    assert connection.sent[0].split(";") == [
        "BEGIN",
        "REPLACE INTO `photos` (id, stub) VALUES (99, '!')",
        "REPLACE INTO `photos` (stub) VALUES ('a')",
        "COMMIT",
    ]
    connection.answer(0, 99, 101, 0)
    assert bench.answers == [("photos", Draw(101, 2, 1))]
    assert len(asyncio.all_tasks()) == 1


async def test_each_draw_of_a_packet_gets_the_id_of_its_own_statement() -> None:
    """Of one table those with a least come first: whoever locks the row of the advance last deadlocks."""
    bench = Bench()
    bench.start("busy")
    for name, least in (("b", 0), ("b", 500), ("a", 0), ("c", 1), ("b", 600)):
        bench.start(name, least=least)
    (connection,) = bench.pool.all
    connection.answer(1)
    assert of_tables(connection.sent[1]) == ["BEGIN", "a", "b!", "b", "b!", "b", "b", "c", "COMMIT"]
    connection.answer(0, 3, 499, 501, 599, 601, 603, 5, 0)
    came = [("a", 3), ("b", 501), ("b", 601), ("b", 603), ("c", 5)]
    assert bench.answers[1:] == [(name, Draw(id_, 2, 1)) for name, id_ in came]
    await bench.queue.close()


async def test_so_it_is_where_the_driver_reads_them() -> None:
    bench = Bench()
    bench.start("busy")
    for name, least in (("a", 0), ("b", 500), ("c", 0)):
        bench.start(name, least=least)
    (connection,) = bench.pool.all
    connection.answer(1)
    connection.leave_to_the_driver(0, 3, 499, 501, 5, 0)
    await turns()
    assert bench.answers[1:] == [(name, Draw(id_, 2, 1)) for name, id_ in (("a", 3), ("b", 501), ("c", 5))]
    assert bench.pool.idle == [connection]
    await bench.queue.close()


async def test_whose_advance_fails_has_failed_and_its_transaction_is_ended() -> None:
    bench = Bench(2)
    bench.start("busy")
    bench.start("alone", least=500)
    for name, least in (("a", 0), ("b", 500), ("c", 600)):
        bench.start(name, least=least)
    alone, busy = bench.pool.all
    busy.answer(1)
    assert of_tables(busy.sent[1]) == ["BEGIN", "a", "b!", "b", "c!", "c", "COMMIT"]
    busy.leave_to_the_driver(0, 3, SequenceMissing())
    alone.leave_to_the_driver(0, SequenceMissing())
    await turns()
    assert bench.kinds()[1:] == [("b", SequenceMissing), ("alone", SequenceMissing)]
    assert not busy.usable
    assert not alone.usable
    await bench.queue.close()


async def test_a_least_that_leaves_no_room_is_refused_and_nothing_is_sent() -> None:
    bench = Bench()
    for count, least in ((1, 2**63 + 1), (2, 2**63 - 1), (100, 2**63 - 500)):
        bench.start("photos", count, least)
    await turns()
    assert bench.kinds() == [("photos", ColumnExhausted)] * 3
    assert bench.pool.all[0].sent == []


# --- errors ----------------------------------------------------------------------------------------------------------


async def test_of_a_packet_the_guilty_draw_fails_and_the_others_are_drawn_again() -> None:
    bench = Bench(2)
    for name in ("x", "y"):
        bench.start(name)
    for name in ("a", "b", "c"):
        bench.start(name)
    other, connection = bench.pool.all
    connection.answer(1)
    connection.leave_to_the_driver(0, 3, SequenceMissing())
    await turns()
    assert bench.kinds() == [("x", Draw), ("b", SequenceMissing)]
    assert not connection.usable  # its transaction is open
    other.answer(1)
    assert [part.split("`")[1] for part in other.sent[1].split(";")[1:-1]] == ["a", "c"]
    other.answer(0, 3, 3, 0)
    assert bench.kinds()[2:] == [("y", Draw), ("a", Draw), ("c", Draw)]
    await bench.queue.close()


async def test_a_draw_alone_fails_with_its_error_and_the_connection_stays() -> None:
    bench = Bench()
    bench.start()
    (connection,) = bench.pool.all
    connection.leave_to_the_driver(SequenceMissing())
    await turns()
    assert bench.kinds() == [("photos", SequenceMissing)]
    assert bench.pool.idle == [connection]


async def test_a_deadlock_is_tried_again() -> None:
    bench = Bench()
    bench.start()
    (connection,) = bench.pool.all
    connection.leave_to_the_driver(TicketDatabaseBusy("deadlocked"))
    await turns()
    assert bench.retried == ["deadlocked"]
    connection.answer(9)
    assert bench.answers == [("photos", Draw(9, 2, 1))]
    await bench.queue.close()


async def test_what_the_driver_reads_is_taken_as_it_is() -> None:
    bench = Bench()
    bench.start()
    bench.pool.all[0].leave_to_the_driver(9)
    await turns()
    assert bench.answers == [("photos", Draw(9, 2, 1))]


async def test_an_error_that_nobody_knows_fails_every_draw_of_the_packet_and_drops_the_connection() -> None:
    bench = Bench()
    bench.start()
    (connection,) = bench.pool.all
    connection.receive = broken  # type: ignore[method-assign]
    connection.leave_to_the_driver()
    (task,) = asyncio.all_tasks() - {asyncio.current_task()}
    with pytest.raises(ZeroDivisionError):
        await task
    assert bench.kinds() == [("photos", TicketDatabaseUnavailable)]
    assert not connection.usable


async def broken() -> None:
    raise ZeroDivisionError


async def test_no_connection_fails_all_that_wait_unless_another_one_serves_them() -> None:
    bench = Bench(0)
    bench.pool.error = TicketDatabaseUnavailable("refuses connections")
    bench.start()
    await turns()
    assert bench.kinds() == [("photos", TicketDatabaseUnavailable)]
    bench = Bench(1)
    bench.pool.error = TicketDatabaseUnavailable("refuses connections")
    bench.start("one")
    bench.start("other")
    await turns()
    assert bench.answers == []
    (connection,) = bench.pool.all
    connection.answer(1)
    connection.answer(3)
    assert bench.kinds() == [("one", Draw), ("other", Draw)]
    await bench.queue.close()


async def test_what_the_failure_of_a_connection_starts_has_one_opened_too() -> None:
    bench = Bench(0)
    bench.pool.error = TicketDatabaseUnavailable("refuses connections")
    bench.queue.start_draw(table(), 1, 0, lambda _: bench.start("next"))
    await turns()
    assert bench.kinds() == [("next", TicketDatabaseUnavailable)]


# --- time ------------------------------------------------------------------------------------------------------------


async def test_a_draw_that_waits_too_long_expires_and_no_timer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    call_later = loop.call_later

    def kept(delay: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        timers.append(call_later(delay, callback, *args))
        return timers[-1]

    monkeypatch.setattr(loop, "call_later", kept)
    bench = Bench(CONNECTIONS)
    for number in range(CONNECTIONS):
        bench.start(f"busy{number}")
    bench.start("waits")
    began = time.monotonic()
    await bench.answered.wait()
    assert TIMEOUT <= time.monotonic() - began < TIMEOUT * 3
    assert bench.kinds() == [("waits", TicketDatabaseHung)]
    assert timers
    assert not [timer for timer in timers if not timer.cancelled() and timer.when() > loop.time()]
    bench.pool.all[0].answer(1)
    assert len(bench.pool.all[0].sent) == 1  # nobody waits for it any more
    await bench.queue.close()


async def test_one_that_has_been_sent_after_it_waited_expires_too_and_what_it_draws_is_dropped() -> None:
    bench = Bench(1)
    bench.start("first")
    bench.start("waits")
    await asyncio.sleep(TIMEOUT / 2)
    (connection,) = bench.pool.all
    connection.answer(1)
    assert len(connection.sent) == 2
    bench.answered.clear()
    await bench.answered.wait()
    assert isinstance(bench.answers[1][1], TicketDatabaseError)
    connection.answer(3)
    assert len(bench.answers) == 2
    await bench.queue.close()


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", range(4))
async def test_every_draw_is_answered_when_the_queue_is_closed(after: int) -> None:
    """One that is out, one that the driver reads, a block, one that waits, one that opens; begun or not."""
    bench = Bench(3)
    bench.start("out")
    bench.start("read")
    bench.start("block", 100)
    bench.start("waits")
    bench.pool.all[1].leave_to_the_driver()
    await turns(after)
    await bench.queue.close()
    assert sorted(bench.kinds()) == [(name, TicketDatabaseUnavailable) for name in ("block", "out", "read", "waits")]
    assert not any(connection.usable for connection in bench.pool.all)
    bench.pool.all[2].answer(7)
    bench.pool.all[2].leave_to_the_driver(7)
    await turns()
    assert len(bench.answers) == 4
    assert len(asyncio.all_tasks()) == 1


async def test_a_closed_queue_answers_too() -> None:
    bench = Bench(0)
    bench.start("opens")
    await bench.queue.close()
    bench.start("late")
    await turns()
    assert bench.kinds() == [("opens", TicketDatabaseUnavailable), ("late", TicketDatabaseUnavailable)]
