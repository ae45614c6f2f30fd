"""Several URLs: which is asked, for how long, which is passed over, and what an error and the log say of each."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import ticketd_client as api
from lying_server import Client, Honest, Said, Serve, http, problem, until
from ticketd_client import TicketError, TicketsUnavailable


def test_urls_are_asked_in_turn_on_connections_that_are_kept(serve: Serve, client: Client) -> None:
    one, other = serve(Honest(1)), serve(Honest(2))
    tickets = client(one.url, other.redis_url, prefetch=0)
    assert [tickets.take("photos") for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    assert len(one.sockets) == len(other.sockets) == 1


@pytest.mark.parametrize(
    ("over_http", "over_redis", "kind"),
    [
        (problem(404, "so it is"), b"-ERR no such sequence: so it is\r\n", api.NoSuchSequence),
        (problem(410, "so it is"), b"-EXHAUSTED so it is\r\n", api.SequenceExhausted),
        (problem(401, "so it is"), b"-NOAUTH so it is\r\n", api.NotAllowed),
        (problem(403, "so it is"), b"-WRONGPASS so it is\r\n", api.NotAllowed),
        (problem(409, "so it is"), None, api.SequenceConflict),
        (problem(422, "so it is"), b"-ERR so it is\r\n", api.InvalidRequest),
    ],
)
def test_what_every_server_would_say_is_raised_at_once(
    serve: Serve, client: Client, over_http: bytes, over_redis: bytes | None, kind: type[TicketError]
) -> None:
    first, second = serve(lambda asked: over_http if "/" in asked else over_redis), serve(Honest())
    for url in [first.url, first.redis_url][: 2 if over_redis else 1]:
        with pytest.raises(kind, match=f"{url}: .*so it is"):
            client(url, second.url, prefetch=0).take("photos", key=7)
    with pytest.raises(kind, match=f"{first.url}: .*so it is"):
        client(first.url, second.url).ensure("photos")
    assert not second.asked


ILL = [
    *(problem(503, "ill"), problem(500, "ill"), http(b"ill", 404, "text/html"), None),
    *(b"-TRYAGAIN ill\r\n", b"-LOADING ill\r\n", b"-ERR max number of clients reached\r\n"),
]


@pytest.mark.parametrize("said", ILL)
def test_a_server_that_fails_costs_one_attempt_and_is_passed_over_for_a_while(
    serve: Serve, client: Client, said: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ticketd_client")
    ill, one, other = threading.Event(), Honest(1), Honest(2)
    ill.set()
    server = serve(lambda asked: said if ill.is_set() else one(asked))
    url = server.over("redis" if said and said.startswith(b"-") else "http")
    tickets = client(url, serve(other).url, prefetch=0)
    assert [tickets.take("photos") for _ in range(100)] == list(range(2, 202, 2))
    assert 1 <= len(server.asked) < 20
    assert [each.levelname for each in caplog.records if url in each.getMessage()][:1] == ["WARNING"]
    ill.clear()
    until(lambda: tickets.take("photos") % 2)
    assert url in caplog.records[-1].getMessage()
    assert caplog.records[-1].levelname == "INFO"


NO_TIMES = "-5", "soon", "", "²", "0", "Wed, 99 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:00 -0000"
WAITS = [
    *((problem(503, "later", f"Retry-After: {each}").decode().encode("latin-1"), 0.0) for each in NO_TIMES),
    *((problem(503, "later", "Retry-After: 1"), 0.95), (b"-TRYAGAIN later\r\n", 0.95)),
]


@pytest.mark.parametrize(("said", "seconds"), WAITS)
def test_a_retry_after_is_waited_for_where_no_other_url_is_left(
    serve: Serve, client: Client, said: bytes, seconds: float
) -> None:
    times: list[float] = []
    honest = Honest()

    def answer(asked: str) -> Said:
        times.append(time.monotonic())
        return said if len(times) == 1 else honest(asked)

    url = serve(answer).over("redis" if said.startswith(b"-") else "http")
    assert client(url, prefetch=0, timeout=30).take("photos") == 1
    assert times[1] - times[0] >= seconds


@pytest.mark.parametrize("retry_after", ["50", "86400", "9" * 5_000])
def test_a_retry_after_beyond_the_timeout_is_not_waited_for(serve: Serve, client: Client, retry_after: str) -> None:
    server = serve(lambda _: problem(503, "later", f"Retry-After: {retry_after}"))
    tickets = client(server.url, timeout=45, prefetch=0)
    began = time.monotonic()
    for _ in range(2):
        with pytest.raises(TicketsUnavailable, match="503: later"):
            tickets.take("photos")
    assert len(server.asked) == 1
    assert time.monotonic() - began < 40


def test_a_connection_that_died_meanwhile_is_no_failure(
    serve: Serve, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(Honest())
    for url in (server.url, server.redis_url):
        tickets = client(url, prefetch=0)
        for _ in range(3):
            tickets.take("photos")
            server.hang_up()
            until(lambda: not server.sockets)
    assert len(server.asked) == 6
    assert not caplog.records


# --- addresses and names


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[tuple[str, int]]]]:
    """The addresses of each host's name, in place of the system's resolver, which hangs for the name `slow`."""
    found: dict[str, list[tuple[str, int]]] = {}
    go_on = threading.Event()

    def resolve(host: str, port: int, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        if host == "slow":
            go_on.wait(60)
        if host == "gone":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        places = found.get(host, [("127.0.0.1", port)])
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    yield found
    go_on.set()


@pytest.fixture
def hole() -> Iterator[tuple[str, int]]:
    """An address at which nobody answers: the queue of those who want to connect is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()


