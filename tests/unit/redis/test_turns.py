"""What Redis connections take of one turn of the event loop, of memory, and how they share it.

The clock of these tests moves on by a fixed time for each step of work, so that the work of a turn can be counted.
"""

import asyncio
import math

import pytest

from app.clients.turns import SLICE_SECONDS, TURN_SECONDS, WINDOW_SECONDS, Turns
from app.redis.connection import AHEAD_BYTES
from app.redis.reply_queue import OWED_BYTES, OWED_IN_ALL
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.redis.redis_bench import INCR, OTHER, PING, Bench, Client, WorkClock, command

STEP = TURN_SECONDS / 100
MOST_STEPS = 110
"""The steps of a turn, and a few looks at the clock that are no work."""
INPUTS = {
    "pings": PING * 2_000,
    "empty lines": b"\n" * 20_000,
    "empty arrays": b"*0\r\n" * 5_000,
    "denied": b"NOSUCH\n" * 3_000,
    "multi": (command("MULTI") + PING * 500 + command("EXEC")) * 3,
    "from the reserve": (INCR + OTHER) * 1_000,
}


class Step:
    """A worker with so many steps to do."""

    def __init__(self, clock: WorkClock, steps: int) -> None:
        self.clock = clock
        self.left = steps

    def work(self, until: float) -> bool:
        while self.left:
            self.left -= 1
            if self.clock() >= until:
                break
        return self.left > 0


async def turn() -> None:
    """One turn of the event loop."""
    await asyncio.sleep(0)


@virtual_time
async def test_all_workers_together_take_the_time_of_one_turn_and_each_gets_its_share() -> None:
    clock = WorkClock(STEP)
    turns = Turns(clock)
    workers = [Step(clock, 1_000) for _ in range(40)]
    taken = [turns.take(worker) for worker in workers]
    at_once = math.ceil(WINDOW_SECONDS / SLICE_SECONDS)
    assert taken == [True] * at_once + [False] * (40 - at_once)
    for _ in range(40):
        before = sum(worker.left for worker in workers)
        await turn()
        assert 0 < before - sum(worker.left for worker in workers) <= TURN_SECONDS / STEP
    left = [worker.left for worker in workers]
    assert 2 * (1_000 - max(left)) > 1_000 - min(left)
    while any(worker.left for worker in workers):
        await turn()


@virtual_time
async def test_a_turn_that_is_used_up_ends_with_the_turn_of_the_loop() -> None:
    clock = WorkClock(STEP)
    turns = Turns(clock)
    long, short = Step(clock, 15), Step(clock, 1)
    assert turns.take(long)
    clock.now += TURN_SECONDS
    assert not turns.take(short)
    await turn()
    assert (long.left, short.left) == (0, 0)
    await turn()
    assert turns.take(Step(clock, 1))


@virtual_time
@pytest.mark.parametrize("connections", [1, 40])
@pytest.mark.parametrize("name", INPUTS)
async def test_a_turn_of_the_loop_has_so_many_steps_whatever_comes(name: str, connections: int) -> None:
    clock = WorkClock(STEP)
    bench = Bench(clock=clock)
    bench.answers_at_once()
    clients = [bench.connect() for _ in range(connections)]
    before = clock.now
    for client in clients:
        client.send(INPUTS[name])
    assert (clock.now - before) / STEP <= MOST_STEPS + connections  # each has looked whether there is time
    turns = 0
    while clients[-1].protocol.since is not None:
        before = clock.now
        await turn()
        assert (clock.now - before) / STEP <= MOST_STEPS + connections
        turns += 1
    assert turns > connections / 10
    await settled()
    assert len({client.take() for client in clients if name != "from the reserve"}) <= 1


@virtual_time
async def test_a_client_with_little_to_do_does_not_wait_for_those_with_much() -> None:
    clock = WorkClock(STEP)
    bench = Bench(clock=clock)
    greedy = [bench.connect() for _ in range(40)]
    for client in greedy:
        client.send(PING * 4_000)
    honest = bench.connect()
    honest.send(PING)
    turns = 0
    while not honest.transport.written:
        await turn()
        turns += 1
    assert turns <= 5


