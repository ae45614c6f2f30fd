"""The end of a connection, from either side, at every moment: nothing is left, and no ticket goes to somebody else."""

import asyncio
import gc
import weakref
from collections.abc import Callable

import pytest

from app.clients.connections import IDLE_SECONDS, REQUEST_SECONDS
from app.common.errors import OutOfTime
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.http.http_bench import (
    ALBUMS,
    LAST,
    OTHER,
    PHOTOS,
    POST,
    Bench,
    Client,
    chunked,
    ids,
    now,
    request,
    statuses,
)

MOMENTS = {
    "before anything": b"",
    "within a head": PHOTOS[:20],
    "within a target": b"GET /tick",
    "while a ticket is drawn": PHOTOS,
    "with one ahead": PHOTOS + ALBUMS,
    "with half of one ahead": PHOTOS + ALBUMS[:20],
    "with another ahead": PHOTOS + OTHER,
    "with one ahead that cannot be read": PHOTOS + b"no request\r\n\r\n",
    "with no end of the body": POST[:-1],
    "while the application waits": request("/wait"),
    "while it waits and one is ahead": request("/wait") + PHOTOS,
    "within a body that it reads": request("/other", method="POST", body=b"xyz")[:-1],
    "within a body in chunks": chunked("/other", b"hello", b"world")[:-12],
    "within a response": request("/hesitates"),
    "after a response that came early": request("/early", method="POST", body=b"xyz")[:-1],
    "after the last": LAST + PHOTOS,
}


def _lose_in_a_pause(client: Client) -> None:
    client.protocol.pause_writing()
    client.transport.lose(None, "lost")


ENDS: dict[str, tuple[Callable[[Client], object], str]] = {
    "closed": (lambda client: client.transport.lose(None, "lost"), "answer"),
    "reset": (lambda client: client.transport.lose(ConnectionResetError(), "lost"), "fail_over"),
    "cut": (lambda client: client.transport.abort(), "refuse"),
    "paused": (_lose_in_a_pause, "answer"),
}
"""How a connection ends, and what a lane does afterwards for a request that was on it."""


