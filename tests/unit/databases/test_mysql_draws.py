"""How draws share the connections of a database, and when each is answered; on connections that a test answers."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from app.common.errors import (
    ColumnExhausted,
    SequenceMissing,
    SequenceWentBack,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseUnavailable,
)
from app.common.sequences import Width
from app.databases.mysql import sequence_sql
from app.databases.mysql.connection import MySQLConnection
from app.databases.mysql.draws import ALONE, CONNECTIONS, DrawQueue
from app.databases.mysql.pool import MySQLPool
from app.databases.protocol import Draw, Drawn, Table
from tests.unit.databases.mysql_driver import URL

TIMEOUT = 0.4


def table(sequence: str = "photos") -> Table:
    return Table(sequence, Width.BIGINT, 2**63, 64, "t1", repeats_ceiling=False)


class Connection:
    """Keeps what is sent on it until the test answers."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.usable = True
        self.insert_id = 0
        self.results: list[int | TicketDatabaseError] = []
        self._done: Callable[[Sequence[int] | None], None] = lambda _: None

    def draw(self, statements: str, _: int, __: float, done: Callable[[Sequence[int] | None], None]) -> None:
        self.sent.append(statements)
        self._done = done

    def answer(self, *ids: int) -> None:
        """What the wire hands on."""
        self._done(ids)

    def leave_to_the_driver(self, *results: int | TicketDatabaseError) -> None:
        """What the wire does not hand on; no results: nothing ever comes."""
        self.results = list(results)
        self._done(None)

    async def next(self) -> None:
        if not self.results:
            await asyncio.Event().wait()
        result = self.results.pop(0)
        if isinstance(result, TicketDatabaseError):
            raise result
        self.insert_id = result

    receive = next

    def drop(self) -> None:
        self.usable = False


class Pool(MySQLPool):
    """Has these idle connections; of further ones it gives what a test puts there."""

    def __init__(self, idle: int = 1) -> None:
        super().__init__(URL, 1, 2, TIMEOUT)
        self.all = [Connection() for _ in range(idle)]
        self.idle = list(self.all)
        self.error: TicketDatabaseError | None = None

    def take_idle(self) -> MySQLConnection | None:
        return cast(MySQLConnection, self.idle.pop()) if self.idle else None

    def give_back(self, connection: MySQLConnection) -> None:
        if connection.usable:
            self.idle.append(cast(Connection, connection))

    async def connection(self, *, anybody: bool = False) -> MySQLConnection:
        if self.error is not None:
            raise self.error
        return cast(MySQLConnection, await asyncio.Event().wait())


class Bench:
    """A queue over such a pool, and what every draw was answered, in order."""

    def __init__(self, idle: int = 1) -> None:
        self.pool = Pool(idle)
        self.retried: list[str] = []
        self.queue = DrawQueue(self.pool, 1, 2, self.retried.append)
        self.queue.takes_steps = True
        self.answers: list[tuple[str, Drawn]] = []
        self.answered = asyncio.Event()

    def start(self, name: str = "photos", count: int = 1, least: int = 0, after: int = 0) -> None:
        before = len(self.answers)
        self.queue.start_draw(table(name), count, after, lambda drawn: self._came(name, drawn), least)
        assert len(self.answers) == before

    def _came(self, name: str, drawn: Drawn) -> None:
        self.answers.append((name, drawn))
        self.answered.set()

    def kinds(self) -> list[tuple[str, type[Any]]]:
        return [(name, type(drawn)) for name, drawn in self.answers]


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


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


BLOCK = 0, 1, 0, 3, 0, 199, 0
"""BEGIN, below, SET, the block, SET, above, COMMIT."""


def between(below: int) -> Sequence[int]:
    """The same behind what has been drawn so far."""
    return 0, below, 0, below + 2, 0, below + 202, 0


