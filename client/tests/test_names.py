"""A host's name that the resolver does not find in time."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lying_server import Honest, Serve, until
from ticketd_client import AsyncTickets, Tickets, TicketsUnavailable


class Resolver:
    """In place of the system's. It finds every host at 127.0.0.1, those that begin with "slow" when it is told to."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.asked: list[str] = []

    def __call__(self, host: str, port: int, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        self.asked.append(host)
        if host.startswith("slow"):
            self.go_on.wait(30)
        if host.startswith("gone"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    found = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", found)
    yield found
    found.go_on.set()


def lookups() -> int:
    """How many threads wait for the resolver."""
    stacks = [traceback.extract_stack(frame) for frame in sys._current_frames().values()]
    return sum(any(each.name == "__call__" and each.filename == __file__ for each in stack) for stack in stacks)


def test_a_name_that_hangs_takes_no_more_than_the_timeout_and_one_thread(resolver: Resolver) -> None:
    with Tickets("http://slow-one.example:1", prefetch=0, timeout=0.3) as tickets:
        for _ in range(3):
            began = time.monotonic()
            with pytest.raises(TicketsUnavailable, match=r"no answer in 0\."):
                tickets.take("photos")
            assert time.monotonic() - began < 1.5
        assert lookups() == 1
        assert resolver.asked == ["slow-one.example"]
    resolver.go_on.set()
    until(lambda: not lookups())


def test_a_name_that_hangs_leaves_the_other_url_its_share(serve: Serve, resolver: Resolver) -> None:
    port = serve(Honest()).port
    with Tickets([f"http://slow-two.example:{port}", f"http://quick.example:{port}"], timeout=1.0) as tickets:
        assert tickets.take("photos") == 1


def test_a_name_that_was_found_before_is_remembered(serve: Serve, resolver: Resolver) -> None:
    server = serve(Honest())
    resolver.go_on.set()
    with Tickets(f"http://slow-three.example:{server.port}", prefetch=0, timeout=2.0) as tickets:
        assert tickets.take("photos") == 1
        resolver.go_on.clear()
        for number in range(2, 5):
            server.hang_up()
            until(lambda: server.connections == 0)
            assert tickets.take("photos") == 2 * number - 1
        assert lookups() == 1


def test_a_name_that_is_not_found(resolver: Resolver) -> None:
    with Tickets("http://gone.example:1", timeout=0.3) as tickets, pytest.raises(TicketsUnavailable) as caught:
        tickets.take("photos")
    assert "no answer (Name or service not known)" in str(caught.value)


def test_a_loop_goes_on_and_its_client_is_closed_while_a_name_hangs(resolver: Resolver) -> None:
    async def run() -> float:
        tickets = AsyncTickets("http://slow-four.example:1", timeout=30)
        task = asyncio.ensure_future(tickets.take("photos"))
        await asyncio.to_thread(until, lambda: resolver.asked)
        began = time.monotonic()
        task.cancel()
        await tickets.close()
        return time.monotonic() - began

    assert asyncio.run(run()) < 1


def test_a_program_ends_and_a_child_asks_for_itself_while_a_name_hangs() -> None:
    program = """
import os, socket, threading, time, warnings
warnings.simplefilter("ignore")
from ticketd_client import Tickets, TicketsUnavailable
parent = os.getpid()
def resolve(host, port, *_, **__):
    if os.getpid() == parent:
        time.sleep(60)
    raise socket.gaierror(socket.EAI_NONAME, "asked in the child")
socket.getaddrinfo = resolve
tickets = Tickets("http://tickets.example", timeout=0.2)
def trouble():
    try:
        tickets.take("photos")
    except TicketsUnavailable as error:
        return str(error)
print("no answer in 0.2 s" in trouble(), flush=True)
pid = os.fork()
if not pid:
    os._exit(0 if "asked in the child" in trouble() else 1)
print(os.waitpid(pid, 0)[1])
"""
    began = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, env=environment, check=True
    )
    assert ran.stdout == "True\n0\n"
    assert time.monotonic() - began < 20
