"""The costs of a ticket, a connection and a crash: the measurements behind `python -m bench.capacity`."""

import resource
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import httpx

from bench import wrk
from bench.databases import Database
from bench.model import CaseFailed
from bench.servers import WebServer
from bench.stage import Stage
from tests.harness.load import Load
from tests.harness.processes import wait_until
from tests.harness.ticketd import TicketServer

MANY_CONNECTIONS = 2_000
CLIENTS = 32
"""Clients of the load before a crash."""
SETTLE_SECONDS = 0.5
"""After this time the databases have finished the statements of a server that was killed."""
AHEAD = 2
"""TICKETS_RESERVE_SECONDS of a server that draws ahead."""
PATH = "/ticket/photos"
UNUSED = "accounts"
"""A sequence that nothing else draws from."""
_HTTP = f"GET {PATH} HTTP/1.1\r\nHost: tickets\r\n\r\n".encode()
_REDIS = b"*2\r\n$4\r\nINCR\r\n$6\r\nphotos\r\n"


@dataclass(frozen=True, slots=True)
class TicketCost:
    """The cost of one way to ask for tickets. `rate`: tickets a second. `server`, `databases`: the tickets for each
    second of one core, of the ticket server and of both databases together. `binary_log`: bytes a ticket, in both
    databases."""

    way: str
    title: str
    rate: float
    server: float
    databases: float
    binary_log: float


@dataclass(frozen=True, slots=True)
class ConnectionCost:
    """Memory in KiB. `server`: of a ticket server that has issued one ticket; `http`, `redis`: of one more connection;
    `connections`: how many were open. `to_database`: a server's connections to each database with 256 clients."""

    server: float
    http: float
    redis: float
    connections: int
    to_database: int


@dataclass(frozen=True, slots=True)
class CrashCost:
    """What was killed, how many tickets a second it issued before, and how many tickets nobody gets."""

    what: str
    rate: float
    skipped: int


class _Way(NamedTuple):
    name: str
    title: str
    ask: Callable[[Stage, float], float]
    """Asks for so many seconds. Returns tickets a second."""


def _over_http(
    connections: int, query: str = "", tickets: int = 1, *, path: str = PATH
) -> Callable[[Stage, float], float]:
    def ask(stage: Stage, seconds: float) -> float:
        return wrk.measure([stage.server.port], path + query, connections, seconds, tickets=tickets).rate

    return ask


def _over_redis(ahead: int) -> Callable[[Stage, float], float]:
    def ask(stage: Stage, seconds: float) -> float:
        return stage.over_redis(ahead, "INCR", "photos").measure(64, 1, seconds).rate

    return ask


WAYS = (
    _Way("http-1", "single tickets over HTTP, 1 connection", _over_http(1)),
    _Way("http-16", "single tickets over HTTP, 16 connections", _over_http(16)),
    _Way("http-64", "single tickets over HTTP, 64 connections", _over_http(64)),
    _Way("http-256", "single tickets over HTTP, 256 connections", _over_http(256)),
    _Way("redis-64", "`INCR` over the Redis protocol, 64 connections", _over_redis(0)),
    _Way("ahead-64", f"`INCR`, 64 connections, `TICKETS_RESERVE_SECONDS={AHEAD}`", _over_redis(AHEAD)),
    _Way("count-100", "lists of 100 tickets over HTTP, 16 connections", _over_http(16, "?count=100", 100)),
    _Way(
        "block-10000",
        "blocks of 10,000 tickets over HTTP, 1 connection",
        _over_http(1, "?size=10000", 10_000, path="/block/photos"),
    ),
)


def of_tickets(stage: Stage, seconds: float, say: Callable[[str], None]) -> list[TicketCost]:
    """Ask in each way for so many seconds, after one second that does not count."""
    found = []
    for way in WAYS:
        way.ask(stage, 1.0)
        before = _reading(stage)
        rate = way.ask(stage, seconds)
        after = _reading(stage)
        drawn, server, databases, binary_log = (now - then for now, then in zip(after, before, strict=True))
        if drawn <= 0 or server <= 0 or databases <= 0:
            raise CaseFailed(
                f"{way.name}: {drawn} tickets drawn with {server} s of the server, {databases} s of databases"
            )
        found.append(TicketCost(way.name, way.title, rate, drawn / server, drawn / databases, binary_log / drawn))
        say(f"{way.name}: {rate:,.0f}/s, {drawn / server:,.0f} for a core of the server")
    return found


def _reading(stage: Stage) -> tuple[float, float, float, float]:
    """The tickets drawn so far, the processor seconds of servers and databases, and the bytes of the binary logs."""
    databases = stage.databases
    drawn = sum(database.counter("photos") for database in databases) / len(databases)
    used = stage.processor_seconds()
    logs = sum(database.binary_log_bytes for database in databases)
    return drawn, used.get("server", 0.0), used.get("databases", 0.0), float(logs)


