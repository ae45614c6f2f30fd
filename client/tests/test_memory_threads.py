"""Tickets from memory with many threads, with none, and at the end of the client."""

from __future__ import annotations

import _thread
import contextlib
import gc
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from lying_server import Honest, Says, Serve, drawn, until
from ticketd_client import TicketError, Tickets, TicketsUnavailable


def test_threads_never_share_a_ticket(serve: Serve) -> None:
    with Tickets(serve(Honest()).url, prefetch=1000) as tickets, ThreadPoolExecutor(8) as pool:

        def take(number: int) -> list[int]:
            if number % 2:
                return [tickets.take("photos") for _ in range(20_000)]
            return [each for _ in range(200) for each in tickets.take_many("photos", 100)]

        got = [each for part in pool.map(take, range(8)) for each in part]
    assert len(got) == len(set(got)) == 160_000


def test_threads_that_meet_in_the_middle_of_things(serve: Serve) -> None:
    """The interpreter changes from one to another as often as it can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with Tickets(serve(Honest()).url, prefetch=8, timeout=20) as tickets, ThreadPoolExecutor(8) as pool:
            parts = list(pool.map(lambda _: [tickets.take_many("photos", 3) for _ in range(200)], range(8)))
    finally:
        sys.setswitchinterval(interval)
    got = [each for part in parts for some in part for each in some]
    assert len(got) == len(set(got)) == 8 * 200 * 3


def test_sequences_do_not_wait_for_each_other(serve: Serve) -> None:
    honest = Honest()

    def answer(path: str) -> Says | bytes | None:
        said = honest(path)
        return said._replace(after=5) if isinstance(said, Says) and "slow" in path else said

    with Tickets(serve(answer).url, timeout=10) as tickets:

        def wait_for_ever() -> None:
            with contextlib.suppress(TicketError):  # the test ends before it does
                tickets.take("slow")

        threading.Thread(target=wait_for_ever, daemon=True).start()
        began = time.monotonic()
        tickets.take_many("photos", 2_000)
        assert time.monotonic() - began < 2


def test_who_waits_for_others_waits_no_longer_than_timeout(serve: Serve) -> None:
    server = serve(lambda _: Says({}, after=60))
    with Tickets(server.url, timeout=2) as tickets, ThreadPoolExecutor(8) as pool:

        def take(number: int) -> float:
            time.sleep(number * 0.1)
            began = time.monotonic()
            with pytest.raises(TicketsUnavailable):
                tickets.take("photos")
            return time.monotonic() - began

        assert max(pool.map(take, range(8))) < 3


def test_who_fetches_for_others_waits_no_longer_than_timeout(serve: Serve) -> None:
    calls: list[float] = []
    honest = Honest()

    def answer(path: str) -> Says | bytes | None:
        calls.append(time.monotonic())
        said = honest(path)
        return said._replace(after=0.4) if isinstance(said, Says) else said

    with Tickets(serve(answer).url, timeout=1.0) as tickets, ThreadPoolExecutor(4) as pool:

        def another(_: int) -> None:
            until(lambda: len(calls) > 1)  # their deadlines are later
            for _ in range(4):
                with contextlib.suppress(TicketsUnavailable):
                    tickets.take_many("photos", 9_000)

        others = pool.map(another, range(4))
        began = time.monotonic()
        with pytest.raises(TicketsUnavailable):
            tickets.take_many("photos", 90_000)
        took = time.monotonic() - began
        list(others)
    assert took < 1.2


@pytest.mark.parametrize("prefetch", [10, 0])
def test_without_threads(serve: Serve, monkeypatch: pytest.MonkeyPatch, prefetch: int) -> None:
    server = serve(Honest())
    hangs = serve(lambda _: Says({}, after=60))

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with Tickets([hangs.url, server.url], prefetch=prefetch, timeout=1) as tickets:
        assert tickets.take("photos") == 1
        with monkeypatch.context() as patched:
            patched.setattr("_thread.start_new_thread", refuse)
            began = time.monotonic()
            while time.monotonic() - began < 1.2:  # a rest is over: the first one is tried
                before = time.monotonic()
                tickets.take("photos")
                assert time.monotonic() - before < 1.1
        tickets.take_many("photos", 100)


def test_all_threads_end_with_the_client(serve: Serve) -> None:
    before = _thread._count()
    server = serve(Honest(after=0.1))
    tickets = Tickets(server.url)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: tickets.take_many(f"s{number}", 10_500), range(8)))
    tickets.close()
    until(lambda: server.connections == 0)
    until(lambda: _thread._count() <= before + 1)  # the server's own


def test_closed_it_hands_out_nothing(serve: Serve) -> None:
    server = serve(Honest())
    tickets = Tickets(server.url)
    tickets.take("photos")
    tickets.close()
    with pytest.raises(TicketError, match="closed"):
        tickets.take("photos")
    until(lambda: server.connections == 0)


def test_what_comes_after_the_end_is_not_handed_out(serve: Serve) -> None:
    honest = Honest(after=0.3)
    with ThreadPoolExecutor(1) as pool:
        tickets = Tickets(serve(honest).url, timeout=5)
        task = pool.submit(tickets.take, "photos")
        until(lambda: honest.calls)
        tickets.close()
        assert task.result() > 1
    for _ in range(3):
        with pytest.raises(TicketError, match="closed"):
            tickets.take("photos")
    asked = len(honest.calls)
    assert drawn(honest) <= 2 * 17
    time.sleep(0.5)
    assert len(honest.calls) == asked, "nobody fetches ahead any more"


def test_one_that_nobody_holds_is_collected_with_its_threads_and_connections(serve: Serve) -> None:
    server = serve(Honest())
    before = _thread._count()
    tickets = Tickets(server.url)
    for _ in range(100):
        tickets.take("photos")
    gone = weakref.ref(tickets)
    del tickets
    gc.collect()
    assert gone() is None
    until(lambda: server.connections == 0)
    until(lambda: _thread._count() <= before + 1)  # the server's own
