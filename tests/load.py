"""Callers that take tickets from running servers over HTTP, and keep every answer."""

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Self

import httpx

from tests.servers_processes import wait_until
from tests.ticketd import DEADLINE, TicketServer

LONGEST = 500_000
"""Answers of one load at most, so that it ends by itself."""


class Load:
    """Callers in threads, each with a connection of its own to one of the servers. Use it as a context manager.

    A caller that gets an error, or none at all, goes on with the next server, as behind a load balancer.
    """

    def __init__(self, servers: Sequence[TicketServer], sequence: str = "photos", *, callers: int = 4) -> None:
        self._urls = [f"{server.url}/ticket/{sequence}" for server in servers]
        self.ids: list[int] = []
        """Every ticket that was answered."""
        self.errors: list[str] = []
        """What was answered in place of a ticket: the body of a refusal, or the name of an exception."""
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(number,)) for number in range(callers)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def wait(self, tickets: int) -> None:
        """Return when so many further tickets have come."""
        wanted = len(self.ids) + tickets
        wait_until(lambda: len(self.ids) >= wanted, DEADLINE, f"{tickets} tickets; {Counter(self.errors)}")

    @property
    def repeated(self) -> list[int]:
        """The tickets that came more than once."""
        return [ticket for ticket, times in Counter(self.ids).items() if times > 1]

    def _call(self, number: int) -> None:
        with httpx.Client(timeout=DEADLINE) as client:
            while not self._is_over.is_set() and len(self.ids) < LONGEST:
                try:
                    answer = client.get(self._urls[number % len(self._urls)])
                except httpx.TransportError as error:
                    self._note(type(error).__name__)
                    number += 1
                    continue
                if answer.status_code == 200:
                    self.ids.append(answer.json()["id"])
                else:
                    self._note(answer.text)
                    number += 1

    def _note(self, error: str) -> None:
        self.errors.append(error)
        self._is_over.wait(0.01)