def of_connections(stage: Stage, seconds: float, say: Callable[[str], None]) -> ConnectionCost:
    """Open many connections, each of which asks once and then stays idle. Each protocol gets a new server, because a
    server keeps memory that it has had."""
    count = _open_files(MANY_CONNECTIONS)
    memory = {}
    for protocol, request in (("http", _HTTP), ("redis", _REDIS)):
        with stage.fresh_server() as server:
            port = server.port if protocol == "http" else server.redis_port
            with _idle(port, request, 1):
                alone = server.resident
                with _idle(port, request, count):
                    memory[protocol] = (server.resident - alone) * 1024 / count
    with stage.fresh_server() as server:
        wrk.measure([server.port], PATH, 256, seconds)
        to_database = max(database.connections for database in stage.databases)
    say(f"a connection: {memory['http']:.1f} KiB over HTTP, {memory['redis']:.1f} KiB over the Redis protocol")
    return ConnectionCost(alone * 1024, memory["http"], memory["redis"], count, to_database)


def _open_files(wanted: int) -> int:
    """Raise this process's limit on open files. Returns how many connections it can hold, `wanted` at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted + 200 if hard == resource.RLIM_INFINITY else min(wanted + 200, hard)
    if soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return min(wanted, max(soft, allowed) - 200)


@contextmanager
def _idle(port: int, request: bytes, count: int) -> Iterator[None]:
    """Hold this number of connections open, each after one request and its answer."""
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            connection.sendall(request)
            if not connection.recv(65536):
                raise CaseFailed(f"port {port} closed a connection")
        yield


def of_crashes(stage: Stage, seconds: float, say: Callable[[str], None]) -> list[CrashCost]:
    """Kill, under or after a load of so many seconds, a server, a database, and a server with its embedded pair."""
    found = []
    for ahead in (0, AHEAD):
        setting = f", `TICKETS_RESERVE_SECONDS={ahead}`" if ahead else ""
        with stage.fresh_server(ahead) as server:
            before = _drawn(stage.databases)
            with Load([("127.0.0.1", server.port)], clients=CLIENTS, timeout=2) as load:
                load.run_for(seconds)
                server.process.kill()
            time.sleep(SETTLE_SECONDS)
            answered = load.result.tickets()
        found.append(
            CrashCost(
                f"a ticket server under load{setting}", answered / seconds, _drawn(stage.databases) - before - answered
            )
        )
    with stage.fresh_server() as server:
        found.append(_of_a_database(stage.databases, server, seconds))
    found.append(_of_an_embedded_pair(seconds))
    for cost in found:
        say(f"{cost.what}: {cost.skipped:,} tickets skipped at {cost.rate:,.0f}/s")
    return found


def _drawn(databases: Sequence[Database]) -> int:
    """How many tickets the databases have drawn, from the counters of their tables."""
    return sum(database.counter("photos") for database in databases) // len(databases)


def _of_a_database(databases: Sequence[Database], server: WebServer, seconds: float) -> CrashCost:
    """The first database is killed after the load, and started again; its counter says what it skips. The sequence has
    not been drawn from before: high-water marks of earlier servers would be skipped, too."""
    odd = databases[0]
    with Load([("127.0.0.1", server.port)], clients=CLIENTS, mix=[UNUSED]) as load:
        load.run_for(seconds)
    counter = odd.counter(UNUSED)
    odd.crash()
    url = f"http://127.0.0.1:{server.port}"
    wait_until(lambda: httpx.get(f"{url}/healthz", timeout=10).json()["status"] == "pass", 60, "all databases to be up")
    ids = [int(httpx.get(f"{url}/ticket/{UNUSED}", timeout=10).json()["id"]) for _ in range(2 * len(databases))]
    first = min(each for each in ids if each % len(databases) == odd.offset % len(databases))
    return CrashCost(
        "one of two databases, after the load", load.result.tickets() / seconds, (first - counter) // len(databases)
    )


def _of_an_embedded_pair(seconds: float) -> CrashCost:
    """A server is killed with its embedded pair, after the load, and started again."""
    with TicketServer() as server:
        server.wait_ready()
        with Load([server.address], clients=CLIENTS) as load:
            load.run_for(seconds)
        ids = [each for answer in load.result.answers for each in answer.ids]
        server.restart(kill=True)
        server.wait_ready()
        began = time.monotonic()
        after = [server.ticket("photos") for _ in range(4)]
        while len({each % 2 for each in after}) < 2 and time.monotonic() - began < 30:
            after.append(server.ticket("photos"))
    skipped = 0
    for side in (0, 1):
        last, first = (pick(each for each in some if each % 2 == side) for pick, some in ((max, ids), (min, after)))
        skipped += (first - last) // 2 - 1
    return CrashCost("a ticket server with its embedded pair, after the load", len(ids) / seconds, skipped)
