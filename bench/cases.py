"""All cases, in the order of every round. Cases that are compared with each other stand close together."""

import time
from collections.abc import Callable, Sequence

from bench import direct, first_tickets, web_client, wrk
from bench.case import Case
from bench.databases import FLICKR_INNODB, FLICKR_MYISAM, SEQUENCES, STUB_FIRST, sequences
from bench.model import CaseFailed, Sample
from bench.stage import Stage

DIRECT = "Direct: an application on the two databases in turn"
SERVER = "The ticket server on the same two databases"
GROWTH = "Many sequences, used at random, 64 connections"
YARDSTICK = "Yardsticks: the same uvicorn, no ticket at all"
REDIS = "The Redis protocol, redis-benchmark"
INSTEAD = "What else one could use, durable, 64 connections"

Run = Callable[[Stage, float], Sample]


def _direct(table: str, connections: int, *, select: bool = True) -> Run:
    return lambda stage, seconds: direct.measure(stage.databases, [table], connections, select, seconds)


def _tables(stage: Stage, seconds: float) -> Sample:
    return direct.measure(stage.databases, sequences(), 64, False, seconds)


def _server(path: str, connections: int, *, tickets: int = 1, two: bool = False, unlike: bool = False) -> Run:
    def run(stage: Stage, seconds: float) -> Sample:
        ports = [stage.server.port]
        if two:
            ports.append(stage.second_server.port)
        before = sum(database.counter("photos") for database in stage.databases)
        sample = wrk.measure(ports, path, connections, seconds, tickets=tickets, unlike=unlike)
        drawn = (sum(database.counter("photos") for database in stage.databases) - before) / len(stage.databases)
        if drawn < 0.99 * sample.rate * seconds:
            raise CaseFailed(f"{sample.rate * seconds:.0f} tickets were answered, but {drawn:.0f} drawn")
        return sample

    return run


def _kind(kind: str, connections: int) -> Run:
    def run(stage: Stage, seconds: float) -> Sample:
        stage.make_of_kind(kind)
        return wrk.measure([stage.server.port], f"/ticket/bench_{kind}", connections, seconds)

    return run


def _latency(connections: int, ahead: int = 0) -> Run:
    def run(stage: Stage, seconds: float) -> Sample:
        return web_client.measure(stage.server_ahead(ahead).port, "/ticket/photos", connections, seconds)

    return run


def _random(count: int) -> Run:
    def run(stage: Stage, seconds: float) -> Sample:
        stage.use_every_sequence(0)
        return wrk.measure([stage.server.port], "", 64, seconds, sequences=count)

    return run


def _random_ahead(stage: Stage, seconds: float) -> Sample:
    """A thousand sequences from reserves, as they are after a while. What is burnt is held against a bound."""
    stage.use_every_sequence(MANY_AHEAD)
    port, tables = stage.server_ahead(MANY_AHEAD).port, sequences()
    wrk.measure([port], "", 64, WARM_UP, sequences=len(tables))
    before, began = _counted(stage, tables), time.monotonic()
    sample = wrk.measure([port], "", 64, seconds, sequences=len(tables))
    lasted = time.monotonic() - began
    drawn, answered = _counted(stage, tables) - before, sample.rate * min(seconds, lasted)
    if drawn < 0.9 * answered:  # what lay in reserve at the beginning was drawn before
        raise CaseFailed(f"{answered:.0f} tickets were answered, but {drawn:.0f} drawn")
    if drawn - answered > MOST_BURNT * drawn:
        raise CaseFailed(f"{answered:.0f} tickets were answered of {drawn:.0f} drawn: too many are burnt")
    return sample


def _first(stage: Stage, _seconds: float) -> Sample:
    with stage.fresh_server() as server:
        return first_tickets.measure(server.port, sequences(), 64)


def _yardstick(which: str) -> Run:
    return lambda stage, seconds: wrk.measure([stage.yardstick(which).port], "/ticket/photos", 64, seconds)


def _bare_latency(stage: Stage, seconds: float) -> Sample:
    return web_client.measure(stage.yardstick("asgi").port, "/ticket/photos", 1, seconds, tickets=False)


