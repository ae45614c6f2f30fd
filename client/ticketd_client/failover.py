"""Which URL is asked, and which next."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ticketd_client.answers import AttemptFailed
from ticketd_client.errors import Answer, TicketsUnavailable
from ticketd_client.servers import Server

T = TypeVar("T")

PAUSE = 0.05  # seconds between asking all and asking them again, while there is time; the next is twice as long


class Failover:
    """The servers in turn. One that failed rests while there is another."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.servers = servers
        self._turn = 0

    def ask(self, question: Callable[[Server, float], T], deadline: float, what: str) -> T:
        """The first answer. `question` is asked of a server, with the deadline of this attempt.

        An attempt may take the time that is left, divided by the number of URLs that can still be asked in it. So a
        server that is slow leaves the others their share. Raises TicketsUnavailable, and what `question` raises.
        """
        pause = PAUSE
        while True:
            order = self._order()
            for number, server in enumerate(order):
                now = time.monotonic()
                if now >= deadline:
                    break
                if server.wants_rest_until <= now:
                    others = sum(other.wants_rest_until <= now for other in order[number + 1 :])
                    try:
                        answer = question(server, now + (deadline - now) / (1 + others))
                    except AttemptFailed as failure:
                        server.failed(failure)
                    else:
                        server.gave()
                        return answer
            now = time.monotonic()
            until = max(now + pause, min(server.wants_rest_until for server in order))
            if until >= deadline:
                raise self.unavailable(what)
            time.sleep(until - now)
            pause *= 2

    def unavailable(self, what: str) -> TicketsUnavailable:
        """The error that lists what each URL answered last."""
        said = [server.says or Answer(server.url, "no answer in time") for server in self.servers]
        return TicketsUnavailable(f"{what}: {'; '.join(f'{each.url}: {each.says}' for each in said)}", said)

    def _order(self) -> list[Server]:
        """The servers in turn; then those that rest, the one whose rest ends first before the others."""
        now, turn = time.monotonic(), self._turn
        self._turn = (turn + 1) % len(self.servers)
        turned = [*self.servers[turn:], *self.servers[:turn]]
        return sorted(turned, key=lambda server: server.rests_until if server.rests_until > now else 0.0)
