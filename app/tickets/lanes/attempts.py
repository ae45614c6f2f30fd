"""The end of an attempt: a request that has waited in one place long enough is let go, and asks elsewhere."""

import asyncio
from typing import Protocol

EXPIRY_SECONDS = 0.02
"""How often the timer looks for requests to let go, while any request waits."""


class Place(Protocol):
    """Where requests wait: a lane, or a reserve."""

    @property
    def waiting(self) -> bool:
        """Whether any request waits here."""

    def expire(self, now: float) -> None:
        """Let every request go whose `until` is not after `now`, a time of the event loop."""


class Attempts:
    """The one timer that ends attempts, at every place.

    Attributes:
        seconds: how long one attempt lasts; the caller sets a request's `until` by it.
        watched: the places that the timer looks at. A place that is in here need not be given to `watch` again.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.watched: set[Place] = set()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        timer = "" if self._timer is None else ", timer set"
        return f"{len(self.watched)} places watched{timer}"

    def watch(self, place: Place) -> None:
        """A request waits at this place from now on."""
        self.watched.add(place)
        if self._timer is None:
            self._timer = self._loop.call_later(EXPIRY_SECONDS, self._expire)

    def _expire(self) -> None:
        now = self._loop.time()
        places, self._timer = [*self.watched], None
        self.watched.clear()
        try:
            for place in places:
                place.expire(now)  # a request that is let go may ask another lane, and start the timer, at once
        finally:
            for place in places:
                if place.waiting:
                    self.watch(place)
