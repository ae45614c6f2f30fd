"""Several URLs: which is asked, for how long, and what each answered."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from lying_server import Honest, Says, Serve, problem, until
from ticketd_client import Tickets, TicketsUnavailable


@pytest.fixture
def dead() -> Iterator[str]:
    """A URL where nobody listens, and nobody will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_they_are_asked_in_turn(serve: Serve) -> None:
    one, other = Honest(1), Honest(2)
    with Tickets([serve(one).url, serve(other).url], prefetch=0) as tickets:
        assert [tickets.take("photos") for _ in range(6)] == [1, 2, 3, 4, 5, 6]


def test_what_each_answered_is_listed(serve: Serve, dead: str) -> None:
    busy = serve(lambda _: problem(503, "no ticket database can draw", "Retry-After: 30"))
    silent = serve(lambda _: Says({}, after=60))
    with Tickets([busy.url, dead, silent.url], timeout=0.6) as tickets:
        began = time.monotonic()
        with pytest.raises(TicketsUnavailable) as caught:
            tickets.take("photos")
        assert time.monotonic() - began < 1.5
    text = str(caught.value)
    assert text.startswith("no tickets of photos: ")
    assert f"{busy.url}: 503: no ticket database can draw" in text
    assert f"{dead}: no answer (Connection refused)" in text
    assert f"{silent.url}: no answer in 0." in text
    assert {answer.url: answer.status for answer in caught.value.answers} == {
        busy.url: 503,
        dead: None,
        silent.url: None,
    }


def test_a_server_that_sends_a_byte_now_and_then_ends_with_its_share(serve: Serve) -> None:
    def drip(_path: str) -> None:
        for connection in list(slow.sockets):
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            with contextlib.suppress(OSError):
                for _ in range(50):
                    time.sleep(0.05)
                    connection.sendall(b"X: y\r\n")

    slow = serve(drip)
    honest = Honest(2)
    with Tickets([slow.url, serve(honest).url], timeout=2.0, prefetch=0) as tickets:
        began = time.monotonic()
        assert tickets.take("photos") == 2
        assert 0.9 < time.monotonic() - began < 1.9


def test_retry_after_is_honoured(serve: Serve) -> None:
    times = []

    def answer(path: str) -> Says | bytes | None:
        times.append(time.monotonic())
        return problem(503, "later", "Retry-After: 1") if len(times) == 1 else honest(path)

    honest = Honest()
    with Tickets(serve(answer).url, prefetch=0, timeout=5) as tickets:
        assert tickets.take("photos") == 1
    assert 1.0 <= times[1] - times[0] < 2


def test_a_retry_after_beyond_the_timeout_is_not_waited_for(serve: Serve) -> None:
    server = serve(lambda _: problem(503, "later", "Retry-After: 30"))
    with Tickets(server.url, timeout=5) as tickets:
        began = time.monotonic()
        for _ in range(2):
            with pytest.raises(TicketsUnavailable, match="503: later"):
                tickets.take("photos")
        assert time.monotonic() - began < 1
    assert len(server.requests) == 1


def test_one_that_failed_rests_until_it_says_that_it_is_well(serve: Serve) -> None:
    ill = [True]
    other, honest = Honest(1), Honest(2)

    def answer(path: str) -> Says | bytes | None:
        return problem(503, "ill") if ill[0] else other(path)

    server = serve(answer)
    with Tickets([server.url, serve(honest).url], prefetch=0) as tickets:
        assert [tickets.take("photos") for _ in range(50)] == list(range(2, 102, 2))
        assert [request.split()[1] for request in server.requests] == [b"/ticket/photos"]
        ill[0] = False
        until(lambda: tickets.take("photos") % 2 == 1)
    assert b"/readyz" in [request.split()[1] for request in server.requests]


def test_a_connection_that_died_meanwhile_is_no_failure(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = serve(Honest())
    with Tickets(server.url, prefetch=0) as tickets:
        for _ in range(5):
            tickets.take("photos")
            server.hang_up()
            until(lambda: server.connections == 0)
    assert len(server.requests) == 5
    assert not caplog.records


def test_connections_are_used_again(serve: Serve) -> None:
    server = serve(Honest())
    with Tickets(server.url, prefetch=0) as tickets:
        for _ in range(20):
            tickets.take("photos")
        assert server.connections == 1


def test_a_restart_within_timeout_is_waited_for(serve: Serve) -> None:
    began = time.monotonic()
    honest = Honest()

    def answer(path: str) -> Says | bytes | None:
        return honest(path) if time.monotonic() - began > 0.8 else None

    with Tickets(serve(answer).url, prefetch=0, timeout=5) as tickets:
        assert tickets.take("photos") == 1


def test_what_a_url_answered_before_it_was_well_again_is_not_listed(serve: Serve) -> None:
    calls: list[str] = []
    honest = Honest()

    def answer(path: str) -> Says | bytes | None:
        calls.append(path)
        if len(calls) == 1:
            return problem(503, "long ago")
        return honest(path) if len(calls) == 2 else Says({}, after=60)

    with Tickets(serve(answer).url, prefetch=0, timeout=0.5) as tickets, ThreadPoolExecutor(1) as pool:
        assert tickets.take("photos") == 1
        first = pool.submit(tickets.take_many, "photos", 1_001)
        until(lambda: len(calls) == 3)
        with pytest.raises(TicketsUnavailable) as caught:
            tickets.take_many("photos", 1_001)
        assert "long ago" not in str(caught.value)
        assert first.exception() is not None


def test_a_server_that_is_restarted_meanwhile(serve: Serve) -> None:
    calls = []

    def answer(path: str) -> Says | bytes | None:
        calls.append(path)
        return None if len(calls) < 3 else honest(path)

    honest = Honest()
    with Tickets(serve(answer).url, prefetch=0) as tickets:
        assert tickets.take("photos") == 1


def test_who_names_the_wrong_server_need_not_wait_for_the_timeout(serve: Serve, dead: str) -> None:
    with Tickets(dead, prefetch=0, timeout=30, patience=0.3) as tickets:
        began = time.monotonic()
        with pytest.raises(TicketsUnavailable, match="refused"):
            tickets.take("photos")
        assert time.monotonic() - began < 10

    late = serve(Honest(after=1))
    with Tickets(late.url, prefetch=0, timeout=30, patience=0.3) as tickets:
        assert tickets.take("photos") == 1  # an answer is waited for

    times: list[float] = []

    def away_for_a_while(path: str) -> Says | bytes | None:
        times.append(time.monotonic())
        return problem(503, "later") if len(times) > 1 and times[-1] - times[1] < 1 else another(path)

    another = Honest()
    with Tickets(serve(away_for_a_while).url, prefetch=0, timeout=30, patience=0.3) as tickets:
        assert [tickets.take("photos") for _ in range(2)] == [1, 3]  # it has given tickets before: asked on
    assert times[-1] - times[1] >= 1
