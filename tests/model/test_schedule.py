"""The model would notice: a world with a broken promise in it ends with an error that says which."""

from collections import Counter

import pytest

from app.tickets.requests.request import Tickets
from tests.model.host import WatchedLane
from tests.model.record import Said
from tests.model.runs import Run
from tests.model.schedule import Schedule
from tests.model.world import World


def a_world() -> World:
    world = World(databases=2, ticket_servers=2, seed=1)
    world.pass_time(0.5)
    return world


def take(world: World, tickets: Tickets, floor: int) -> None:
    """Three tickets of the first database reach their client, though nobody drew them."""
    host = world.hosts[0]
    lane = host.server.lane("photos", 1)
    assert isinstance(lane, WatchedLane)
    world.record.handed_out(host, lane, world.servers[0], tickets, whole=False, cut_off=False)
    world.record.take(host, "photos", 3, tickets, floor)


def test_the_same_seed_does_the_same() -> None:
    first, second = Schedule(7, Counter()), Schedule(7, Counter())
    first.run(20)
    second.run(20)
    assert first.log == second.log
    given = [
        [[(name, each.run, each.by) for each in issued] for name, issued in schedule.world.record.runs.items()]
        for schedule in (first, second)
    ]
    assert given[0] == given[1]
    assert len(first.log) > 5


def test_a_ticket_given_twice_is_noticed() -> None:
    world = a_world()
    world.request(world.hosts[0], "photos", 1, whole=False)
    world.pass_time(0.1)
    ((issued,),) = world.record.runs.values()
    twice = Run(issued.run.first - 4, issued.run.last, 2)
    with pytest.raises(AssertionError, match="had been given by tickets-1"):
        world.record.never_twice(world.hosts[1], "photos", twice, Said(issued.server, 1, 2))
    world.end()


def test_marks_that_are_gone_are_noticed() -> None:
    """A database goes back, and the marks about it have vanished: what the contract does not cover."""
    world = a_world()
    copy = world.servers[0].snapshot()
    for host in world.hosts:
        world.request(host, "photos", 50, whole=False)
        world.request(host, "photos", 50, whole=False)
    world.pass_time(0.1)
    server = world.servers[0]
    world.go_back(server, lambda: server.restore(copy))
    world.servers[1].state.marks.clear()
    for host in world.hosts:
        host.restart()
    world.pass_time(0.5)
    for _ in range(4):
        world.request(world.hosts[0], "photos", 50, whole=False)
    with pytest.raises(AssertionError, match="had been given"):
        world.pass_time(0.3)
    world.errors.clear()
    world.end()


def test_a_ticket_that_its_database_never_drew_is_noticed() -> None:
    world = a_world()
    with pytest.raises(AssertionError, match="5 to 9 were never drawn from fake1"):
        take(world, range(5, 11, 2), 0)
    world.end()


@pytest.mark.parametrize(
    ("tickets", "floor", "words"),
    [
        ([1, 3], 0, "3 requested, 2 given"),
        ([3, 1, 5], 0, "do not increase"),
        ([1, 2, 3], 0, "of two databases"),
        ([1, 3, 5], 1, "moved above 1"),
        ([2**63 - 3, 2**63 - 1, 2**63 + 1], 0, "above the end"),
    ],
)
def test_what_an_answer_may_not_hold_is_noticed(tickets: list[int], floor: int, words: str) -> None:
    world = a_world()
    with pytest.raises(AssertionError, match=words):
        take(world, tickets, floor)
    world.end()


def test_a_frozen_ticket_server_stands_still_while_the_others_go_on() -> None:
    world = a_world()
    frozen = world.hosts[0]
    frozen.freeze()
    requests = [world.request(host, "photos", 1, whole=False) for host in world.hosts]
    world.pass_time(30)
    assert [request.done() for request in requests] == [False, True]
    frozen.thaw()
    world.pass_time(5)
    assert requests[0].done()
    world.end()


def test_a_killed_ticket_server_hands_nothing_out_any_more() -> None:
    world = a_world()
    world.request(world.hosts[0], "photos", 1, whole=False)
    world.pass_time(0.003)
    world.hosts[0].restart()
    world.pass_time(1)
    assert world.outcomes["tickets"] == 0
    world.end()
