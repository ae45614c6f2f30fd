"""Callers that draw from running servers over HTTP, and judge what they get.

- No id twice, whichever server handed it out.
- The single ids and lists of one server from one database increase, and so do its blocks: seen on each connection.
- Once a bump was answered, every id that is asked for later is above it.
"""

import http.client
import json
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Self

from tests.servers_processes import DEADLINE, wait_until

SEQUENCES = ("photos", "accounts", "groups")
PATHS = {"/ticket/{}": (70, 1), "/ticket/{}?count={}": (20, 60), "/block/{}?size={}": (10, 2_000)}
"""How many of 100 mixed requests have each path, and how many tickets such a request wants at most."""
THINK = 0.05
"""Mean seconds between an answer and the caller's next request."""
MOST_KEPT = 100
"""How many violations are described."""


class Load:
    """Callers in threads, each with a connection of its own to one of the servers. Use it as a context manager.

    servers: anything with a `url`. callers: for each server. mixed: whether they draw lists and blocks too, and from
    all SEQUENCES, not only photos. is_one: whether each address is that of a single server, so that its ids increase.
    increment: of the ring.
    """

    def __init__(
        self, *servers: Any, callers: int = 3, mixed: bool = False, is_one: bool = True, increment: int = 2
    ) -> None:
        self._mixed, self._is_one, self._increment = mixed, is_one, increment
        self._givers = {sequence: bytearray() for sequence in SEQUENCES}
        """For each id the number of the server that gave it, from 1, or 0."""
        self.floors = dict.fromkeys(SEQUENCES, 0)
        """For each sequence, the number that an answered bump has passed; the caller that bumps sets it."""
        self.highest = dict.fromkeys(SEQUENCES, 0)
        self.latest: deque[int] = deque(maxlen=50)
        """The last ticket of each of the last answers."""
        self.answered = dict.fromkeys(range(1, len(servers) + 1), 0.0)
        """When each server has given a ticket last, in seconds of the monotonic clock."""
        self.count, self.silence = 0, 0.0
        """How many tickets came, and the longest time without one, in seconds."""
        self.errors: Counter[str] = Counter()
        """What was answered in place of a ticket: the body of a refusal, or the name of an exception."""
        self.violations: list[str] = []
        self._lock, self._is_over = threading.Lock(), threading.Event()
        self._threads = [
            threading.Thread(target=self._call, args=(number, server.url.removeprefix("http://")))
            for number, server in enumerate(servers, 1)
            for _ in range(callers)
        ]

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
        wanted = self.count + tickets
        wait_until(lambda: self.count >= wanted, DEADLINE, f"{tickets} tickets")

    def wait_for_each(self, increment: int = 2) -> None:
        """Return when the latest tickets come from the databases at all offsets of a ring."""
        wanted = set(range(increment))
        wait_until(lambda: {each % increment for each in list(self.latest)} == wanted, DEADLINE, "all databases")

    def check(self, *, errors: bool = False) -> None:
        """Fail where a promise was broken, or a caller got an error that is not expected."""
        assert self.violations == []
        assert errors or not self.errors, self.errors

    def violate(self, words: str) -> None:
        """Note a violation of a promise."""
        if len(self.violations) < MOST_KEPT:
            self.violations.append(words)

    def _call(self, number: int, address: str) -> None:
        connection, highest = http.client.HTTPConnection(address, timeout=DEADLINE), Counter[tuple[str, int, bool]]()
        while not self._is_over.wait(random.expovariate(1 / THINK)):
            if connection.sock is None:
                highest.clear()
            try:
                self._draw(number, connection, highest)
            except (OSError, http.client.HTTPException) as error:
                self.errors[type(error).__name__] += 1
                connection.close()
        connection.close()

    def _draw(
        self, number: int, connection: http.client.HTTPConnection, highest: Counter[tuple[str, int, bool]]
    ) -> None:
        sequence, path = "photos", "/ticket/{}"
        if self._mixed:
            (path,) = random.choices(list(PATHS), [share for share, _ in PATHS.values()])
            sequence = random.choice(SEQUENCES)
        above = self.floors[sequence]
        connection.request("GET", path.format(sequence, random.randint(1, PATHS[path][1])))
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            self.errors[text.decode()] += 1
            return
        body = json.loads(text)
        ids: Sequence[int] = body.get("ids") or [body.get("id")]
        if "first" in body:
            ids = range(body["first"], body["first"] + body["size"] * body["step"], body["step"])
        if self._is_one:
            lane = sequence, ids[0] % self._increment, "first" in body
            above, highest[lane] = max(above, highest[lane]), ids[-1]
        with self._lock:
            self._judge(number, sequence, ids, above)

    def _judge(self, number: int, sequence: str, ids: Sequence[int], above: int) -> None:
        now = time.monotonic()
        if self.count:
            self.silence = max(self.silence, now - max(self.answered.values()))
        self.answered[number] = now
        self.count += len(ids)
        self.latest.append(ids[-1])
        self.highest[sequence] = max(self.highest[sequence], ids[-1])
        if any(one >= other for one, other in zip([above, *ids], ids, strict=False)):
            self.violate(f"order or bump: server {number} gave {ids} of {sequence} after {above}")
        givers = self._givers[sequence]
        givers.extend(bytes(max(0, max(ids) + 1 - len(givers))))
        for run in [ids] if isinstance(ids, range) else [range(each, each + 1) for each in ids]:
            given = slice(run.start, run.stop, run.step)
            if others := {*givers[given]} - {0}:
                self.violate(f"twice: server {number} gave {run.start} of {sequence} or ids above, as did {others}")
            givers[given] = bytes([number]) * len(run)