def test_of_several_addresses_the_next_one_is_tried(
    serve: Serve, client: Client, hosts: dict[str, Any], hole: tuple[str, int], nobody: str
) -> None:
    server = serve(Honest())
    refusing = "127.0.0.1", int(nobody.rpartition(":")[2])
    for url, first in {"http://filled": hole, "redis://refusing": refusing}.items():
        hosts[url.rpartition("/")[2]] = [first, ("127.0.0.1", server.port)]
        assert client(url, prefetch=0).take("photos") > 0


@pytest.mark.usefixtures("hosts")
def test_each_url_has_an_equal_share_of_the_time_that_is_left(
    serve: Serve, client: Client, hole: tuple[str, int]
) -> None:
    """The last one has all of it. A byte now and then is no answer, nor is a TLS handshake that does not come."""
    times: list[float] = []

    def drips(said: bytes) -> Iterator[bytes]:
        times.append(time.monotonic())
        for _ in range(600):
            yield said
            time.sleep(0.02)

    silent, slow, slower = serve(lambda _: b""), serve(lambda _: drips(b"H")), serve(lambda _: drips(b":"))
    nowhere = f"http://127.0.0.1:{hole[1]}", "http://slow:1", silent.url.replace("http", "https")
    tickets = client(*nowhere, slow.url, slower.redis_url, serve(Honest()).url, timeout=9, prefetch=0)
    began = time.monotonic()
    assert tickets.take("photos") == 1
    assert [each - began > share for each, share in zip((*times, time.monotonic()), (4.4, 5.9, 7.4))] == [True] * 3


@pytest.mark.usefixtures("hosts")
def test_an_error_lists_what_each_url_answered(serve: Serve, either: Client, nobody: str) -> None:
    busy = serve(lambda _: problem(503, "no ticket database can draw", "Retry-After: 50"))
    says = {
        busy.url: "503: no ticket database can draw",
        **{f"{scheme}://{nobody}": "no answer (Connection refused)" for scheme in ("http", "redis")},
        "redis://gone:1": "no answer (Name or service not known)",
        **dict.fromkeys(("http://slow:1", serve(lambda _: b"").url), "no answer"),
    }
    with pytest.raises(TicketsUnavailable) as caught:
        either(*says, timeout=3, prefetch=0).take("photos")
    assert [url for url, words in says.items() if f"{url}: {words}" not in str(caught.value)] == []
    assert len(busy.asked) == 1