@pytest.mark.parametrize("read_by_the_driver", [False, True])
async def test_a_block_is_drawn_by_itself(read_by_the_driver: bool) -> None:
    bench = Bench()
    bench.start("photos", 100)
    bench.start("songs")
    (connection,) = bench.pool.all
    (connection.leave_to_the_driver if read_by_the_driver else connection.answer)(*BLOCK)
    await turns()
    assert bench.answers == [("photos", Draw(1, 2, 100))]
    assert connection.sent[1] == "REPLACE INTO `songs` (stub) VALUES ('a')"
    await bench.queue.close()


async def test_a_block_that_fails_half_way_has_failed_and_its_session_is_no_more() -> None:
    bench = Bench()
    bench.start("photos", 100)
    (connection,) = bench.pool.all
    connection.leave_to_the_driver(0, 1, 0, SequenceMissing())
    await turns()
    assert bench.kinds() == [("photos", SequenceMissing)]
    assert not connection.usable
    await bench.queue.close()


async def test_a_block_on_a_table_that_went_back_is_none() -> None:
    bench = Bench()
    bench.queue.start_draw(table(), 100, 500, lambda drawn: bench.answers.append(("photos", drawn)))
    (connection,) = bench.pool.all
    connection.answer(*BLOCK)
    assert bench.kinds() == [("photos", SequenceWentBack)]
    assert bench.pool.idle == [connection]


@pytest.mark.parametrize("read_by_the_driver", [False, True])
async def test_once_the_table_has_been_seen_for_a_blocks_width_the_next_one_goes_right_after_it(
    read_by_the_driver: bool,
) -> None:
    bench = Bench()
    (connection,) = bench.pool.all
    bench.start("photos", 9, after=3)
    connection.answer(5)
    for after, first, given in (
        (199, 201, (0, 201, 0, 203, 0, 399, 0)),
        (399, 401, (0, 401, 599, 0)),
        (599, 601, (0, 601, 799, 0)),
    ):
        bench.start("photos", 100, after=after)
        assert ("SET_VAR" if after > 199 else "SESSION") in connection.sent[-1]
        (connection.leave_to_the_driver if read_by_the_driver else connection.answer)(*given)
        await turns()
        assert bench.answers[-1] == ("photos", Draw(first, 2, 100))
    assert "SET_VAR(auto_increment_increment = 198) SET_VAR(auto_increment_offset = 7)" in connection.sent[-1]
    assert connection.sent[-1].count("REPLACE") == 2
    await bench.queue.close()


async def test_a_table_made_anew_has_to_be_seen_anew() -> None:
    """One that begins again within a block's width would not be noticed to have gone back."""
    bench = Bench()
    (connection,) = bench.pool.all
    bench.start("photos", 9, after=1_000)
    connection.answer(1_001)
    bench.start("photos", 100, after=900)
    assert "SESSION" in connection.sent[-1]
    connection.answer(0, 901, 0, 903, 0, 1099, 0)
    bench.start("photos", 100, after=1099)
    assert "SET_VAR" in connection.sent[-1]
    connection.answer(0, 1101, 1299, 0)
    made_anew = replace(table(), created="later")
    bench.queue.start_draw(made_anew, 100, 1500, lambda drawn: None)
    assert "SESSION" in connection.sent[-1]
    await bench.queue.close()


async def test_a_block_after_the_last_that_others_drew_into_is_drawn_again_between_ids() -> None:
    bench = Bench()
    (connection,) = bench.pool.all
    bench.start("photos", 9)
    connection.answer(1)
    bench.start("photos", 100, after=1_001)
    connection.answer(0, 1_003, 1_203, 0)
    assert "SESSION" in connection.sent[-1]
    connection.answer(0, 1_205, 0, 1_207, 0, 1_409, 0)  # somebody has drawn in the midst of it as well
    assert bench.answers[1:] == [("photos", Draw(1_207, 2, 100))]
    last = 1_409
    for blocks in range(ALONE + 2):
        bench.start("photos", 100, after=last - 2)
        assert ("SESSION" if blocks < ALONE else "SET_VAR") in connection.sent[-1]
        connection.answer(*between(last + 2) if blocks < ALONE else (0, last + 2, last + 200, 0))
        last += 204 if blocks < ALONE else 200
        assert bench.answers[-1] == ("photos", Draw(last - 200 if blocks < ALONE else last - 198, 2, 100))
    await bench.queue.close()


