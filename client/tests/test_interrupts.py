"""A program is interrupted where it happens to be: by the keyboard, a time limit, a signal handler, a finalizer."""

from __future__ import annotations

import _thread
import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import ticketd_client
from lying_server import Honest, Serve, until
from ticketd_client import TicketError, Tickets, TicketsUnavailable

OURS = str(Path(ticketd_client.__file__).parent)


class Interrupts:
    """Inside its `with`, raises KeyboardInterrupt, or does something else, at the `at`th point of this thread in the
    client where Python looks for signals: a function's beginning, and the end of one that is not written in Python."""

    def __init__(self, at: int, act: Callable[[], None] | None = None) -> None:
        self.left = at
        self.act = act

    def __enter__(self) -> Interrupts:
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: FrameType, what: str, _: Any) -> None:
        if what in ("call", "c_return") and frame.f_code.co_filename.startswith(OURS):
            self.left -= 1
            if self.left == 0:
                if self.act is None:
                    raise KeyboardInterrupt
                self.act()


def each_point(call: Callable[[int], bool]) -> int:
    """Call with 1, 2, 3, ... until it has had no interrupt; how many it had."""
    at = 1
    while call(at):
        at += 1
    return at - 1


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # a socket at whose making the interrupt came
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("prefetch", [4, 0])
def test_an_interrupt_loses_tickets_and_nothing_else(serve: Serve, prefetch: int) -> None:
    got: list[int] = []
    with Tickets(serve(Honest()).url, prefetch=prefetch, timeout=5) as tickets:

        def interrupted(at: int) -> bool:
            time.sleep(0.01)  # nothing is under way in the background: all is done in this thread
            with Interrupts(at) as interrupts, contextlib.suppress(KeyboardInterrupt):
                got.extend(tickets.take_many("photos", 9))
            began = time.monotonic()
            got.extend(tickets.take("photos") for _ in range(6))
            got.extend(tickets.take_many("photos", 9))
            assert time.monotonic() - began < 4, f"the interrupt at {at} left something locked"
            return interrupts.left <= 0

        assert each_point(interrupted) > 50
    assert len(got) == len(set(got))


@pytest.mark.parametrize(("prefetch", "key"), [(4, None), (0, None), (4, 7), (0, 7)])
def test_a_finalizer_or_signal_handler_may_take_anywhere(serve: Serve, prefetch: int, key: int | None) -> None:
    got: list[int] = []
    refused: list[TicketError] = []
    with Tickets(serve(Honest()).url, prefetch=prefetch, timeout=0.3) as tickets:

        def finalizer() -> None:
            try:
                got.append(tickets.take("photos", key))
            except TicketsUnavailable as error:
                refused.append(error)

        def interrupted(at: int) -> bool:
            with Interrupts(at, finalizer) as interrupts:
                got.extend(tickets.take_many("photos", 9))
            return interrupts.left <= 0

        points = each_point(interrupted)
    assert len(got) == len(set(got)) == 9 * (points + 1) + points - len(refused)
    assert len(refused) < points


def test_a_finalizer_may_close_anywhere(serve: Serve) -> None:
    url = serve(Honest()).url

    def interrupted(at: int) -> bool:
        tickets = Tickets(url, prefetch=4, timeout=0.3)
        with Interrupts(at, tickets.close) as interrupts, contextlib.suppress(TicketError):  # it is closed
            assert len(tickets.take_many("photos", 9)) == 9
        if interrupts.left > 0:
            tickets.close()
        for _ in range(2):
            with pytest.raises(TicketError, match="closed"):
                tickets.take("photos")
        return interrupts.left <= 0

    before = _thread._count()
    assert each_point(interrupted) > 50
    until(lambda: _thread._count() <= before + 60)
