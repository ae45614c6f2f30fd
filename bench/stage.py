"""Everything that is compared, started when a case first asks for it and ended with the run."""

import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar, cast

import httpx

from bench import first_tickets, servers
from bench.databases import SEQUENCES, Database, engine, sequences
from bench.instead import PostgreSQL, Redis
from bench.machine import filesystem
from bench.model import CaseFailed, Missing
from bench.redis_benchmark import RedisBenchmark
from bench.servers import WebServer
from tests.harness.engine import Engine
from tests.harness.processes import new_directory, remove_directory

_TICK = os.sysconf("SC_CLK_TCK")


class _Actor(Protocol):
    @property
    def pid(self) -> int: ...

    def stop(self) -> None: ...


_A = TypeVar("_A", bound=_Actor)


class Stage:
    """The servers and databases of a run. Each runs until the run is over; an idle one costs next to nothing."""

    def __init__(self, say: Callable[[str], None], many_sequences: bool, *, binary_log: bool = False) -> None:
        """`many_sequences`: the databases get a thousand of them, which takes a while. `binary_log`: whether the
        databases write one."""
        self.directory = _directory()
        self._say = say
        self._many_sequences = many_sequences
        self._binary_log = binary_log
        self._actors: dict[str, tuple[str, _Actor]] = {}
        self._refusals: dict[str, Exception] = {}
        self._kinds_made: set[str] = set()
        self._every_sequence_used: set[int] = set()
        self._over_redis: dict[tuple[int, tuple[str, ...]], RedisBenchmark] = {}

    @property
    def engine(self) -> Engine:
        """The database server's program."""
        return engine()

    @property
    def databases(self) -> list[Database]:
        """The two ticket databases."""
        if {"database-1", "database-2"} <= self._actors.keys():
            return [self._one_of(1), self._one_of(2)]
        program = self.engine
        with ThreadPoolExecutor(2) as both:
            return list(both.map(lambda number: self._one_of(number, program), (1, 2)))

    @property
    def server(self) -> WebServer:
        """The ticket server on the two databases."""
        return self._ticket_server("server")

    @property
    def second_server(self) -> WebServer:
        """Another one on the same databases."""
        return self._ticket_server("second-server")

    @property
    def embedded(self) -> WebServer:
        """A ticket server on its embedded pair."""
        return self._start(
            "embedded", "server", lambda: servers.ticket_server("embedded", self.directory / "embedded", [])
        )

    @property
    def redis(self) -> Redis:
        """Redis, appendfsync always."""
        return self._start("redis", "redis", lambda: Redis(self.directory / "redis"))

    def server_ahead(self, seconds: int) -> WebServer:
        """A ticket server that draws so many seconds' tickets ahead; 0: `server`."""
        return self._ticket_server(f"ahead-{seconds}", seconds) if seconds else self.server

    def over_redis(self, ahead: int, *words: str) -> RedisBenchmark:
        """What asks such a server for one thing over the Redis protocol."""
        if (ahead, words) not in self._over_redis:
            self._over_redis[ahead, words] = RedisBenchmark(self.server_ahead(ahead).redis_port, *words)
        return self._over_redis[ahead, words]

    @property
    def postgresql(self) -> PostgreSQL:
        """PostgreSQL."""
        return self._start("postgresql", "postgresql", lambda: PostgreSQL(self.directory / "postgresql"))

    def yardstick(self, which: str) -> WebServer:
        """The constant FastAPI route, or bare ASGI."""
        return self._start(which, "server", lambda: servers.yardstick(which, self.directory / which))

    def use_every_sequence(self, ahead: int) -> None:
        """Once for each server: let it draw from each of the thousand sequences, on either database."""
        if ahead not in self._every_sequence_used:
            server = self.server_ahead(ahead)
            self._say(f"first tickets of {SEQUENCES:,} sequences")
            for _ in self.databases:
                first_tickets.measure(server.port, sequences(), 64)
            self._every_sequence_used.add(ahead)

    def make_of_kind(self, kind: str) -> None:
        """Once for each kind: make the sequence of this name and kind."""
        if kind not in self._kinds_made:
            address = f"http://127.0.0.1:{self.server.port}/sequence/bench_{kind}"
            httpx.put(address, json={"kind": kind}, timeout=10).raise_for_status()
            self._kinds_made.add(kind)

    @contextmanager
    def fresh_server(self, ahead: int = 0) -> Iterator[WebServer]:
        """A new ticket server on the two databases, ended at the end. `ahead`: its TICKETS_RESERVE_SECONDS."""
        urls = [database.url for database in self.databases]
        directory = self.directory / "fresh"
        shutil.rmtree(directory, ignore_errors=True)
        server = servers.ticket_server("fresh", directory, urls, ahead)
        try:
            yield server
        finally:
            server.stop()

    def processor_seconds(self) -> Mapping[str, float]:
        """What each part, with its children that have ended, has used of the processors; what asks is `client`."""
        used: dict[str, float] = {}
        for part, actor in self._actors.values():
            try:
                stat = Path(f"/proc/{actor.pid}/stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            fields = stat.rpartition(")")[2].split()
            used[part] = used.get(part, 0.0) + sum(int(field) for field in fields[11:15]) / _TICK
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            usage = resource.getrusage(who)
            used["client"] = used.get("client", 0.0) + usage.ru_utime + usage.ru_stime
        return used

    def last_words(self) -> list[str]:
        """Of every HTTP server that has ended before its time."""
        ended = [actor.last_words() for _part, actor in self._actors.values() if isinstance(actor, WebServer)]
        return [words for words in ended if words]

    def close(self) -> None:
        """End everything, the databases last, and remove the data."""
        for name, (_part, actor) in reversed(self._actors.items()):
            try:
                actor.stop()
            except (OSError, TimeoutError) as error:
                self._say(f"{name} did not end by itself: {error}")
        self._actors.clear()
        remove_directory(self.directory)

    def _one_of(self, number: int, program: Engine | None = None) -> Database:
        many = sequences() if self._many_sequences else []
        return self._start(
            f"database-{number}",
            "databases",
            lambda: Database(
                program or self.engine,
                number,
                2,
                self.directory / f"database-{number}",
                many,
                binary_log=self._binary_log,
            ),
        )

    def _ticket_server(self, name: str, ahead: int = 0) -> WebServer:
        urls = [database.url for database in self.databases]
        return self._start(name, "server", lambda: servers.ticket_server(name, self.directory / name, urls, ahead))

    def _start(self, name: str, part: str, make: Callable[[], _A]) -> _A:
        """Start it, once; what could not be started is not tried again."""
        if name in self._refusals:
            raise self._refusals[name]
        if name not in self._actors:
            self._say(f"starting {name}")
            try:
                self._actors[name] = (part, make())
            except (Missing, CaseFailed) as error:
                self._refusals[name] = error
                raise
            except (OSError, RuntimeError, TimeoutError) as error:
                self._refusals[name] = CaseFailed(f"{name} could not be started: {error}")
                raise self._refusals[name] from error
        return cast(_A, self._actors[name][1])


def _directory() -> Path:
    """A temporary directory on a disk: in memory, a flush would cost nothing."""
    directory = new_directory("ticket-bench-")
    if filesystem(directory) == "tmpfs" and filesystem(Path("/var/tmp")) != "tmpfs":
        remove_directory(directory)
        directory = Path(tempfile.mkdtemp(prefix="ticket-bench-", dir="/var/tmp"))
    directory.chmod(0o711)  # PostgreSQL runs as somebody else and has to pass through
    return directory