async def test_where_a_statement_has_no_steps_of_its_own_all_blocks_go_between_ids() -> None:
    """A proxy may leave out comments. What somebody else draws in between could then make one run with the rest."""
    bench = Bench()
    bench.queue.takes_steps = False
    (connection,) = bench.pool.all
    for begin in (1, 201, 401):
        bench.start("photos", 100, after=begin - 2)
        assert "SESSION" in connection.sent[-1]
        connection.answer(0, begin, 0, begin + 2, 0, begin + 198, 0)
        assert bench.answers[-1] == ("photos", Draw(begin, 2, 100))
    await bench.queue.close()


@pytest.mark.parametrize("lost", [TicketDatabaseBusy(), SequenceMissing(), None])
async def test_after_a_block_whose_answer_was_lost_the_next_one_goes_between_ids(
    lost: TicketDatabaseError | None,
) -> None:
    """It shows where the table stands; a block right after the last id that is known would leave a gap of its width."""
    bench = Bench(2)
    last, connection = bench.pool.all
    bench.start("photos", 9)
    connection.answer(1)
    bench.start("photos", 100, after=1_001)
    assert "SET_VAR" in connection.sent[-1]
    connection.leave_to_the_driver(*() if lost is None else (0, lost))
    while len(bench.answers) < 2 and not isinstance(lost, TicketDatabaseBusy):
        bench.answered.clear()
        await bench.answered.wait()
    await turns()
    if not isinstance(lost, TicketDatabaseBusy):  # which is drawn again
        bench.start("photos", 100, after=1_001)
        await turns()
    assert "SESSION" in last.sent[-1]
    last.answer(0, 1_203, 0, 1_205, 0, 1_401, 0)
    assert bench.answers[-1] == ("photos", Draw(1_203, 2, 100))
    bench.start("photos", 100, after=1_401)
    assert "SET_VAR" in last.sent[-1], "it is not taken to be shared"
    await bench.queue.close()


async def test_a_few_tickets_with_a_least_skip_none_that_it_may_leave_no_room_for() -> None:
    bench = Bench()
    (connection,) = bench.pool.all
    bench.start("photos", 9)
    connection.answer(1)
    bench.start("photos", 16, least=2_001, after=1_001)
    assert connection.sent[-1].split(";")[2:3] == [sequence_sql.draw("photos", 16)]
    await bench.queue.close()


@pytest.mark.parametrize("given", [(0, 1_003, 1_005, 0), (0, 1_003, 1_199, 0)])
async def test_a_block_that_ends_too_early_is_dropped_and_drawn_again(given: Sequence[int]) -> None:
    bench = Bench()
    (connection,) = bench.pool.all
    bench.start("photos", 9)
    connection.answer(1)
    bench.start("photos", 100, after=1_001)
    connection.answer(*given)
    connection.answer(0, 1_205, 0, 1_207, 0, 1_407, 0)
    assert bench.answers[1:] == [("photos", Draw(1_207, 2, 100))]
    await bench.queue.close()


@pytest.mark.parametrize(
    ("ids", "kind"), [((0, 1_001, 1_199, 0), SequenceWentBack), ((0, 2**63 - 501, 2**63 - 303, 0), ColumnExhausted)]
)
async def test_a_block_after_the_last_on_a_table_that_stands_elsewhere_is_none(
    ids: Sequence[int], kind: type[Exception]
) -> None:
    bench = Bench()
    (connection,) = bench.pool.all
    bench.start("photos", 9)
    connection.answer(1)
    bench.start("photos", 100, after=1_001) if kind is SequenceWentBack else bench.start("photos", 100, after=2**62 + 1)
    assert "SET_VAR" in connection.sent[-1]
    connection.answer(*ids)
    assert bench.kinds()[1:] == [("photos", kind)]
    await bench.queue.close()


