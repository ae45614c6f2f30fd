"""Which URL is asked, and which next."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ticketd_client.answers import AttemptFailed
from ticketd_client.errors import Answer, TicketsUnavailable
from ticketd_client.servers import Server
from ticketd_client.workers import Workers

log = logging.getLogger("ticketd_client")

T = TypeVar("T")

PAUSE = 0.05
"""Seconds between asking all and asking them again, while there is time; the next pause is twice as long."""
FIRST_REST, LONGEST_REST = 0.5, 30.0
"""Seconds for which a URL that failed is not asked while there is another; doubled each time."""
LOOK_SECONDS = 2.0


class _Place:
    """One URL and how it fares. Threads write its few numbers without a lock: any of them is right."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.well = True
        self.failures = 0
        self.rests_until = 0.0
        self.wants_rest_until = 0.0
        self.looked_at = False
        self.says: Answer | None = None

    def gave(self) -> None:
        """It gave what was asked for."""
        self.seems_well()
        self.failures = 0
        self.says = None

    def seems_well(self) -> None:
        """It says that it could. Its next rest is as long as if it had not said so, until it has done it."""
        if not self.well:
            log.info("%s answers again", self.server.url)
        self.well = True
        self.rests_until = self.wants_rest_until = 0.0

    def failed(self, failure: AttemptFailed) -> Answer:
        """It did not."""
        says = self.server.hide(failure.says)
        if self.well:
            log.warning("%s: %s", self.server.url, says)
        now = time.monotonic()
        self.well = False
        self.rests_until = now + min(FIRST_REST * 2 ** min(self.failures, 10), LONGEST_REST)
        self.failures += 1
        if failure.retry_after is not None:
            self.wants_rest_until = now + failure.retry_after
        self.says = Answer(self.server.url, says, failure.status)
        return self.says


class Failover:
    """The servers in turn. One that failed rests, and is looked at in the background before it is asked again."""

    def __init__(self, servers: Sequence[Server], workers: Workers, patience: float | None) -> None:
        """`patience`: seconds after its first failure for which a question is asked again while none of the servers
        has ever given anything; None: to its deadline."""
        self.workers = workers
        self._patience = patience
        self._places = [_Place(server) for server in servers]
        self._turn = 0

    def begin_anew(self) -> None:
        """In the child of a fork, where no other thread is left."""
        for place in self._places:
            place.looked_at = False
            place.server.forget_connections()

    def close(self) -> None:
        """Close the connections."""
        for place in self._places:
            place.server.close()

    def ask(self, question: Callable[[Server, float], T], deadline: float, what: str, changes: bool = False) -> T:
        """The first answer. `question` is asked of a server, with the deadline of this attempt.

        An attempt may take the time that is left, divided by the number of URLs that can still be asked in it. So a
        server that is slow leaves the others their share, and the last one has all that is left. `changes`: only the
        servers over whose protocol sequences are made and advanced are asked.

        Raises TicketsUnavailable, and what else `question` raises.
        """
        able = [place for place in self._places if place.server.administers or not changes]
        said = {
            place.server.url: Answer(place.server.url, "cannot make or advance a sequence: that takes an http:// URL")
            for place in self._places
            if place not in able
        }
        pause = PAUSE
        asked_until = deadline
        while able:
            order = [place for place in self._order() if place in able]
            for number, place in enumerate(order):
                now = time.monotonic()
                if now >= deadline:
                    break
                if place.wants_rest_until > now:
                    if place.says is not None:
                        said.setdefault(place.server.url, place.says)
                    continue
                others = sum(other.wants_rest_until <= now for other in order[number + 1 :])
                share = now + (deadline - now) / (1 + others)
                try:
                    answer = question(place.server, share)
                except AttemptFailed as failure:
                    said.pop(place.server.url, None)
                    said[place.server.url] = place.failed(failure)
                else:
                    self._patience = None
                    place.gave()
                    return answer
            now = time.monotonic()
            if self._patience is not None:
                asked_until = min(asked_until, now + self._patience)
            until = max(now + pause, min(place.wants_rest_until for place in order))
            if until >= asked_until:
                break
            time.sleep(until - now)
            pause *= 2
        raise self.unavailable(what, said.values())

    def unavailable(self, what: str, said: Iterable[Answer] | None = None) -> TicketsUnavailable:
        """The error that lists what each URL answered last; to this request, where `said` is given."""
        listed = list(said) if said is not None else [place.says for place in self._places if place.says is not None]
        asked = {answer.url for answer in listed}
        silent = [place.server.url for place in self._places if place.server.url not in asked]
        nothing = "no answer in time" if said is None else "not asked in time"
        texts = [f"{answer.url}: {answer.says}" for answer in listed] + [f"{url}: {nothing}" for url in silent]
        return TicketsUnavailable(f"{what}: {'; '.join(texts)}", listed)

    def _order(self) -> list[_Place]:
        """Those that are well, in turn; then the others, the one whose rest ends first before the rest of them."""
        places = self._places
        turn, self._turn = self._turn, (self._turn + 1) % len(places)
        turned = places[turn:] + places[:turn]
        well = [place for place in turned if place.well]
        ill = sorted((place for place in turned if not place.well), key=lambda place: place.rests_until)
        if well:
            for place in ill:
                self._look_at(place)
        return well + ill

    def _look_at(self, place: _Place) -> None:
        """Find out, where it has rested, whether it is well again. Nobody waits for it."""
        now = time.monotonic()
        if place.looked_at or now < max(place.rests_until, place.wants_rest_until):
            return
        place.looked_at = True
        asker = threading.get_ident()

        def look() -> None:
            try:
                if threading.get_ident() != asker:  # else there are no threads to be had: the next request finds it out
                    place.server.look(time.monotonic() + LOOK_SECONDS)
            except AttemptFailed as failure:
                place.failed(failure)
            except Exception as error:  # whatever it is, it is not well
                place.failed(AttemptFailed(type(error).__name__))
            else:
                place.seems_well()
            finally:
                place.looked_at = False

        try:
            self.workers.run(look)
        except BaseException:  # an interrupt: a later request has it looked at
            place.looked_at = False
            raise
