"""Whatever a server sends, nothing impossible is handed out: the answer costs one attempt, and another URL is asked."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lying_server import Answer, Client, Honest, Serve, http

JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKS = JSON + b"Transfer-Encoding: chunked\r\n\r\n"
ANYWHERE: dict[str, list[bytes | None]] = {
    "http": [
        None,
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 " + b"x" * 200_000,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000,
        b"HTTP/1.1 204 OK\r\n\r\n",
        b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        *(JSON + b"Content-Length: %b\r\n\r\n{}" % length for length in (b"-5", b"100", b"9" * 5_000)),
        JSON + b"Content-Length: 1000000000\r\n\r\n" + b"7" * 100_000,
        *(CHUNKS + each for each in (b"xyz\r\n{}\r\n0\r\n\r\n", b"-1\r\n" + b"7" * 400_000)),
        *(CHUNKS + each for each in (b"1\r\n \r\n" * 50_000, b"7d0\r\nx")),
        *map(http, (b"{", b"\xff\xfe", b"[" * 900, b'{"id": %b}' % (b"9" * 5_000), [1, 2], {"a": "x" * 500_000})),
        http(b"<html>", 200, "text/html"),
    ],
    "redis": [
        None,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        *(b":%b\r\n" % number for number in (b"x", b"1 ", b"1_0", b"+1", b"007", b"-7", b"\xb2", b"9" * 5_000)),
        *(b"$%b\r\n7\r\n" % length for length in (b"-1", b"-5", b"", b"x", b"01", b"2", b"0", b"1000000000")),
        *(b"$%d\r\n%b\r\n" % (len(each), each) for each in (b"007", b"01ARZ3NDEKTSV4RRFFQ69G5FA!", b"7" * 500)),
        *(b"*%b\r\n" % length for length in (b"-1", b"x", b"0", b"1000000000", b"3\r\n:1\r\n-ERR no\r\n:17")),
        b"*3\r\n*1\r\n:1\r\n:2\r\n:17\r\n",
        b"*1\r\n" * 2_000,
        *(b"\r\n", b":1\n", b":1", b"\x00\xff\r\n", b"+OK\r\n", b"%1\r\n+a\r\n:1\r\n", b"x" * 100_000),
    ],
}
"""No answers to any question."""


def block(first: int, step: int, more: int) -> Answer:
    """A block over the Redis protocol; `more`: how much larger it is than it should be."""
    return lambda asked: b"*3\r\n:%d\r\n:%d\r\n:%d\r\n" % (first, step, int(asked.split()[2]) + more)


QUESTIONS: dict[str, tuple[dict[str, int], Callable[[Any], list[Any]]]] = {
    "a ticket": ({"prefetch": 0}, lambda tickets: [tickets.take("photos")]),
    "a list": ({"prefetch": 0}, lambda tickets: tickets.take_many("photos", 3)),
    "a block": ({"prefetch": 10}, lambda tickets: [tickets.take("photos")]),
}
LIES: dict[tuple[str, str], list[Any]] = {
    ("http", "a ticket"): [
        *({"id": each, "id_str": str(each)} for each in (-1, 2**63, "7", 7.0, True)),
        {"sequence": "x"},
    ],
    ("http", "a list"): [
        *({"ids": ids, "ids_str": [str(each) for each in ids]} for ids in ([1, 1, 3], [1, 3], [1, 3, 5, 7], "135")),
        {"sequence": "x"},
    ],
    ("http", "a block"): [
        *({"step": step} for step in (0, -2, 65_536, "2", 2.0, None)),
        *({"first": first, "first_str": str(first)} for first in (0, 7.5, True, 2**63 - 2)),
        *({"size": 1}, {"sequence": "x"}),
    ],
    ("redis", "a ticket"): [b":9223372036854775808\r\n", b"*1\r\n:7\r\n"],
    ("redis", "a list"): [
        *(b":7\r\n", b"*2\r\n:1\r\n:3\r\n", b"*3\r\n:1\r\n:1\r\n:3\r\n", b"*4" + 4 * b"\r\n:1" + b"\r\n")
    ],
    ("redis", "a block"): [block(1, 0, 0), block(1, -2, 0), block(0, 2, 0), block(1, 2, -1), block(2**63 - 4, 2, 0)],
}
"""Answers to this question that cannot be right; over HTTP what is changed in one that is."""


def answers(said: Any) -> Answer:
    """A server that says this, and no more."""
    return Honest(changes=said) if isinstance(said, dict) else said if callable(said) else lambda _: [said, None]


@pytest.mark.parametrize(("protocol", "question"), LIES)
def test_an_impossible_answer_is_refused_and_another_url_is_asked(
    serve: Serve, client: Client, caplog: pytest.LogCaptureFixture, protocol: str, question: str
) -> None:
    honest, liar = serve(Honest(10**6)), serve(lambda _: None)
    options, ask = QUESTIONS[question]
    for said in [*ANYWHERE[protocol], *LIES[protocol, question]]:
        liar.answer = answers(said)
        caplog.clear()
        assert min(ask(client(liar.over(protocol), honest.url, **options))) >= 10**6, said
        assert f"{liar.over(protocol)}: " in caplog.text


@pytest.mark.parametrize(
    ("begins", "goes_on"),
    [
        (b"$1000000000\r\n", b"7" * 65_536),
        (b"*1000000000\r\n", b":7\r\n" * 10_000),
        (b"-", b"E" * 65_536),
        (JSON + b"Content-Length: 1000000000\r\n\r\n", b"7" * 65_536),
        (JSON + b"\r\n", b"7" * 65_536),
        (CHUNKS, b"10000\r\n" + b"7" * 65_536 + b"\r\n"),
        (CHUNKS + b"-1\r\n", b"7" * 65_536),
        (b"HTTP/1.1 503 X\r\n\r\n", b"7" * 65_536),
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 10_000),
        (b"HTTP/1.1 200 OK\r\nX: ", b"y" * 65_536),
    ],
)
def test_of_an_answer_without_an_end_no_more_is_read_than_an_answer_can_need(
    serve: Serve, client: Client, begins: bytes, goes_on: bytes
) -> None:
    pieces = 0

    def endless() -> Iterator[bytes]:
        nonlocal pieces
        yield begins
        while True:
            yield goes_on
            pieces += 1

    liar, honest = serve(lambda _: endless()), serve(Honest(10**6))
    tracemalloc.start()
    url = liar.over("http" if begins.startswith(b"H") else "redis")
    assert client(url, honest.url, prefetch=0).take("photos") == 10**6
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
    tracemalloc.stop()
    assert pieces * len(goes_on) < 20_000_000  # the system takes some millions before anybody reads


def test_bytes_after_an_answer_are_not_the_next_answer(serve: Serve, client: Client) -> None:
    for scheme, both in {
        "redis": b":7\r\n:9\r\n",
        "http": b"".join(http({"sequence": "photos", "id": each, "id_str": str(each)}) for each in (7, 9)),
    }.items():
        honest, replies = Honest(101), [both]
        server = serve(lambda asked, honest=honest, replies=replies: replies.pop() if replies else honest(asked))
        tickets = client(server.over(scheme), prefetch=0)
        assert [tickets.take("photos"), tickets.take("photos")] == [7, 101]


# --- what was given before


@pytest.mark.parametrize("seed", range(40))
def test_what_was_given_before_is_refused_whoever_gives_it(serve: Serve, client: Client, seed: int) -> None:
    """Of two answers, tickets or blocks that may overlap, the second is accepted if they share no ticket."""
    chance = random.Random(seed)
    step, counts = chance.choice([1, 2, 3]), [chance.choice([1, 3, 1_001]) for _ in range(2)]
    firsts = [chance.randint(1, 2 * step * max(counts)) for _ in range(2)]
    given = [range(first, first + count * step, step) for first, count in zip(firsts, counts)]
    tickets = client(*(serve(Honest(first, step)).url for first in (*firsts, 10**6)), prefetch=0)
    got = [tickets.take_many("photos", count) for count in counts]
    assert got[0] == list(given[0])
    if set(given[0]) & set(given[1]):
        assert min(got[1]) >= 10**6
    else:
        assert got[1] == list(given[1])
