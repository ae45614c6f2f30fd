"""Many clients at once on the ticket servers, every answer recorded.

The clients speak HTTP/1.1 over sockets of their own (a ready-made client would cost more than the server does). They
run in an event loop in a thread of its own: the test goes on killing databases meanwhile.

    with Load([server.address], clients=32) as load:
        pair.odd.kill()
        load.run_for(2)
    assert load.result.failures() == []
    load.result.check()
"""

import asyncio
import json
import random
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.harness import history
from tests.harness.history import Answer, Kind, Violation

Address = tuple[str, int]


class Want(NamedTuple):
    """One kind of request in the mix; `weight` says how often it is made, beside the others."""

    sequence: str
    kind: Kind = "single"
    size: int = 1
    weight: float = 1

    @property
    def path(self) -> str:
        if self.kind == "single":
            return f"/ticket/{self.sequence}"
        if self.kind == "count":
            return f"/ticket/{self.sequence}?count={self.size}"
        return f"/block/{self.sequence}?size={self.size}"


@dataclass
class Result:
    """The answers that the clients have recorded. Times are `time.monotonic()`."""

    answers: list[Answer] = field(default_factory=list)

    def __repr__(self) -> str:
        return (
            f"<Result {len(self.answers)} requests, {self.tickets()} tickets, statuses {dict(self.statuses())}, "
            f"slowest {self.slowest():.3f} s>"
        )

    def violations(self, increment: int = 2) -> list[Violation]:
        """Every broken promise: duplicates, malformed answers, disorder."""
        return history.violations(self.answers, increment=increment)

    def check(self, increment: int = 2) -> None:
        """Fail with the first broken promises, if there are any, or if there was not one ticket."""
        found = self.violations(increment)
        assert not found, f"{len(found)} violations:\n" + "\n".join(map(str, found[:20]))
        assert self.tickets() > 0, f"not one ticket: {self!r}, {self.failures()[:5]}"

    def duplicates(self, increment: int = 2) -> list[Violation]:
        return history.duplicates(self.answers, increment)

    def tickets(self, sequence: str | None = None) -> int:
        """How many tickets were handed out, of one sequence or of all."""
        return history.tickets(each for each in self.answers if sequence in (None, each.sequence))

    def statuses(self) -> Counter[int]:
        return history.statuses(self.answers)

    def failures(self) -> list[Answer]:
        """Requests without a 200; status 0 where no answer came at all, with the reason in `error`."""
        return history.failures(self.answers)

    def slowest(self) -> float:
        return history.slowest(self.answers)

    def percentile(self, share: float, begin: float = 0, end: float = float("inf")) -> float:
        """Seconds, over the requests asked from `begin` to `end`."""
        return history.percentile(history.between(self.answers, begin, end), share)

    def p99(self, begin: float = 0, end: float = float("inf")) -> float:
        return self.percentile(0.99, begin, end)

    def between(self, begin: float, end: float) -> "Result":
        """The requests asked in this stretch of time."""
        return Result(history.between(self.answers, begin, end))

    def longest_outage(self, begin: float, end: float) -> float:
        """The longest stretch in which nobody got a ticket."""
        return history.longest_outage(self.answers, begin, end)