def _embedded(stage: Stage, seconds: float) -> Sample:
    return wrk.measure([stage.embedded.port], "/ticket/photos", 64, seconds)


_OWN_LOOP = "asked by our own loop, as the direct cases are"

_LAYOUTS = (
    ("flickr", FLICKR_INNODB, "Flickr's keys, InnoDB", ""),
    ("myisam", FLICKR_MYISAM, "Flickr's keys, MyISAM", "not crash-safe: a power cut loses tickets"),
    ("stub", STUB_FIRST, "stub as primary key, InnoDB", ""),
)


def _plural(connections: int) -> str:
    return f"{connections} connection{'s' if connections > 1 else ''}"


AHEAD = 2
"""Seconds' tickets in reserve of the server that draws ahead, where single tickets are measured."""
MANY_AHEAD = 5
"""Seconds' tickets in reserve of the server that draws ahead, where clients ask for a thousand sequences."""
WARM_UP = 30.0
"""Seconds until reserves are what they should be at the rate."""
MOST_BURNT = 0.3
"""The share of what is drawn that may be dropped, or still lie in reserve at the end."""


def _counted(stage: Stage, tables: Sequence[str]) -> float:
    """How many tickets of these tables have been drawn: their counters go on by the number of databases each time."""
    return sum(database.counter(table) for database in stage.databases for table in tables) / len(stage.databases)


def _over_redis(ahead: int, connections: int, pipeline: int) -> Run:
    def run(stage: Stage, seconds: float) -> Sample:
        door, before = stage.over_redis(ahead, "INCR", "photos"), _counted(stage, ["photos"])
        asked = door.asked
        sample = door.measure(connections, pipeline, seconds)
        drawn = _counted(stage, ["photos"]) - before
        if drawn + ahead * sample.rate < 0.99 * (door.asked - asked):  # what lay in reserve was drawn before
            raise CaseFailed(f"{door.asked - asked} tickets were answered, but {drawn:.0f} drawn")
        return sample

    return run


def _redis_protocol(connections: int, pipeline: int) -> tuple[Case, ...]:
    """The ticket server over the Redis protocol, between Redis itself and a constant answer of the same process."""
    name = f"{connections}-{pipeline}"
    title = f"{connections} connections" + (f", -P {pipeline}" if pipeline > 1 else "")

    def redis(stage: Stage, seconds: float) -> Sample:
        return stage.redis.measure(connections, pipeline, seconds)

    def constant(stage: Stage, seconds: float) -> Sample:
        return stage.over_redis(AHEAD, "PING").measure(connections, pipeline, seconds)

    ahead = f"the server, TICKETS_RESERVE_SECONDS={AHEAD}"
    return (
        Case(f"redis-always-{name}", REDIS, f"Redis, appendfsync always: INCR, {title}", redis),
        Case(f"redis-server-{name}", REDIS, f"the server: INCR, {title}", _over_redis(0, connections, pipeline)),
        Case(f"redis-ahead-{name}", REDIS, f"{ahead}: INCR, {title}", _over_redis(AHEAD, connections, pipeline)),
        Case(f"redis-constant-{name}", REDIS, f"{ahead}: PING, {title}", constant, "the same process and connections"),
    )


