"""The model's assumptions: a process that stands still, databases that do not, and what it finds after."""

import asyncio

import pytest

from tests.contract.engines.storages import residue_of, take
from tests.fakes.ticket_database import FakeServer, FakeTicketDatabase
from tests.fakes.virtual_time import VirtualClock, VirtualLoop
from tests.model.runs import Run, smallest_in_both
from tests.model.world import World


def drawn_while_it_stands_still(iterations: int) -> bool:
    """Whether a ticket is drawn though its ticket server stopped after so many iterations."""
    world = World(databases=2, ticket_servers=1, seed=1)
    world.pass_time(0.5)
    (host,) = world.hosts
    before = sum(len(server.draws) for server in world.servers)
    world.request(host, "photos", 1, whole=False)
    host.freeze_after(iterations, 3_600.0)
    while not host.frozen:
        world.pass_time(0.00002)
    when_stopped = sum(len(server.draws) for server in world.servers)
    world.pass_time(1.0)
    after = sum(len(server.draws) for server in world.servers)
    world.end()
    return before == when_stopped < after


def test_a_statement_that_is_out_is_executed_while_its_client_stands_still() -> None:
    waits = [drawn_while_it_stands_still(iterations) for iterations in range(1, 25)]
    assert any(waits)
    assert not all(waits)


def test_a_ticket_server_stops_after_as_many_iterations_as_it_is_told() -> None:
    world = World(databases=2, ticket_servers=1, seed=1)
    world.pass_time(0.5)
    (host,) = world.hosts
    host.freeze_after(3, 10.0)
    began = world.clock.now
    world.request(host, "photos", 1, whole=False)
    world.pass_time(5.0)
    assert host.frozen
    assert began + 10.0 <= host.stands_until < began + 11.0
    world.pass_time(6.0)
    assert not host.frozen
    assert not host.tasks
    world.end()


@pytest.mark.parametrize("patience", [0.35, 10.0])
def test_an_answer_that_has_come_is_seen_in_one_iteration_with_the_timer_that_is_due(patience: float) -> None:
    """And before it; but a task that waits for both is told of its timer, as it would be with a real event loop."""
    clock = VirtualClock()
    loop = VirtualLoop(clock)
    server = FakeServer(1, clock=clock)
    client = FakeTicketDatabase(server, latency=lambda: (0.1, 0.1))
    seen: list[str] = []

    async def ask() -> None:
        await client.probe()
        table = (await client.tables(["photos"]))["photos"]
        asyncio.get_running_loop().call_later(patience, seen.append, "timer")
        client.start_draw(residue_of(client), table, 1, 0, lambda drawn: seen.append(type(drawn).__name__))
        try:
            async with asyncio.timeout(patience):
                await take(client, table, 1, 0)
            seen.append("task: drawn")
        except TimeoutError:
            seen.append("task: late")

    task = loop.create_task(ask())
    for _ in range(4):  # the look and the tables, there and back
        loop.run_until_idle()
        clock.now += 0.1
    loop.run_until_idle()
    for _ in range(3):  # the loop stands still, the server does not
        clock.now += 0.1
        clock.run_due()
    assert server.table("photos").largest == 3
    clock.now += 0.1
    loop.run_until_idle()
    assert task.done()
    assert seen == (["Draw", "timer", "task: late"] if patience < 0.4 else ["Draw", "task: drawn"])
    loop.close()


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        (Run(1, 9, 2), Run(2, 10, 2), None),
        (Run(1, 9, 2), Run(9, 99, 2), 9),
        (Run(1, 9, 2), Run(11, 99, 2), None),
        (Run(5, 500, 2), Run(2, 500, 3), 5),
        (Run(7, 500, 2), Run(2, 500, 3), 11),
        (Run(7, 9, 2), Run(2, 500, 3), None),
        (Run(4, 400, 4), Run(2, 400, 6), 8),
        (Run(8, 8, 1), Run(2, 400, 6), 8),
    ],
)
def test_two_runs_share_an_id_whatever_their_steps(one: Run, other: Run, found: int | None) -> None:
    assert smallest_in_both(one, other) == smallest_in_both(other, one) == found
    ids = set(range(one.first, one.last + 1, one.step)) & set(range(other.first, other.last + 1, other.step))
    assert min(ids, default=None) == found