class Load:
    """Clients that ask without pause, each on one connection at a time, the servers in turn.

    Starts with the `with`, ends with it; `result` may be read at any time. A request without an answer within
    `timeout` is recorded with status 0, and so is a connection that breaks; the client goes on with the next server.
    """

    def __init__(
        self,
        servers: Sequence[Address],
        *,
        clients: int = 8,
        mix: Sequence[Want | str] = ("photos",),
        timeout: float = 10,
        pause: float = 0,
        hop: int = 1,
        headers: str = "",
        tls: ssl.SSLContext | None = None,
        seed: int = 1,
        record: Callable[[Answer], None] | None = None,
    ) -> None:
        """`mix`: what is asked for; a bare name stands for single tickets. `pause`: seconds that a client waits between
        requests. `hop`: how many requests a client sends to one server before it goes on to the next. `headers`: more
        header lines, each ended with CRLF. `tls`: for servers that speak TLS, what their certificate is verified with.
        `record` takes every answer in place of `result`, which would hold them all.
        """
        self.result = Result()
        self._servers = list(servers)
        self._clients = clients
        self._mix = [Want(each) if isinstance(each, str) else each for each in mix]
        self._timeout = timeout
        self._pause = pause
        self._hop = hop
        self._requests: dict[int, dict[Want, bytes]] = {}
        self.change_headers(headers)
        self._tls = tls
        self._seed = seed
        self._record = record or self.result.answers.append
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> Result:
        """Let every client finish its request, and end."""
        self._stopping.set()
        self._thread.join(self._timeout + 10)
        assert not self._thread.is_alive(), "the load does not end"
        if self._failure is not None:
            raise self._failure
        return self.result

    def change_headers(self, headers: str, clients: Iterable[int] | None = None) -> None:
        """Have these clients, by their numbers from 0, or all of them send these header lines from their next request
        on."""
        requests = {want: f"GET {want.path} HTTP/1.1\r\nHost: tickets\r\n{headers}\r\n".encode() for want in self._mix}
        self._requests |= dict.fromkeys(range(self._clients) if clients is None else clients, requests)

    def run_for(self, seconds: float) -> None:
        """Let it run for so long."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and self._thread.is_alive():
            time.sleep(min(left, 0.1))

    def run_until_tickets(self, number: int, timeout: float = 30) -> None:
        """Let it run until so many more answers with tickets have come."""
        seen = len(self.result.answers)
        deadline = time.monotonic() + timeout
        more = 0
        while more < number:
            assert time.monotonic() < deadline, f"{more} of {number} answers within {timeout} s; {self.result!r}"
            assert self._thread.is_alive(), "the load has ended"
            time.sleep(0.01)
            now = len(self.result.answers)
            more += sum(answer.status == 200 for answer in self.result.answers[seen:now])
            seen = now

    def _run(self) -> None:
        try:
            asyncio.run(self._all_clients())
        except BaseException as error:  # raised again by stop()
            self._failure = error

    async def _all_clients(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self._clients):
                group.create_task(self._client(number))

    async def _client(self, number: int) -> None:
        chance = random.Random(self._seed * 100_003 + number)
        weights = [want.weight for want in self._mix]
        connections: dict[Address, _Connection] = {}
        turn = number
        try:
            while not self._stopping.is_set():
                server = self._servers[turn // self._hop % len(self._servers)]
                turn += 1
                want = self._mix[0] if len(self._mix) == 1 else chance.choices(self._mix, weights)[0]
                connection = connections.setdefault(server, _Connection(server, self._tls))
                answer = await self._ask(connection, want, self._requests[number][want])
                self._record(answer)
                if answer.status == 0:
                    connections.pop(server).close()
                    await asyncio.sleep(0.005)
                if self._pause:
                    await asyncio.sleep(self._pause)
        finally:
            for connection in connections.values():
                connection.close()

    async def _ask(self, connection: "_Connection", want: Want, request: bytes) -> Answer:
        asked_at = time.monotonic()
        status, body, error = 0, b"", ""
        try:
            async with asyncio.timeout(self._timeout):
                status, body = await connection.exchange(request)
        except (OSError, EOFError, TimeoutError, ValueError) as problem:
            error = repr(problem)
        arrived_at = time.monotonic()
        ids: Sequence[int] = ()
        if status == 200:
            try:
                ids = read_ids(want, body)
            except (ValueError, KeyError, TypeError) as problem:
                error = repr(problem)  # a 200 without the tickets expected: malformed to the checker
        elif status:
            error = body[:300].decode(errors="replace")
        return Answer(want.sequence, connection.name, want.kind, want.size, asked_at, arrived_at, status, ids, error)


class _Connection:
    """One connection of one client, opened when first used."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None) -> None:
        self.name = f"{address[0]}:{address[1]}"
        self._address = address
        self._tls = tls
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address, ssl=self._tls)
        reader, writer = self._streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower()
        begin = lines.index(b"\r\ncontent-length:") + 17
        body = await reader.readexactly(int(lines[begin : lines.index(b"\r\n", begin)]))
        if b"\r\nconnection: close" in lines:
            self.close()
        return int(head[9:12]), body

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


def read_ids(want: Want, body: bytes) -> Sequence[int]:
    """The ids of a 200, each form of it held against the others; ValueError or KeyError where it is not as promised."""
    answer: dict[str, Any] = json.loads(body)
    if answer["sequence"] != want.sequence:
        raise ValueError(f"asked for {want.sequence}: {answer}")
    if want.kind == "block":
        if str(answer["first"]) != answer["first_str"]:
            raise ValueError(f"first and first_str differ: {answer}")
        return range(answer["first"], answer["first"] + answer["step"] * answer["size"], answer["step"])
    ids: list[int] = [answer["id"]] if want.kind == "single" else answer["ids"]
    as_text = [answer["id_str"]] if want.kind == "single" else answer["ids_str"]
    if [str(each) for each in ids] != as_text or answer.get("count", 1) != len(ids):
        raise ValueError(f"numbers, strings and count differ: {answer}")
    return tuple(ids)