CASES: tuple[Case, ...] = (
    Case(
        "direct-replace-1",
        DIRECT,
        "REPLACE alone, stub as primary key, 1 connection",
        _direct(STUB_FIRST, 1, select=False),
        "the id from the OK packet, one round trip",
    ),
    Case("server-latency-1", SERVER, "single tickets, 1 connection, latency", _latency(1), _OWN_LOOP),
    Case("yardstick-asgi-1", YARDSTICK, "bare ASGI, 1 connection, latency", _bare_latency, _OWN_LOOP),
    Case(
        "ahead-latency-1",
        SERVER,
        f"single tickets, 1 connection, latency, TICKETS_RESERVE_SECONDS={AHEAD}",
        _latency(1, AHEAD),
        _OWN_LOOP,
    ),
    Case("server-1", SERVER, "single tickets, 1 connection", _server("/ticket/photos", 1)),
    *(
        Case(
            f"direct-{key}-{connections}",
            DIRECT,
            f"REPLACE, SELECT: {layout}, {_plural(connections)}",
            _direct(table, connections),
            note,
            steady=key != "flickr",
        )
        for key, table, layout, note in _LAYOUTS[:2]
        for connections in (1, 8, 64)
    ),
    Case("server-16", SERVER, "single tickets, 16 connections", _server("/ticket/photos", 16)),
    *(
        Case(
            f"direct-stub-{connections}",
            DIRECT,
            f"REPLACE, SELECT: {_LAYOUTS[2][2]}, {_plural(connections)}",
            _direct(STUB_FIRST, connections),
        )
        for connections in (1, 8, 64)
    ),
    Case("server-64", SERVER, "single tickets, 64 connections", _server("/ticket/photos", 64)),
    Case(
        "server-unlike-64",
        SERVER,
        "single tickets, 64 connections, no two requests alike",
        _server("/ticket/photos", 64, unlike=True),
        "a header with another number in each",
    ),
    Case("snowflake-64", SERVER, "snowflake ids, 64 connections", _kind("snowflake", 64), "from memory"),
    Case("instagram-64", SERVER, "instagram ids, 64 connections", _kind("instagram", 64), "the time is in the ticket"),
    Case("yardstick-fastapi", YARDSTICK, "constant FastAPI route, 64 connections", _yardstick("fastapi")),
    Case("yardstick-asgi", YARDSTICK, "bare ASGI, the ceiling, 64 connections", _yardstick("asgi")),
    Case(
        "two-servers-64",
        SERVER,
        "single tickets, 64 connections, two servers",
        _server("/ticket/photos", 64, two=True),
        "32 connections each",
    ),
    Case("server-256", SERVER, "single tickets, 256 connections", _server("/ticket/photos", 256)),
    Case("server-latency-256", SERVER, "single tickets, 256 connections, latency", _latency(256), _OWN_LOOP),
    Case(
        "count-100",
        SERVER,
        "count=100, 16 connections",
        _server("/ticket/photos?count=100", 16, tickets=100),
    ),
    Case(
        "block-10000",
        SERVER,
        "blocks of 10,000, 1 connection",
        _server("/block/photos?size=10000", 1, tickets=10_000),
    ),
    Case(
        "redis",
        INSTEAD,
        "Redis INCR, appendfsync always, unpipelined",
        lambda stage, seconds: stage.redis.measure(64, 1, seconds),
    ),
    *(
        case
        for connections, pipeline in ((64, 1), (256, 1), (64, 16))
        for case in _redis_protocol(connections, pipeline)
    ),
    Case("postgresql", INSTEAD, "PostgreSQL nextval", lambda stage, seconds: stage.postgresql.measure(64, seconds)),
    Case(
        "direct-tables-1000",
        GROWTH,
        "direct: REPLACE alone on 1,000 tables",
        _tables,
        "the id from the OK packet, one round trip",
    ),
    *(
        Case(f"sequences-{count}", GROWTH, f"the server: {count:,} sequence{'s' if count > 1 else ''}", _random(count))
        for count in (SEQUENCES, 100, 1)
    ),
    Case(
        f"sequences-ahead-{SEQUENCES}",
        GROWTH,
        f"the server, TICKETS_RESERVE_SECONDS={MANY_AHEAD}: {SEQUENCES:,} sequences",
        _random_ahead,
        f"after {WARM_UP:.0f} s of the same",
    ),
    Case(
        "sequences-first",
        GROWTH,
        "the server, just started: the first of 1,000 sequences",
        _first,
        "one ticket of each, on a server that has drawn none before",
    ),
    Case(
        "embedded-64",
        SERVER,
        "single tickets, 64 connections, embedded pair",
        _embedded,
        "SQLite, no database server",
    ),
)

GROUPS = (SERVER, DIRECT, GROWTH, YARDSTICK, REDIS, INSTEAD)
