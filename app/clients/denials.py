"""Attempts that are denied: counted, told in a line a minute, and slowed down where they might be guesses."""

import asyncio
import logging
from collections import Counter
from typing import Any, Protocol

from app.clients.tokens import short_name
from app.common.log import event

log = logging.getLogger(__name__)

SUM_SECONDS = 60.0
"""How often the attempts since the last line are summed up in one."""
FREE_GUESSES = 10
"""Wrong tokens in one second that are answered at once."""
PAUSE_SECONDS = 1.0
"""How long every further one waits for its answer: a guess costs a connection for so long."""


class DenialObserver(Protocol):
    """Is told of every attempt that was denied."""

    def denied(self, what: str) -> None:
        """Somebody was denied `what`: tickets, reading or changes."""


class Denials:
    """The first one is told at once. What follows within a minute is one line: a stranger cannot fill the log."""

    def __init__(self, observer: DenialObserver) -> None:
        self._observer = observer
        self._since: Counter[str] = Counter()
        self._last: tuple[str, bytes] = ("", b"")
        self._timer: asyncio.TimerHandle | None = None
        self._second = 0
        self._guesses = 0

    def add(self, what: str, client: str, token: bytes) -> None:
        """Somebody was denied `what`: tickets, reading or changes. `client`: their address; `token`: what they sent
        as one, empty where it was none; the log shows its `short_name`."""
        self._observer.denied(what)
        self._since[what] += 1
        self._last = client, token
        if self._timer is None:
            self._tell()

    def _tell(self) -> None:
        self._timer = None
        if self._since:
            client, token = self._last
            counts: dict[str, Any] = dict(self._since)
            event(log, logging.WARNING, "denied", **counts, last_client=client, last_token=short_name(token))
            self._since.clear()
            self._timer = asyncio.get_running_loop().call_later(SUM_SECONDS, self._tell)

    def pause_after_guess(self) -> float:
        """How long the answer to a wrong token has to wait, in seconds: mostly not at all."""
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self._second, self._guesses = second, 0
        self._guesses += 1
        return 0.0 if self._guesses <= FREE_GUESSES else PAUSE_SECONDS
