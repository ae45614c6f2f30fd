"""All cases, in the order of every round. Cases that are compared with each other stand close together."""

import time
from collections.abc import Sequence

from ticketd_client import Tickets

from bench import load
from bench.case import ADDED, RATE, SIZE, TAIL, Bound, Case, Run, Sample
from bench.direct import replaces
from bench.stage import FLICKR, RESERVE, SEQUENCES, Stage

BLOCK, COUNT, PREFETCH = 10_000, 100, 10_000
_WARM_UP = 1
"""Seconds of the same load before a measurement with a reserve, which grows with each sequence's rate."""
_WARM_UP_OF_MANY = 4
_IDLE = 2.0
"""Seconds after its first ticket when a server's memory is read."""
_SINGLE = "/ticket/photos"


def _http(connections: int, reserve: int = 0, *, path: str = _SINGLE, tickets: int = 1, mode: str = "alike") -> Run:
    """tickets: how many each answer has. mode: see load.lua."""

    def run(stage: Stage, side: str, seconds: int) -> Sample:
        server = stage.server_of_many(side, reserve) if mode == "random" else stage.server(side, reserve)
        if reserve:
            load.wrk(server.url + path, connections, _WARM_UP_OF_MANY if mode == "random" else _WARM_UP, mode)
        answers = load.wrk(server.url + path, connections, seconds, mode)
        return answers._replace(value=tickets * answers.value)

    return run


def _resp(connections: int, pipeline: int = 1, reserve: int = 0) -> Run:
    def run(stage: Stage, side: str, seconds: int) -> Sample:
        port = stage.server(side, reserve).redis_port
        if reserve:
            load.redis_benchmark(port, connections, pipeline, _WARM_UP)
        return load.redis_benchmark(port, connections, pipeline, seconds)

    return run


def _client(stage: Stage, side: str, seconds: int) -> Sample:
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
        return Sample(taken / (now - began))


def _memory(stage: Stage, side: str, _seconds: int) -> Sample:
    server = stage.new_server(side, f"{side}_idle")
    try:
        server.start()
        time.sleep(_IDLE)
        return Sample(server.resident)
    finally:
        server.close()


def _redis(kind: str, connections: int, pipeline: int = 1) -> Run:
    return lambda stage, _, seconds: load.redis_benchmark(stage.other(kind), connections, pipeline, seconds)


def _constant(kind: str, connections: int) -> Run:
    return lambda stage, _, seconds: load.wrk(f"http://127.0.0.1:{stage.other(kind)}/", connections, seconds)


def _replaces(tables: Sequence[str], clients: int) -> Run:
    return lambda stage, _, seconds: replaces(stage.direct, tables, clients, seconds)


def _nextval(connections: int) -> Run:
    return lambda stage, _, seconds: load.pgbench(stage.postgresql, connections, seconds)


def _ours(name: str, title: str, run: Run, *bounds: Bound, unit: str = "tickets/s") -> Case:
    return Case(name, title, run, bounds, unit)


def _other(name: str, title: str, run: Run, unit: str = "tickets/s") -> Case:
    return Case(name, title, run, (), unit, is_ours=False)


CASES: tuple[Case, ...] = (
    _other("replace-1", "REPLACE, the server's keys, 1 connection", _replaces(SEQUENCES[:1], 1)),
    _ours("http-1", "HTTP, 1 connection", _http(1), Bound(0.15, "replace-1", ADDED)),
    _ours("reserve-1", "HTTP, with a reserve, 1 connection", _http(1, RESERVE)),
    _other("flickr-64", "REPLACE, Flickr's keys, 64 connections", _replaces([FLICKR], 64)),
    _other("pgbench-64", "PostgreSQL, nextval made durable, 64 connections", _nextval(64), "values/s"),
    _other("fastapi-64", "FastAPI, a constant, 64 connections", _constant("fastapi", 64), "requests/s"),
    _other("replace-64", "REPLACE, the server's keys, 64 connections", _replaces(SEQUENCES[:1], 64)),
    _ours("http-64", "HTTP, 64 connections", _http(64), Bound(0.3, "nginx-64"), Bound(1.2, "replace-64")),
    _other("nginx-64", "nginx, one worker, a constant, 64 connections", _constant("nginx", 64), "requests/s"),
    _ours("reserve-64", "HTTP, with a reserve, 64 connections", _http(64, RESERVE), Bound(0.8, "nginx-64")),
    _ours(
        "reserve-traced-64",
        "HTTP, with a reserve, each request with another traceparent, 64 connections",
        _http(64, RESERVE, mode="traced"),
        Bound(0.4, "nginx-64"),
    ),
    _ours("http-256", "HTTP, 256 connections", _http(256), Bound(0.55, "nginx-256"), Bound(3, measure=TAIL)),
    _other("nginx-256", "nginx, one worker, a constant, 256 connections", _constant("nginx", 256), "requests/s"),
    _ours("reserve-256", "HTTP, with a reserve, 256 connections", _http(256, RESERVE), Bound(0.8, "nginx-256")),
    _ours(
        "reserve-traced-256",
        "HTTP, with a reserve, each request with another traceparent, 256 connections",
        _http(256, RESERVE, mode="traced"),
        Bound(0.4, "nginx-256"),
    ),
    _ours("resp-64", "Redis protocol, 64 connections", _resp(64), Bound(0.6, "redis-64")),
    _other("redis-64", "Redis, appendfsync always, 64 connections", _redis("redis", 64)),
    _ours(
        "count",
        f"HTTP, lists, count={COUNT}, 16 connections",
        _http(16, path=f"{_SINGLE}?count={COUNT}", tickets=COUNT),
        Bound(1.5, "redis-64"),
    ),
    _ours(
        "block",
        f"HTTP, blocks of {BLOCK:,}, 1 connection",
        _http(1, path=f"/block/photos?size={BLOCK}", tickets=BLOCK),
        Bound(60, "redis-64"),
    ),
    _ours(
        "resp-reserve-64",
        "Redis protocol, with a reserve, 64 connections",
        _resp(64, reserve=RESERVE),
        Bound(1, "redis-memory-64"),
    ),
    _other("redis-memory-64", "Redis, without persistence, 64 connections", _redis("redis-memory", 64)),
    _ours("resp-256", "Redis protocol, 256 connections", _resp(256), Bound(0.8, "redis-256")),
    _other("redis-256", "Redis, appendfsync always, 256 connections", _redis("redis", 256)),
    _ours("resp-64x16", "Redis protocol, 64 connections, -P 16", _resp(64, 16), Bound(0.9, "redis-64x16")),
    _other("redis-64x16", "Redis, appendfsync always, 64 connections, -P 16", _redis("redis", 64, 16)),
    _ours(
        "client",
        f"Python client, one thread, prefetch={PREFETCH:,}",
        _client,
        Bound(1_500_000, measure=RATE),
    ),
    _other("replace-1000", "REPLACE on 1,000 tables at random, 64 connections", _replaces(SEQUENCES, 64)),
    _ours(
        "reserve-random-64",
        "HTTP, with a reserve, 1,000 sequences at random, 64 connections",
        _http(64, RESERVE, path="", mode="random"),
        Bound(3, "replace-1000"),
    ),
    _ours("memory", "resident memory after the first ticket", _memory, Bound(60, measure=SIZE), unit="MiB"),
)
