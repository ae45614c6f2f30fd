"""Commands of many connections that share a request: what is gathered, for how long, and who gets which ticket."""

import asyncio
import time

from app.redis.gathering import FEW_CLIENTS, HOLD_SECONDS, MOST_TICKETS, RETURN_SECONDS
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.redis.gathering_bench import MANY, answered_together, asked, connected
from tests.unit.redis.redis_bench import INCR, OTHER, Bench


@virtual_time
async def test_what_comes_in_one_turn_of_the_loop_is_one_request_and_each_gets_its_own() -> None:
    bench = Bench()
    clients = connected(bench, 4)
    for number, client in enumerate(clients):
        client.send(INCR * number or OTHER)
    await settled()
    assert asked(bench) == [("albums", 1), ("photos", 6)]
    assert bench.metrics.in_flight == 7
    bench.issuer.answer()
    bench.issuer.answer()
    assert [client.take() for client in clients] == [
        b":1\r\n",
        b":3\r\n",
        b":5\r\n:7\r\n",
        b":9\r\n:11\r\n:13\r\n",
    ]
    assert bench.outcomes() == {("ticket", "ok"): 7}
    assert bench.metrics.in_flight == 0


@virtual_time
async def test_the_time_of_a_request_begins_when_its_first_command_came() -> None:
    bench = Bench()
    first, second = connected(bench, 2)
    first.send(INCR * 9)
    await settled()
    before = time.perf_counter()
    second.send(INCR)
    after = time.perf_counter()
    await asyncio.sleep(2 * HOLD_SECONDS)
    assert before <= bench.issuer.waiting[-1].arrived <= after


@virtual_time
async def test_few_wait_while_more_are_under_way_and_go_when_these_come() -> None:
    bench = Bench()
    first, *clients = connected(bench, 4)
    first.send(INCR * 3)
    await settled()
    for client in clients[:2]:
        client.send(INCR)
        await settled()
    assert asked(bench) == [("photos", 3)]
    clients[2].send(OTHER)
    await settled()
    assert asked(bench) == [("photos", 3), ("albums", 1)]  # another sequence waits for nobody
    bench.issuer.answer()
    await settled()
    assert asked(bench) == [("albums", 1), ("photos", 2)]


@virtual_time
async def test_as_many_as_are_under_way_wait_no_longer() -> None:
    bench = Bench()
    first, second = connected(bench, 2)
    first.send(INCR * 3)
    await settled()
    second.send(INCR * 2)
    await settled()
    second.send(INCR)
    await settled()
    assert asked(bench) == [("photos", 3), ("photos", 3)]


@virtual_time
async def test_a_database_that_hangs_holds_up_few_for_a_moment_alone() -> None:
    bench = Bench()
    first, second = connected(bench, 2)
    first.send(INCR * 100)
    await settled()
    began = asyncio.get_running_loop().time()
    is_asked = asyncio.Event()
    bench.issuer.on_issue = is_asked.set
    second.send(INCR)
    await is_asked.wait()
    assert asyncio.get_running_loop().time() - began <= 1.2 * HOLD_SECONDS
    bench.issuer.waiting.pop().answer(range(7, 8))
    assert second.take() == b":7\r\n"
    second.send(INCR)
    await asyncio.sleep(1.2 * HOLD_SECONDS)
    assert asked(bench) == [("photos", 100), ("photos", 1)]


@virtual_time
async def test_clients_that_were_answered_together_ask_together_again() -> None:
    bench = Bench()
    clients = connected(bench, MANY)
    await answered_together(bench, clients)
    for client in clients[:-1]:
        client.send(INCR)
        await settled()
    clients[0].send(OTHER)
    await settled()
    assert asked(bench) == [("albums", 1)]  # another sequence waits for nobody
    clients[-1].send(INCR)
    await settled()
    assert asked(bench) == [("albums", 1), ("photos", MANY)]


