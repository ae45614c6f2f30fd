"""Threads, finalizers and interrupts: no ticket twice, nothing left locked, nothing left open."""

from __future__ import annotations

import _thread
import contextlib
import gc
import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import ticketd_client
from lying_server import Honest, Serve, until
from ticketd_client import TicketError, Tickets, TicketsUnavailable

OURS = str(Path(ticketd_client.__file__).parent)


@pytest.mark.parametrize(("prefetch", "rounds"), [(1_000, 500), (8, 100), (0, 20)])
def test_threads_share_no_ticket(serve: Serve, prefetch: int, rounds: int) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # from one thread to another as often as can be
    with Tickets(serve(Honest()).url, prefetch=prefetch, timeout=60) as tickets, ThreadPoolExecutor(8) as pool:

        def take(_: int) -> list[int]:
            return [each for _ in range(rounds) for each in (tickets.take("photos"), *tickets.take_many("photos", 3))]

        got = [each for part in pool.map(take, range(8)) for each in part]
    sys.setswitchinterval(interval)
    assert len(got) == len(set(got)) == 8 * rounds * 4


def test_each_of_many_that_wait_for_one_answer_ends_with_its_own_timeout(serve: Serve) -> None:
    with Tickets(serve(lambda _: b"").url, timeout=1) as tickets, ThreadPoolExecutor(4) as pool:

        def take(number: int) -> float:
            time.sleep(number * 0.2)
            began = time.monotonic()
            with pytest.raises(TicketsUnavailable):
                tickets.take("photos")
            return time.monotonic() - began

        assert all(0.9 < took < 20 for took in pool.map(take, range(4)))


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "collected"])
def test_threads_and_connections_end_with_the_client(serve: Serve, closed: bool) -> None:
    before = _thread._count()
    server = serve(Honest())
    tickets = Tickets(server.url, timeout=60)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: tickets.take_many(f"s{number}", 1_500), range(8)))
    for _ in range(100):
        tickets.take("photos")
    gone = weakref.ref(tickets)
    if closed:
        tickets.close()
        with pytest.raises(TicketError, match="closed"):
            tickets.take("photos")
    else:
        del tickets
        gc.collect()
        until(lambda: gone() is None)
    until(lambda: not server.sockets)
    until(lambda: _thread._count() <= before + 1)  # the server's own


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # a socket at whose making the interrupt came
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("prefetch", [4, 0])
@pytest.mark.parametrize("by", ["the keyboard", "a finalizer"])
def test_an_interrupt_at_any_point_loses_tickets_and_nothing_else(serve: Serve, by: str, prefetch: int) -> None:
    """A finalizer, or a signal handler, takes a ticket itself, which may be refused.

    The points are where Python looks for signals: a function begins, or one that is not written in Python ends.
    """
    got: list[int] = []
    at = left = rounds = 0

    def act() -> None:
        if by == "the keyboard":
            raise KeyboardInterrupt
        with contextlib.suppress(TicketError):
            got.append(tickets.take("photos"))

    def look(frame: FrameType, what: str, _: Any) -> None:
        nonlocal left
        if what in ("call", "c_return") and frame.f_code.co_filename.startswith(OURS):
            left -= 1
            if left == 0:
                act()

    with Tickets(serve(Honest()).url, prefetch=prefetch, timeout=60) as tickets:
        while left <= 0:  # until no point is left; the points are further apart the later they are
            at += 1 + at // 12
            rounds += 1
            left = at
            sys.setprofile(look)
            with contextlib.suppress(*[KeyboardInterrupt] if by == "the keyboard" else []):
                got.extend(tickets.take_many("photos", 9))
            sys.setprofile(None)
            got.extend([tickets.take("photos"), *tickets.take_many("photos", 9)])  # raises if something is locked
    assert at > 50
    assert len(got) == len(set(got)) > 10 * rounds
