"""Whose turn it is, and who rests: Failover alone, on a clock of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from ticketd_client import TicketsUnavailable
from ticketd_client.answers import AttemptFailed, Block, Ticket
from ticketd_client.failover import FIRST_REST, LONGEST_REST, Failover
from ticketd_client.servers import Server
from ticketd_client.workers import Workers


class Clock:
    """In place of the module `time`."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Fake(Server):
    """`fails`: what it raises, if anything. `asked` and `looks`: when."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.url = url
        self.clock = clock
        self.fails: Exception | None = None
        self.takes = 0.0
        self.asked: list[float] = []
        self.shares: list[float] = []
        self.looks: list[float] = []

    def answer(self, share: float) -> str:
        self.asked.append(self.clock.now)
        self.shares.append(share - self.clock.now)
        self.clock.now += self.takes
        if self.fails is not None:
            raise self.fails
        return self.url

    def look(self, deadline: float) -> None:
        self.looks.append(self.clock.now)
        if self.fails is not None:
            raise self.fails

    def take(self, sequence: str, count: int | None, key: int | None, deadline: float) -> list[Ticket]:
        raise NotImplementedError

    def take_block(self, sequence: str, size: int, deadline: float) -> Block:
        raise NotImplementedError

    def bump(self, sequence: str, above: int, force: bool, deadline: float) -> dict[str, object]:
        raise NotImplementedError

    def forget_connections(self) -> None:
        pass

    def close(self) -> None:
        pass


class Later:
    """Workers that do a job when they are told to, as another thread would."""

    def __init__(self) -> None:
        self.jobs: deque[Callable[[], None]] = deque()
        self.interrupted = False

    def run(self, job: Callable[[], None]) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.jobs.append(job)


class Town:
    """Two servers, one and other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.one, self.other = Fake("http://one", self.clock), Fake("http://other", self.clock)
        self.later = Later()
        self.failover = Failover([self.one, self.other], cast(Workers, self.later), None)
        self.thread = 1
        monkeypatch.setattr("ticketd_client.failover.time", self.clock)
        monkeypatch.setattr("ticketd_client.failover.threading", SimpleNamespace(get_ident=lambda: self.thread))

    def ask(self, timeout: float = 2.0) -> str:
        return self.failover.ask(lambda server, share: cast(Fake, server).answer(share), self.clock.now + timeout, "no")

    def work(self) -> None:
        self.thread = 2
        while self.later.jobs:
            self.later.jobs.popleft()()
        self.thread = 1


@pytest.fixture
def town(monkeypatch: pytest.MonkeyPatch) -> Town:
    return Town(monkeypatch)


def test_each_has_its_share_of_the_time_that_is_left_and_none_after_it(town: Town) -> None:
    town.one.fails = town.other.fails = AttemptFailed("no answer")
    town.one.takes = 0.5
    town.other.takes = 2.0
    with pytest.raises(TicketsUnavailable) as caught:
        town.ask(2.0)
    assert (town.one.shares, town.other.shares) == ([1.0], [1.5])
    assert str(caught.value) == "no: http://one: no answer; http://other: no answer"
    town.one.takes = 3.0
    for each in (town.one, town.other):
        each.asked.clear()
    town.clock.now += 100
    with pytest.raises(TicketsUnavailable) as caught:
        town.ask(2.0)
    assert (len(town.one.asked), len(town.other.asked)) == (1, 0)
    assert str(caught.value) == "no: http://one: no answer; http://other: not asked in time"


def test_answers_are_listed_in_the_order_in_which_they_were_asked_last(town: Town) -> None:
    town.one.fails = AttemptFailed("ill", retry_after=0.0)
    town.other.fails = AttemptFailed("worse", retry_after=0.08)
    with pytest.raises(TicketsUnavailable) as caught:
        town.ask(0.06)
    assert [answer.url for answer in caught.value.answers] == ["http://other", "http://one"]


def test_who_wants_a_rest_is_listed_with_what_it_said(town: Town) -> None:
    town.one.fails = AttemptFailed("later", 503, retry_after=60.0)
    town.other.fails = AttemptFailed("ill")
    for _ in range(2):
        with pytest.raises(TicketsUnavailable) as caught:
            town.ask()
        assert {answer.url: answer.says for answer in caught.value.answers} == {
            "http://one": "later",
            "http://other": "ill",
        }
    assert len(town.one.asked) == 1


def test_the_pauses_grow(town: Town) -> None:
    town.one.fails = town.other.fails = AttemptFailed("ill")
    with pytest.raises(TicketsUnavailable):
        town.ask(10.0)
    assert len(town.one.asked) == 8


def test_a_rest_that_all_want_is_slept_through(town: Town) -> None:
    town.one.fails = town.other.fails = AttemptFailed("later", retry_after=1.5)
    began = town.clock.now
    with pytest.raises(TicketsUnavailable):
        town.ask(2.0)
    assert town.one.asked == town.other.asked == [began, began + 1.5]


