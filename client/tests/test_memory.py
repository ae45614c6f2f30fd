"""Tickets from memory: how many the client fetches ahead, when, how old they get, and that it hands out each once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from lying_server import Honest, Says, Serve, drawn, problem, until
from ticketd_client import InvalidRequest, Tickets, clock


def test_each_ticket_once_and_few_requests(serve: Serve) -> None:
    honest = Honest()
    with Tickets(serve(honest).url, prefetch=1000) as tickets:
        got = [tickets.take("photos") for _ in range(10_000)]
    assert got == list(range(1, 20_001, 2))
    assert len(honest.calls) < 40
    assert all(call.startswith("/block/photos?size=") for call in honest.calls)


def test_no_more_than_prefetch_are_ahead(serve: Serve) -> None:
    honest = Honest()
    with Tickets(serve(honest).url, prefetch=100) as tickets:
        for used in range(1, 5_000):
            tickets.take("photos")
            assert drawn(honest) - used <= 100


def test_a_quiet_sequence_draws_little_ahead(serve: Serve) -> None:
    honest = Honest()
    with Tickets(serve(honest).url, prefetch=1000) as tickets:
        for _ in range(20):
            tickets.take("photos")
            time.sleep(0.05)
    assert drawn(honest) < 20 + 100


def test_one_burst_is_not_a_rate_yet(serve: Serve) -> None:
    honest = Honest()
    with Tickets(serve(honest).url, prefetch=10_000) as tickets:
        for _ in range(12):
            tickets.take("photos")
        until(lambda: len(honest.calls) > 1)
        time.sleep(0.1)
    assert drawn(honest) < 400


def test_at_a_steady_rate_nobody_waits(serve: Serve) -> None:
    honest = Honest(after=0.1)
    with Tickets(serve(honest).url, prefetch=1000) as tickets:
        waits = []
        for _ in range(1_000):
            began = time.monotonic()
            tickets.take("photos")
            waits.append(time.monotonic() - began)
            time.sleep(0.001)
    assert max(waits) > 0.09, "the first ones wait"
    assert max(waits[300:]) < 0.09


def test_prefetch_0_is_a_request_for_each_call(serve: Serve) -> None:
    honest = Honest()
    with Tickets(serve(honest).url, prefetch=0) as tickets:
        assert [tickets.take("photos") for _ in range(3)] == [1, 3, 5]
        assert tickets.take_many("photos", 3) == [7, 9, 11]
        assert sorted(tickets.take_many("photos", 10_001)) == list(range(13, 13 + 20_002, 2))
    assert honest.calls[:4] == ["/ticket/photos"] * 3 + ["/ticket/photos?count=3"]
    assert honest.calls[4:] == ["/block/photos?size=10000", "/block/photos?size=1"]


def test_many_tickets_are_one_request(serve: Serve) -> None:
    honest = Honest()
    with Tickets(serve(honest).url, prefetch=1000) as tickets:
        assert len(set(tickets.take_many("photos", 9_000))) == 9_000
        assert len(honest.calls) == 1
        assert tickets.take_many("photos", 0) == []


def test_a_key_is_a_request(serve: Serve) -> None:
    honest = Honest()
    with Tickets(serve(honest).url) as tickets:
        tickets.take("likes", key=31341)
        tickets.take_many("likes", 2, key=7)
    assert honest.calls == ["/ticket/likes?key=31341", "/ticket/likes?count=2&key=7"]


def test_a_kind_without_blocks(serve: Serve) -> None:
    honest = Honest()

    def answer(path: str) -> Says | bytes | None:
        return problem(409, "has no blocks") if path.startswith("/block") else honest(path)

    server = serve(answer)
    with Tickets(server.url) as tickets:
        assert [tickets.take("likes") for _ in range(3)] == [1, 3, 5]
        assert len(tickets.take_many("likes", 2_500)) == 2_500
    assert [request.split()[1] for request in server.requests].count(b"/block/likes?size=17") == 1
    assert len(server.requests) == 1 + 3 + 3


def test_a_ticket_as_a_string(serve: Serve) -> None:
    ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    server = serve(lambda _: Says({"sequence": "likes", "id": ulid, "id_str": ulid}))
    with Tickets(server.url, prefetch=0) as tickets:
        assert tickets.take("likes") == ulid


def test_after_max_age_it_is_thrown_away(serve: Serve) -> None:
    honest = Honest()
    with Tickets(serve(honest).url, prefetch=100, max_age=0.2) as tickets:
        assert tickets.take("photos") == 1
        until(lambda: drawn(honest) > 1)
        ahead = drawn(honest)
        time.sleep(0.25)
        assert tickets.take("photos") > 2 * ahead
        assert min(tickets.take_many("photos", 50)) > 2 * ahead


def test_a_smaller_block_where_the_increment_is_large(serve: Serve) -> None:
    honest = Honest(step=100)

    def answer(path: str) -> Says | bytes | None:
        size = int(path.partition("=")[2])
        return problem(422, "size is required: a whole number from 1 to 655") if size > 655 else honest(path)

    server = serve(answer)
    with Tickets(server.url, prefetch=0) as tickets:
        assert len(set(tickets.take_many("photos", 2_000))) == 2_000
    assert [request.split()[1][19:] for request in server.requests] == [b"2000", b"1", b"655", b"655", b"655", b"34"]


def test_a_block_that_a_bump_has_overtaken_goes_to_nobody(serve: Serve) -> None:
    asked = threading.Event()
    honest = Honest()

    def answer(path: str) -> Says | bytes | None:
        if path.endswith("bump"):
            honest.__init__(10_001)  # type: ignore[misc]
            return Says({"sequence": "photos", "above": 10_000})
        said = honest(path)
        assert isinstance(said, Says)
        if asked.is_set():
            return said
        asked.set()
        return said._replace(after=0.5)

    with Tickets(serve(answer).url, timeout=5) as tickets, ThreadPoolExecutor(1) as pool:
        before = pool.submit(tickets.take, "photos")
        assert asked.wait(5)
        tickets.bump("photos", 10_000)
        assert tickets.take("photos") > 10_000
        assert before.result() > 10_000


def test_a_ticket_grows_older_while_the_machine_is_suspended(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Honest()
    with Tickets(serve(honest).url, prefetch=100) as tickets:
        assert tickets.take("photos") == 1
        ahead = drawn(honest)
        slept = clock.passed() + 61
        for module in ("tickets", "supply"):
            monkeypatch.setattr(f"ticketd_client.{module}.passed", lambda: slept)
        assert tickets.take("photos") > 2 * ahead
        slept += 61
        assert min(tickets.take_many("photos", 3)) > 2 * ahead


def test_the_clock_is_the_one_that_goes_on() -> None:
    if hasattr(time, "CLOCK_BOOTTIME"):
        assert abs(clock.passed() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1
    before = clock.passed()
    time.sleep(0.05)
    assert 0.05 <= clock.passed() - before < 5


def test_many_tickets_from_memory_are_not_too_old_either(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Honest()
    with Tickets(serve(honest).url, prefetch=100) as tickets:
        assert tickets.take("photos") == 1
        ahead = drawn(honest)
        slept = clock.passed() + 61
        for module in ("tickets", "supply"):
            monkeypatch.setattr(f"ticketd_client.{module}.passed", lambda: slept)
        assert min(tickets.take_many("photos", 3)) > 2 * ahead


def test_a_bump_empties_the_memory(serve: Serve) -> None:
    honest = Honest()

    def answer(path: str) -> Says | bytes | None:
        return Says({"sequence": "photos", "above": 10_000}) if path.endswith("bump") else honest(path)

    server = serve(answer)
    with Tickets(server.url, prefetch=100) as tickets:
        assert tickets.take("photos") == 1
        until(lambda: len(honest.calls) >= 1)
        honest.__init__(10_001)  # type: ignore[misc]
        assert tickets.bump("photos", 10_000)["above"] == 10_000
        assert tickets.take("photos") > 10_000
    assert b'{"above": 10000, "force": false}' in server.requests[-2] + server.requests[-1] + server.requests[1]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Tickets([]),
        lambda: Tickets("ftp://host"),
        lambda: Tickets("http://"),
        lambda: Tickets("http://h:port"),
        lambda: Tickets("http://h:0"),
        lambda: Tickets("http://h/?x=1"),
        lambda: Tickets("http://h", prefetch=-1),
        lambda: Tickets("http://h", timeout=0),
        lambda: Tickets("http://h", max_age=True),
        lambda: Tickets("http://h", token="two lines\n"),
        lambda: Tickets("http://h").take(""),
        lambda: Tickets("http://h").take("\ud800"),
        lambda: Tickets("redis://h").take("\ud800"),
        lambda: Tickets("http://h").take(7),  # type: ignore[arg-type]
        lambda: Tickets("http://h").take_many("photos", -1),
        lambda: Tickets("http://h").take_many("photos", True),
        lambda: Tickets("http://h").take("photos", key=-1),
        lambda: Tickets("http://h").take("photos", key=2**63),
    ],
)
def test_what_cannot_be_used_is_a_value_error(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        wrong()
    assert isinstance(caught.value, InvalidRequest)


@pytest.mark.parametrize(
    "url", ["http://user:hidden@h", "http://:hidden@h", "redis://user:hidden@h", "htp://u:hidden@h"]
)
def test_a_secret_in_a_url_is_not_repeated(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Tickets(url)
    assert "hidden" not in str(caught.value) + repr(caught.value)
