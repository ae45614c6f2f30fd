"""The claims that the benchmark checks: ratios of medians of one run, each with the threshold that it has to meet."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.memory import MILLIONS, Reading, growth
from bench.model import Sample
from bench.summary import Row

_GROWTH_ALLOWED = 2.0
"""MiB between the first million tickets and the last: what an allocator may breathe."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One line of the comparison. `score` is how far beyond what is asked it is: 1 is just met, less is missed."""

    title: str
    measured: str
    asked: str
    score: float | None
    rounds: str = ""

    @property
    def verdict(self) -> str:
        if self.score is None:
            return "not measured"
        return "met" if self.score >= 1 else "**missed**"


Rows = Mapping[str, Row]


def _ratio(rows: Rows, title: str, ours: str, theirs: str, asked: float) -> Claim:
    """Our rate against theirs, at least so many times."""
    expected = f"at least {asked:g} ×"
    a, b = rows.get(ours), rows.get(theirs)
    if not a or not b or not a.samples or not b.samples:
        return Claim(title, "-", expected, None)
    ratio = a.median / b.median
    return Claim(title, f"{ratio:.2f} ×", expected, ratio / asked, _spread(a, b, lambda x, y: x.rate / y.rate, "×"))


def _spread(a: Row, b: Row, compare: Callable[[Sample, Sample], float], unit: str) -> str:
    """The smallest and the largest value of this comparison over the rounds."""
    found = [compare(a.samples[number], b.samples[number]) for number in a.samples if number in b.samples]
    return f"{min(found):.2f} to {max(found):.2f} {unit}" if found else ""


def _added_latency(rows: Rows, asked: float) -> Claim:
    title, expected = "one connection: added latency over one direct REPLACE, p50 − p50", f"at most {asked:g} ms"
    a, b = rows.get("server-latency-1"), rows.get("direct-replace-1")
    if not a or not b or a.p50 is None or b.p50 is None:
        return Claim(title, "-", expected, None)
    added = a.p50 - b.p50
    spread = _spread(a, b, lambda x, y: (x.p50 or 0) - (y.p50 or 0), "ms")
    return Claim(title, f"{added:.2f} ms", expected, asked / max(added, asked / 100), spread)


def _latency_ratio(rows: Rows, title: str, ours: str, theirs: str, asked: float) -> Claim:
    """Our median latency against theirs, at most so many times."""
    expected = f"at most {asked:g} ×"
    a, b = rows.get(ours), rows.get(theirs)
    if not a or not b or a.p50 is None or b.p50 is None:
        return Claim(title, "-", expected, None)
    ratio = a.p50 / b.p50
    spread = _spread(a, b, lambda x, y: (x.p50 or 0) / (y.p50 or 1), "×")
    return Claim(title, f"{ratio:.2f} ×", expected, asked / ratio, spread)


def _tail(rows: Rows, asked: float) -> Claim:
    title, expected = "256 connections: p99 against p50", f"at most {asked:g} ×"
    row = rows.get("server-latency-256")
    if not row or not row.p50 or not row.p99:
        return Claim(title, "-", expected, None)
    ratio = row.p99 / row.p50
    spread = _spread(row, row, lambda x, _: (x.p99 or 0) / (x.p50 or 1), "×")
    return Claim(title, f"{ratio:.2f} ×", expected, asked / ratio, spread)


def _memory(readings: list[Reading], million: int, asked: float) -> Claim:
    title = f"memory of one server after 1,000 sequences and {million:,} tickets"
    expected = f"at most {asked:g} MiB, not growing"
    if not readings:
        return Claim(title, "-", expected, None)
    first, grown = readings[-MILLIONS].mebibytes, growth(readings)
    words = f"{first:.1f} MiB; {grown:+.1f} MiB in the next {(MILLIONS - 1) * million:,}"
    score = asked / first
    if grown > _GROWTH_ALLOWED:
        score = min(score, _GROWTH_ALLOWED / grown)
    return Claim(title, words, expected, score)


def judge(rows: Rows, readings: list[Reading], million: int) -> list[Claim]:
    """Every comparison that is asked for."""
    single = "single tickets, 64 connections, against"
    return [
        _ratio(rows, f"{single} the constant FastAPI route", "server-64", "yardstick-fastapi", 1.3),
        _ratio(
            rows,
            "single tickets, 64 connections, no two requests alike, against the constant FastAPI route",
            "server-unlike-64",
            "yardstick-fastapi",
            2.0,
        ),
        _ratio(
            rows,
            "snowflake ids, 64 connections, against the constant FastAPI route",
            "snowflake-64",
            "yardstick-fastapi",
            2.5,
        ),
        _ratio(rows, f"{single} 64 direct connections, Flickr's keys, InnoDB", "server-64", "direct-flickr-64", 3),
        _ratio(rows, f"{single} 64 direct connections, stub as primary key", "server-64", "direct-stub-64", 1.2),
        _added_latency(rows, 0.25),
        _latency_ratio(
            rows,
            "one connection, TICKETS_RESERVE_SECONDS=2, p50, against bare ASGI",
            "ahead-latency-1",
            "yardstick-asgi-1",
            1.5,
        ),
        _tail(rows, 4),
        _ratio(rows, "blocks of 10,000, 1 connection, against Redis INCR, 64 connections", "block-10000", "redis", 60),
        _ratio(rows, "count=100, 16 connections, against Redis INCR, 64 connections", "count-100", "redis", 1.5),
        _ratio(
            rows,
            "1,000 sequences at random, 64 connections, against direct REPLACEs on the same tables",
            "sequences-1000",
            "direct-tables-1000",
            0.8,
        ),
        _ratio(
            rows,
            "1,000 sequences at random, TICKETS_RESERVE_SECONDS=5 and at most 30 % burnt, against the same REPLACEs",
            "sequences-ahead-1000",
            "direct-tables-1000",
            3,
        ),
        *(
            _ratio(
                rows,
                f"redis-benchmark INCR, {title}, against Redis, appendfsync always",
                f"redis-server-{name}",
                f"redis-always-{name}",
                least,
            )
            for name, title, least in (
                ("64-1", "64 connections", 0.5),
                ("256-1", "256 connections", 0.6),
                ("64-16", "64 connections, -P 16", 0.5),
            )
        ),
        *(
            _ratio(
                rows,
                f"redis-benchmark INCR, {title}, TICKETS_RESERVE_SECONDS=2, against Redis, appendfsync always",
                f"redis-ahead-{name}",
                f"redis-always-{name}",
                least,
            )
            for name, title, least in (
                ("64-1", "64 connections", 0.9),
                ("256-1", "256 connections", 0.9),
                ("64-16", "64 connections, -P 16", 0.8),
            )
        ),
        *(
            _ratio(
                rows,
                f"redis-benchmark INCR, {title}, TICKETS_RESERVE_SECONDS=2, against PING on the same port",
                f"redis-ahead-{name}",
                f"redis-constant-{name}",
                0.85,
            )
            for name, title in (
                ("64-1", "64 connections"),
                ("256-1", "256 connections"),
                ("64-16", "64 connections, -P 16"),
            )
        ),
        _memory(readings, million, 120),
    ]
