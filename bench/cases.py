"""All cases, in the order of every round. Cases that are compared with each other stand close together."""

import time

from ticketd_client import Tickets

from bench.case import Bound, Case, Run
from bench.direct import replaces
from bench.load import redis_benchmark, wrk
from bench.stage import RESERVE, SEQUENCES, Stage

BLOCK, COUNT, PREFETCH = 10_000, 100, 10_000
_WARM_UP = 1.0
"""Seconds of the same load before a measurement with a reserve, which grows with the rate."""
_IDLE = 2.0
"""Seconds after its first ticket when a server's memory is read."""
_WITH_RESERVE = f", TICKETS_RESERVE_SECONDS={RESERVE}"


def _http(path: str, connections: int, *, reserve: int = 0, tickets: int = 1, mode: str = "alike") -> Run:
    def run(stage: Stage, side: str, seconds: float) -> float:
        url = stage.server(side, reserve).url + path
        if reserve:
            wrk(url, connections, _WARM_UP, mode)
        return tickets * wrk(url, connections, seconds, mode)

    return run


def _over_redis(connections: int, pipeline: int, reserve: int) -> Run:
    def run(stage: Stage, side: str, seconds: float) -> float:
        port = stage.server(side, reserve).redis_port
        if reserve:
            redis_benchmark(port, connections, pipeline, _WARM_UP)
        return redis_benchmark(port, connections, pipeline, seconds)

    return run


def _redis(connections: int, pipeline: int) -> Run:
    return lambda stage, _side, seconds: redis_benchmark(stage.redis.port, connections, pipeline, seconds)


def _replaces(tables: int, clients: int) -> Run:
    return lambda stage, _side, seconds: replaces(stage.direct, SEQUENCES[:tables], clients, seconds)


def _nginx(stage: Stage, _side: str, seconds: float) -> float:
    return wrk(f"http://127.0.0.1:{stage.nginx.port}/", 64, seconds)


def _random(stage: Stage, side: str, seconds: float) -> float:
    return wrk(stage.server_of_many(side).url, 64, seconds, "random")


def _client(stage: Stage, side: str, seconds: float) -> float:
    """One thread that takes from the Python client. A block is under way when it begins; all that comes counts."""
    with Tickets(stage.server(side).url, prefetch=PREFETCH, timeout=5) as tickets:
        tickets.take("photos")
        began = now = time.perf_counter()
        taken = 0
        while now - began < seconds:
            for _ in range(1_000):
                tickets.take("photos")
            taken += 1_000
            now = time.perf_counter()
        return taken / (now - began)


def _memory(stage: Stage, side: str, _seconds: float) -> float:
    server = stage.new_server(side, f"{side}_idle")
    try:
        server.start()
        time.sleep(_IDLE)
        return server.resident
    finally:
        server.close()


def _http_cases() -> list[Case]:
    """Single tickets of one sequence over HTTP, with and without a reserve."""
    bounds = {
        "http-1": (Bound(0.6, "replace-1"),),
        "http-64": (Bound(1.2, "replace-64"),),
        "reserve-64": (Bound(0.7, "nginx-64"),),
        "reserve-traced-64": (Bound(0.35, "nginx-64"),),
    }
    cases = []
    for connections in (1, 64, 256):
        for mode in ("alike", "traced") if connections == 64 else ("alike",):
            for reserve in (0, RESERVE):
                name = f"{'reserve' if reserve else 'http'}-{'traced-' * (mode == 'traced')}{connections}"
                title = (
                    f"HTTP, {connections} connection{'s' * (connections > 1)}"
                    + ", each request with another traceparent" * (mode == "traced")
                )
                title += _WITH_RESERVE if reserve else ""
                run = _http("/ticket/photos", connections, reserve=reserve, mode=mode)
                cases.append(Case(name, title, run, bounds.get(name, ())))
    return cases


def _redis_cases() -> list[Case]:
    """Single tickets over the Redis protocol, beside Redis itself."""
    cases = []
    for connections, pipeline, durable, ahead in ((64, 1, 0.5, 0.9), (256, 1, 0.6, 0.9), (64, 16, 0.5, 0.8)):
        end = f"{connections}" + f"x{pipeline}" * (pipeline > 1)
        title = f"{connections} connections" + f", -P {pipeline}" * (pipeline > 1)
        bounds = (Bound(durable, f"redis-{end}"),), (Bound(ahead, f"redis-{end}"),)
        cases += [
            Case(f"resp-{end}", f"Redis protocol, {title}", _over_redis(connections, pipeline, 0), bounds[0]),
            Case(f"redis-{end}", f"Redis, appendfsync always, {title}", _redis(connections, pipeline), is_ours=False),
            Case(
                f"resp-reserve-{end}",
                f"Redis protocol, {title}{_WITH_RESERVE}",
                _over_redis(connections, pipeline, RESERVE),
                bounds[1],
            ),
        ]
    return cases


CASES: tuple[Case, ...] = (
    Case("replace-1", "REPLACE on the same databases, 1 connection to each", _replaces(1, 1), is_ours=False),
    *_http_cases(),
    Case("replace-64", "REPLACE on the same databases, 64 connections to each", _replaces(1, 64), is_ours=False),
    Case("nginx-64", "nginx, one worker, a constant, 64 connections", _nginx, unit="requests/s", is_ours=False),
    Case(
        "count",
        f"lists, count={COUNT}, 16 connections",
        _http(f"/ticket/photos?count={COUNT}", 16, tickets=COUNT),
        (Bound(1.5, "redis-64"),),
    ),
    Case(
        "block",
        f"blocks of {BLOCK:,}, 1 connection",
        _http(f"/block/photos?size={BLOCK}", 1, tickets=BLOCK),
        (Bound(60, "redis-64"),),
    ),
    *_redis_cases(),
    Case("client", f"Python client, one thread, prefetch={PREFETCH:,}", _client, (Bound(1_000_000),)),
    Case("replace-1000", "REPLACE on 1,000 tables, 64 connections to each", _replaces(1000, 64), is_ours=False),
    Case("random", "HTTP, 1,000 sequences at random, 64 connections", _random, (Bound(0.8, "replace-1000"),)),
    Case("memory", "resident memory after the first ticket", _memory, (Bound(128),), unit="MiB", is_cost=True),
)