def rests(town: Town) -> list[float]:
    """How long the one rests, each time that it is looked at, until it has rested 200 seconds."""
    began = town.clock.now
    town.one.looks.clear()
    while town.clock.now < began + 200:
        town.ask()
        town.work()
        town.clock.now += 0.125
    times = [began, *town.one.looks]
    return [after - before for before, after in zip(times, times[1:])]


def test_who_fails_rests_longer_each_time_and_a_ticket_ends_that(town: Town) -> None:
    town.one.fails = AttemptFailed("ill")
    first = rests(town)
    assert first[:3] == pytest.approx([FIRST_REST, 2 * FIRST_REST, 4 * FIRST_REST], abs=0.4)
    assert max(first) == pytest.approx(LONGEST_REST, abs=0.4)
    assert town.one.asked == [1_000.0]
    town.one.fails = None
    town.clock.now += 100
    town.ask()
    town.work()
    assert {town.ask(), town.ask()} == {"http://one", "http://other"}
    assert town.failover.unavailable("no").answers == (), "what it said before is no answer any more"
    town.one.fails = AttemptFailed("ill again")
    town.ask()
    town.ask()
    assert rests(town)[0] == pytest.approx(FIRST_REST, abs=0.4)


def test_who_says_that_it_is_well_and_is_not_rests_longer_all_the_same(town: Town) -> None:
    town.one.fails = AttemptFailed("ill")
    for _ in range(3):
        town.ask()
        town.ask()
        town.clock.now += LONGEST_REST
        town.ask()
        town.one.fails = None
        town.work()
        town.one.fails = AttemptFailed("ill")
    town.one.looks.clear()
    town.ask()
    town.ask()
    assert rests(town)[0] == pytest.approx(8 * FIRST_REST, abs=0.4)


def test_who_has_said_that_it_is_well_wants_no_rest_any_more(town: Town) -> None:
    town.one.fails = AttemptFailed("later", retry_after=60.0)
    town.ask()
    town.clock.now += 61
    town.one.fails = None
    town.ask()
    town.work()
    town.clock.now -= 30  # nothing but the look has ended the rest
    assert {town.ask(), town.ask()} == {"http://one", "http://other"}


def test_who_wants_a_rest_is_not_looked_at_before(town: Town) -> None:
    town.one.fails = AttemptFailed("later", retry_after=60.0)
    assert rests(town)[0] == pytest.approx(60.0, abs=0.4)


def test_one_look_at_a_time(town: Town) -> None:
    town.one.fails = AttemptFailed("ill")
    town.ask()
    town.clock.now += 10
    for _ in range(5):
        town.ask()
    assert len(town.later.jobs) == 1


def test_a_look_that_an_interrupt_prevents_is_taken_later(town: Town) -> None:
    town.one.fails = AttemptFailed("ill")
    town.ask()
    town.clock.now += 10
    town.later.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        town.ask()
    town.later.interrupted = False
    town.ask()
    assert len(town.later.jobs) == 1


def test_whatever_a_look_raises_it_is_not_well(town: Town) -> None:
    town.one.fails = AttemptFailed("ill")
    town.ask()
    town.clock.now += 10
    town.ask()
    town.one.fails = ZeroDivisionError("a fault")
    town.work()
    assert [town.ask() for _ in range(4)] == ["http://other"] * 4


def test_where_none_is_well_the_requests_themselves_are_the_looks(town: Town) -> None:
    town.one.fails = town.other.fails = AttemptFailed("ill")
    for _ in range(2):
        town.clock.now += 100
        with pytest.raises(TicketsUnavailable):
            town.ask()
    assert not town.later.jobs


def test_of_those_that_rest_the_one_whose_rest_ends_first_is_asked_first(town: Town) -> None:
    town.one.fails = town.other.fails = AttemptFailed("ill")
    town.one.takes, town.other.takes = 0.01, 0.05
    for _ in range(2):  # the second time it is the other's turn
        with pytest.raises(TicketsUnavailable):
            town.ask(0.08)
    assert len(town.one.asked) == len(town.other.asked) == 2
    assert town.one.asked[1] < town.other.asked[1]


def test_a_thousand_failures_in_a_row(town: Town) -> None:
    town.one.fails = town.other.fails = AttemptFailed("ill")
    for _ in range(1_200):
        with pytest.raises(TicketsUnavailable):
            town.ask(0.01)


def test_a_look_under_way_at_a_fork_is_not_the_childs(town: Town) -> None:
    town.one.fails = AttemptFailed("ill")
    town.ask()
    town.clock.now += 10
    town.ask()
    assert len(town.later.jobs) == 1
    town.failover.begin_anew()
    town.ask()
    assert len(town.later.jobs) == 2