@pytest.mark.parametrize(("end", "late"), ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("data", MOMENTS.values(), ids=MOMENTS)
@virtual_time
async def test_of_a_client_that_is_gone_nothing_is_left(
    bench: Bench, data: bytes, end: Callable[[Client], object], late: str
) -> None:
    client, other = bench.connect(), bench.connect()
    await client.ask(data)
    other.send(ALBUMS)
    end(client)
    await settled()
    assert client.take() == b""
    assert bench.metrics.in_flight == 1
    while len(bench.issuer.waiting) > 1:
        bench.issuer.refuse(OutOfTime()) if late == "refuse" else getattr(bench.issuer, late)()
    bench.issuer.answer()
    bench.app.gate.set()
    assert len(ids(await other.ask())) == 1
    assert client.take() == b""
    left = weakref.ref(client.protocol)
    del client
    await settled()
    gc.collect()
    assert left() is None


@pytest.mark.parametrize("late", ["answer", "fail_over"])
@virtual_time
async def test_to_a_connection_that_is_closing_nothing_is_written(bench: Bench, late: str) -> None:
    client = bench.connect()
    client.send(PHOTOS + ALBUMS)
    client.transport.abort()
    getattr(bench.issuer, late)()
    if late == "fail_over":
        bench.issuer.answer()
    assert await client.ask() == b""
    assert bench.issuer.asked == ["photos"]


@virtual_time
async def test_what_comes_while_a_connection_closes_is_not_read(bench: Bench) -> None:
    client = bench.connect()
    client.transport.close()
    client.send(PHOTOS)
    assert await client.ask() == b""
    assert bench.issuer.asked == []


# --- the server ends -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [[], [ALBUMS], [OTHER], [ALBUMS[:9]]], ids=["alone", "ahead", "other", "half"])
@virtual_time
async def test_a_server_that_ends_answers_what_is_under_way_and_closes(bench: Bench, ahead: list[bytes]) -> None:
    client, other = bench.connect(), bench.connect()
    client.send(PHOTOS, *ahead)
    await other.ask(request("/wait"), *ahead)
    for each in (client, other):
        each.protocol.shutdown()
    bench.desk.closed = True
    bench.issuer.fail_over()
    bench.issuer.answer()
    bench.app.gate.set()
    await settled()
    answer = client.take()
    assert ids(answer) == [1]
    assert b"\r\nconnection: close\r\n" in answer
    assert statuses(other.take()) == [200]
    for each in (client, other):
        assert each.transport.calls == ["write", "close"]
    assert (bench.issuer.asked, bench.app.begun) == (["photos"], ["/wait"])


@pytest.mark.parametrize("data", [b"", PHOTOS, OTHER, ALBUMS[:9], PHOTOS + OTHER + ALBUMS[:9]])
@virtual_time
async def test_a_server_that_ends_closes_what_is_idle_at_once(bench: Bench, data: bytes) -> None:
    bench.issuer.on_issue = bench.issuer.answer
    client = bench.connect()
    await client.ask(data)
    client.protocol.shutdown()
    assert client.transport.calls[-1] == "close"


@virtual_time
async def test_a_server_that_ends_answers_a_request_whose_body_is_coming(bench: Bench) -> None:
    client = bench.connect()
    data = request("/other", method="POST", body=b"hello")
    client.send(data[:-3])
    client.protocol.shutdown()
    assert client.transport.calls == []
    assert statuses(await client.ask(data[-3:])) == [200]
    assert client.transport.ended


# --- silence and slowness --------------------------------------------------------------------------------------------


async def seconds_until_closed(bench: Bench, *clients: Client, most: float = 200.0) -> list[float]:
    """For each client, after how long it is closed; at the most so long."""
    began, ends = now(), [most] * len(clients)
    watcher = asyncio.create_task(bench.shared.watch())
    while now() - began < most:
        await asyncio.sleep(0.5)
        for place, client in enumerate(clients):
            if client.transport.ended:
                ends[place] = min(ends[place], now() - began)
    watcher.cancel()
    return ends


@virtual_time
async def test_slow_requests_are_cut_and_idle_connections_closed(bench: Bench) -> None:
    beginnings = [
        b"",
        PHOTOS[:20],
        PHOTOS,
        request("/wait"),
        request("/other", method="POST", body=b"xyz")[:-1],
        request("/early", method="POST", body=b"xyz")[:-1],
        POST[:-1],
        chunked("/other", b"hello", trailers=b"x: y\r\n")[:-3],
    ]
    slow = [bench.connect() for _ in beginnings]
    for client, data in zip(slow, beginnings, strict=True):
        await client.ask(data)
    idle = [bench.connect(), bench.connect()]
    await idle[0].ask(OTHER)
    await idle[1].ask(OTHER + b"\r\n")
    ends = await seconds_until_closed(bench, *slow, *idle)
    assert all(REQUEST_SECONDS <= end <= REQUEST_SECONDS + 3 for end in ends[: len(slow)]), ends
    assert all(IDLE_SECONDS <= end <= IDLE_SECONDS + 3 for end in ends[len(slow) :]), ends
    assert {client.transport.calls[-1] for client in slow} == {"abort"}
    assert {client.transport.calls[-1] for client in idle} == {"close"}


@virtual_time
async def test_a_connection_that_is_used_stays_open(bench: Bench) -> None:
    """A connection serves tickets for longer than the application's side of it may be idle, and any others in turn."""
    bench.issuer.on_issue = bench.issuer.answer
    client = bench.connect()
    watcher = asyncio.create_task(bench.shared.watch())
    for data in (OTHER, PHOTOS, PHOTOS, OTHER, ALBUMS, OTHER, OTHER, PHOTOS):
        assert statuses(await client.ask(data)) == [200]
        await asyncio.sleep(IDLE_SECONDS - 4)
        assert not client.transport.ended
    await asyncio.sleep(8)
    assert client.transport.calls[-1] == "close"
    watcher.cancel()


@virtual_time
async def test_a_trickle_does_not_make_a_request_younger(bench: Bench) -> None:
    clients = [bench.connect(), bench.connect()]
    watcher = asyncio.create_task(bench.shared.watch())
    clients[0].send(b"GET /ticket/photos HTTP/1.1\r\nx: ")
    clients[1].send(request("/other", method="POST", body=b"x" * 100)[:-100])
    for _ in range(30):
        await asyncio.sleep(1)
        for client in clients:
            if not client.transport.ended:
                client.send(b"y")
    watcher.cancel()
    assert [client.transport.calls for client in clients] == [["abort"], ["abort"]]


@virtual_time
async def test_one_that_is_closed_and_does_not_read_is_cut(bench: Bench) -> None:
    client = bench.connect()
    calls: list[str] = []
    client.transport.close = lambda: calls.append("close")  # type: ignore[method-assign]
    await client.ask(OTHER)
    client.protocol.pause_writing()
    [end] = await seconds_until_closed(bench, client)
    assert IDLE_SECONDS + REQUEST_SECONDS <= end <= IDLE_SECONDS + REQUEST_SECONDS + 3
    assert calls
    assert client.transport.calls[-1] == "abort"


@virtual_time
async def test_the_time_of_a_request_begins_with_its_first_byte(bench: Bench) -> None:
    client = bench.connect()
    began = now()
    assert client.protocol.since == began
    await asyncio.sleep(10)
    client.send(PHOTOS[:5])
    assert client.protocol.since == began + 10
    await asyncio.sleep(10)
    client.send(PHOTOS[5:] + ALBUMS[:5])
    assert client.protocol.since == began + 10
    await asyncio.sleep(10)
    bench.issuer.answer()
    assert client.protocol.since == began + 30
    client.send(ALBUMS[5:])
    bench.issuer.answer()
    assert client.protocol.idle_since == began + 30
    await settled()
    assert client.protocol.since is None


# --- the application's side closes -----------------------------------------------------------------------------------


@virtual_time
async def test_the_applications_side_may_be_idle_for_long_while_tickets_are_served(bench: Bench) -> None:
    client = bench.connect()
    await client.ask(OTHER)
    client.send(PHOTOS, OTHER)
    await asyncio.sleep(3 * IDLE_SECONDS)
    assert not client.transport.ended
    bench.issuer.answer()
    assert statuses(await client.ask()) == [200, 200]


@virtual_time
async def test_an_application_that_fails_behind_its_response_cuts_nobody_else(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    client = bench.connect()
    assert statuses(await client.ask(request("/crash-after"))) == [200]
    client.send(PHOTOS)
    bench.app.gate.set()
    await settled()
    assert not client.transport.ended
    bench.issuer.answer()
    assert statuses(await client.ask(OTHER)) == [200, 200]
    assert "behind the response" in caplog.text


@virtual_time
async def test_one_that_fails_behind_its_response_cuts_no_response_of_another(bench: Bench) -> None:
    """The first side is given up while a ticket is under way; a second one serves when the first one fails again."""
    client = bench.connect()
    await client.ask(request("/crash-after"))
    await asyncio.sleep(IDLE_SECONDS + 1)
    assert not client.transport.ended
    client.send(request("/hesitates"))
    await settled()
    bench.app.gate.set()
    assert (await client.ask()).endswith(b"late")
    assert not client.transport.ended


@virtual_time
async def test_what_the_application_says_too_late_is_about_no_ticket(bench: Bench) -> None:
    client = bench.connect()
    client.send(PHOTOS + ALBUMS)
    client.protocol.inner_has_answered()
    assert bench.issuer.asked == ["photos"]
    bench.issuer.answer()
    bench.issuer.answer()
    client.protocol.inner_has_answered()
    assert ids(await client.ask()) == [1, 3]


CRASHES = {"/crash": [500], "/half": [200], "/silent": [500]}


@pytest.mark.parametrize(("path", "expected"), CRASHES.items())
@virtual_time
async def test_an_application_that_fails_ends_the_connection(bench: Bench, path: str, expected: list[int]) -> None:
    client = bench.connect()
    assert statuses(await client.ask(request(path) + PHOTOS)) == expected
    assert client.transport.ended
    assert bench.issuer.asked == []