@virtual_time
async def test_who_does_not_come_back_is_waited_for_once_and_for_a_moment() -> None:
    bench = Bench()
    clients = connected(bench, MANY)
    await answered_together(bench, clients)
    for times in range(2):
        for client in clients[:-2]:
            client.send(INCR)
        await settled()
        assert asked(bench) == ([("photos", MANY - 2)] if times else [])
        await asyncio.sleep(1.2 * RETURN_SECONDS)
        assert asked(bench) == [("photos", MANY - 2)]
        bench.issuer.answer()
        bench.issuer.waiting.clear()


@virtual_time
async def test_few_that_were_answered_together_are_not_waited_for() -> None:
    bench = Bench()
    clients = connected(bench, FEW_CLIENTS)
    await answered_together(bench, clients)
    clients[0].send(INCR)
    await settled()
    assert asked(bench) == [("photos", 1)]


@virtual_time
async def test_one_that_sends_fewer_commands_than_before_waits_for_nobody() -> None:
    bench = Bench()
    (client,) = connected(bench, 1)
    for times in (100, 50, 100, 20):
        client.send(INCR * times)
        await settled()
        assert asked(bench) == [("photos", times)]
        bench.issuer.answer()
        bench.issuer.waiting.clear()


@virtual_time
async def test_what_is_answered_from_memory_waits_for_nobody() -> None:
    bench = Bench()
    bench.answers_at_once()
    clients = connected(bench, MANY)
    for client in clients:
        client.send(INCR)
    await settled()
    assert all(client.take() for client in clients)
    clients[0].send(INCR)
    await settled()
    assert clients[0].take()


@virtual_time
async def test_as_many_as_a_request_may_have_wait_no_longer() -> None:
    bench = Bench()
    first, second = connected(bench, 2)
    first.send(INCR * (MOST_TICKETS + 100))
    await settled()
    second.send(INCR * MOST_TICKETS)
    await settled()
    assert [count for _, count in asked(bench)] == [MOST_TICKETS, 100, MOST_TICKETS]


@virtual_time
async def test_it_is_clients_that_are_waited_for_and_no_longer_than_a_request_has_room() -> None:
    bench = Bench()
    clients = connected(bench, MANY)
    await answered_together(bench, clients)
    clients[0].send(INCR * MANY)
    await settled()
    assert asked(bench) == []
    clients[0].send(INCR * (MOST_TICKETS - MANY))
    await settled()
    assert asked(bench) == [("photos", MOST_TICKETS)]


@virtual_time
async def test_what_an_answer_starts_while_all_are_asked_for_waits_no_longer_than_others() -> None:
    """Its timer is another one than that which has just rung."""
    bench = Bench()
    clients = connected(bench, 4)
    clients[0].send(INCR * 3)
    clients[1].send(OTHER * 3)
    await settled()
    clients[2].send(INCR)
    clients[3].send(OTHER)
    again = [0, 1]

    def answer_photos() -> None:
        if bench.issuer.waiting[-1].sequence == "photos":
            bench.issuer.waiting.pop().answer(range(7, 8))
            clients[2].send(INCR * again.pop())

    bench.issuer.on_issue = answer_photos
    await asyncio.sleep(4 * HOLD_SECONDS)
    assert clients[2].take() == b":7\r\n:7\r\n"


@virtual_time
async def test_who_waited_before_does_not_shorten_the_wait_of_the_next() -> None:
    bench = Bench()
    clients = connected(bench, MANY)
    await answered_together(bench, clients)
    clients[0].send(INCR)
    await asyncio.sleep(0.6 * RETURN_SECONDS)
    for client in clients[1:]:
        client.send(INCR)
    await settled()
    bench.issuer.answer()
    bench.issuer.waiting.clear()
    clients[0].send(INCR)
    await asyncio.sleep(0.6 * RETURN_SECONDS)
    assert asked(bench) == []
    await asyncio.sleep(0.6 * RETURN_SECONDS)
    assert asked(bench) == [("photos", 1)]


@virtual_time
async def test_a_request_has_so_many_tickets_at_the_most() -> None:
    bench = Bench()
    for client in connected(bench, 3):
        client.send(INCR * (MOST_TICKETS // 2))
    await settled()
    assert asked(bench) == [("photos", MOST_TICKETS), ("photos", MOST_TICKETS // 2)]