@virtual_time
async def test_what_has_to_wait_for_its_turn_is_kept_up_to_a_bound() -> None:
    clock = WorkClock(STEP)
    bench = Bench(clock=clock)
    client = bench.connect()
    sent = 0
    while client.transport.reading:
        client.send(PING * 100)
        sent += 100
        assert len(client.protocol.incoming) <= AHEAD_BYTES + len(PING) * 100
    while not client.transport.reading or client.protocol.since is not None:
        await turn()
    assert client.take() == b"+PONG\r\n" * sent
    assert client.transport.reading


@virtual_time
async def test_what_all_connections_owe_is_bounded_and_nobody_is_kept_out() -> None:
    bench = Bench()
    clients = [bench.connect() for _ in range(40)]
    for client in clients:
        client.send((INCR + command("TICKET.TAKE", "albums", "COUNT", "500")) * 50)
    await settled()
    assert all(client.protocol.replies.owed for client in clients)
    assert all(client.protocol.replies.owed < 2 * OWED_BYTES for client in clients)
    assert bench.door.debts.total < OWED_IN_ALL + 40 * 20_000
    while bench.issuer.waiting:
        bench.issuer.answer()
        await asyncio.sleep(0.01)
    assert bench.door.debts.total == 0
    assert {client.take().count(b"*500\r\n") for client in clients} == {50}


@virtual_time
async def test_requests_that_are_served_from_memory_are_asked_for_as_there_is_time() -> None:
    clock = WorkClock(STEP)
    bench = Bench(clock=clock)
    clients = [bench.connect() for _ in range(40)]
    for of_client, client in enumerate(clients):
        client.send(b"".join(command("INCR", f"s{of_client}x{number}") for number in range(15)))
    issued: list[str] = []
    while len(issued) < 600:
        asked = len(bench.issuer.asked)
        await turn()
        issued = bench.issuer.asked
        assert len(issued) - asked <= TURN_SECONDS / STEP + 1  # the last step may exceed it


@virtual_time
async def test_tickets_are_asked_for_in_the_order_of_the_commands() -> None:
    bench = Bench()
    client, other = bench.connect(), bench.connect()
    client.send(
        INCR + command("TICKET.TAKE", "photos", "COUNT", "2") * 2 + INCR + command("TICKET.BLOCK", "photos", "9")
    )
    other.send(command("TICKET.TAKE", "albums"))
    await settled()
    photos = [request.count for request in bench.issuer.waiting if request.sequence == "photos"]
    assert photos == [1, 2, 2, 1, 9]


@virtual_time
async def test_what_was_drawn_ahead_is_not_handed_out_before_what_was_gathered() -> None:
    bench = Bench()
    client = bench.connect()
    client.send(INCR)
    bench.issuer.drawn_ahead = range(11, 19, 2)
    client.send(INCR)
    await settled()
    assert [request.count for request in bench.issuer.waiting] == [2]


@virtual_time
async def test_who_goes_before_a_list_was_asked_for_is_not_asked_for() -> None:
    bench = Bench(clock=(clock := WorkClock()))
    client = bench.connect()
    clock.seconds = STEP
    client.send(INCR + command("TICKET.TAKE", "photos"))
    client.protocol.connection_lost(None)
    assert bench.issuer.asked == []
    await settled()
    assert bench.issuer.asked == []
    assert bench.metrics.in_flight == 0


@virtual_time
@pytest.mark.parametrize("ends", [True, False])
async def test_who_goes_owes_nothing(ends: bool) -> None:
    bench = Bench()
    client = bench.connect()
    client.send(INCR + PING + OTHER)
    await settled()
    assert bench.door.debts.total > 0
    if ends:
        client.transport.lose("lost")
    else:
        bench.issuer.answer()
        bench.issuer.answer()
    await settled()
    assert bench.door.debts.total == 0
    client = Client(bench.door.make_connection())
    client.send(INCR)
    client.send(INCR)
    client.transport.lose("lost")
    await settled()
    assert bench.door.debts.total == 0


@virtual_time
async def test_a_client_that_goes_while_it_waits_for_its_turn_is_forgotten() -> None:
    clock = WorkClock(STEP)
    bench = Bench(clock=clock)
    clients = [bench.connect() for _ in range(3)]
    for client in clients:
        client.send(PING * 500)
    for client in clients:
        client.transport.lose("lost")
    written = [client.transport.written for client in clients]
    await settled()
    assert [client.transport.written for client in clients] == written
