"""Attempts that are denied: counted, told in a line a minute, and slowed down where they might be guesses."""

import asyncio
import logging
from collections import Counter
from typing import Any, Protocol

from app.clients.tokens import short_name
from app.common.log import event
from app.common.summed_log import SummedLog

log = logging.getLogger(__name__)

FREE_GUESSES = 10
"""Wrong tokens in one second that are answered at once."""
PAUSE_SECONDS = 1.0
"""How long every further one waits for its answer: a guess costs a connection for so long."""


class DenialObserver(Protocol):
    """Is told of every attempt that was denied."""

    def denied(self, what: str) -> None:
        """Count that a client was denied `what`: tickets, reading or changes."""


class Denials:
    """Counts denied attempts, logs them (see SummedLog), and slows guesses down."""

    def __init__(self, observer: DenialObserver) -> None:
        self._observer = observer
        self._since: Counter[str] = Counter()
        self._last: tuple[str, bytes] = ("", b"")
        self._told = SummedLog(self._tell)
        self._second = 0
        self._guesses = 0

    def add(self, what: str, client: str, token: bytes) -> None:
        """Note that a client was denied `what`: tickets, reading or changes. `client`: its address; `token`: as sent
        as one, empty where it was none; the log shows its `short_name`."""
        self._observer.denied(what)
        self._since[what] += 1
        self._last = client, token
        self._told.add()

    def _tell(self) -> None:
        client, token = self._last
        counts: dict[str, Any] = dict(self._since)
        event(log, logging.WARNING, "denied", **counts, last_client=client, last_token=short_name(token))
        self._since.clear()

    def pause_after_guess(self) -> float:
        """How long the answer to a wrong token has to wait, in seconds: mostly not at all."""
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self._second, self._guesses = second, 0
        self._guesses += 1
        return 0.0 if self._guesses <= FREE_GUESSES else PAUSE_SECONDS