async def test_more_than_a_few_rows_are_a_block_where_that_costs_less() -> None:
    bench = Bench()
    (connection,) = bench.pool.all
    bench.start("photos", 9)
    assert connection.sent[-1] == sequence_sql.draw("photos", 9)
    connection.answer(1)
    bench.start("photos", 8, after=17)
    assert connection.sent[-1] == sequence_sql.draw("photos", 8)
    connection.answer(19)
    bench.start("photos", 9, after=33)
    assert "SET_VAR(auto_increment_increment = 16)" in connection.sent[-1]
    connection.answer(0, 35, 53, 0)  # others draw
    assert connection.sent[-1] == sequence_sql.draw("photos", 9)
    connection.answer(55)
    assert bench.answers[-1] == ("photos", Draw(55, 2, 9))
    await bench.queue.close()


# --- with a least ----------------------------------------------------------------------------------------------------


def of_tables(packet: str) -> list[str]:
    """What a packet's statements do, each with its table: an advance as `!`."""
    return [
        part.split("`")[1] + ("!" if "(id, stub)" in part else "") if "`" in part else part
        for part in packet.split(";")
    ]


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


async def test_a_block_with_a_least_reads_one_result_more() -> None:
    bench = Bench()
    bench.start("photos", 100, least=5000)
    (connection,) = bench.pool.all
    connection.answer(0, 4999, 5001, 0, 5003, 0, 5199, 0)
    assert of_tables(connection.sent[0])[:3] == ["BEGIN", "photos!", "photos"]
    assert bench.answers == [("photos", Draw(5001, 2, 100))]
    bench.start("photos", 100, least=6000, after=5199)
    assert of_tables(connection.sent[1]) == ["BEGIN", "photos!", "photos", "photos", "COMMIT"]
    assert "SET_VAR(auto_increment_offset = 61)" in connection.sent[1]
    connection.answer(0, 5999, 6001, 6199, 0)
    assert bench.answers[1:] == [("photos", Draw(6001, 2, 100))]
    await bench.queue.close()


async def test_a_block_whose_least_is_close_to_the_end_has_two_ids_below_it() -> None:
    """As one whose table stands there: by the second its place is certain."""
    bench = Bench()
    bench.start("photos", 100, least=2**63 - 2**40)
    (connection,) = bench.pool.all
    assert of_tables(connection.sent[0])[:4] == ["BEGIN", "photos!", "photos", "photos"]
    await bench.queue.close()


async def test_under_traditional_locks_a_transaction_draws_from_no_table_twice_and_a_block_has_none() -> None:
    bench = Bench()
    bench.queue.ends_only = True
    bench.start("busy")
    for name, least in (("b", 0), ("a", 500), ("b", 0)):
        bench.start(name, least=least)
    bench.start("blocks", 100, least=500)
    (connection,) = bench.pool.all
    connection.answer(1)
    assert of_tables(connection.sent[1]) == ["BEGIN", "a!", "a", "b", "COMMIT"]
    connection.answer(0, 499, 501, 3, 0)
    assert of_tables(connection.sent[2]) == ["b"]
    connection.answer(5)
    connection.answer(499, 501, 0, 503, 0)
    assert of_tables(connection.sent[3])[:2] == ["blocks!", "blocks"]
    came = [("a", 501, 1), ("b", 3, 1), ("b", 5, 1), ("blocks", 503, 100)]
    assert bench.answers[1:] == [(name, Draw(id_, 2, count)) for name, id_, count in came]
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
