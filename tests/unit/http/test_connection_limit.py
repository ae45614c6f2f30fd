"""More clients than there may be: health is still answered, and room that is made is used."""

import asyncio
from typing import Any

import pytest

from app.clients.connections import FOR_HEALTH, HEALTH_IDLE_SECONDS, LOOK_SECONDS, WARNING_SECONDS
from app.clients.open_files import DEFAULT_CONNECTIONS, KEPT, LEAST, connections_allowed
from app.common.summed_log import SUM_SECONDS
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.http.http_bench import OTHER, PHOTOS, Bench, request, statuses

HEALTH = [request(path) for path in ("/livez", "/readyz", "/healthz", "/metrics", "/healthz?x=1")]
MOST = 5


@pytest.fixture
def bench() -> Bench:
    bench = Bench(most=MOST)
    bench.issuer.on_issue = lambda: asyncio.get_running_loop().call_soon(bench.issuer.answer)
    return bench


@virtual_time
async def test_beyond_the_limit_only_health_is_answered(bench: Bench) -> None:
    clients = [bench.connect() for _ in range(MOST)]
    beyond = bench.connect()
    for question in HEALTH:
        assert statuses(await beyond.ask(question)) == [200]
    for client in clients:
        assert statuses(await client.ask(PHOTOS)) == [200]
    answer = await beyond.ask(PHOTOS)
    assert statuses(answer) == [503]
    assert b"connection: close\r\n" in answer
    assert b"retry-after: 1\r\n" in answer
    assert b"as many client connections as it may have" in answer
    assert beyond.transport.calls[-1] == "close"
    assert statuses(await bench.connect().ask(OTHER)) == [503]
    assert len(bench.issuer.asked) == MOST


@virtual_time
async def test_a_connection_beyond_the_limit_takes_room_that_is_made(bench: Bench) -> None:
    clients = [bench.connect() for _ in range(MOST)]
    one, other = bench.connect(), bench.connect()
    assert statuses(await one.ask(HEALTH[0])) == [200]
    clients[0].transport.lose(None, "lost")
    await settled()
    assert statuses(await one.ask(PHOTOS, PHOTOS)) == [200, 200]
    assert statuses(await other.ask(PHOTOS)) == [503]


@virtual_time
async def test_beyond_those_for_health_the_oldest_of_them_is_cut(bench: Bench) -> None:
    clients = [bench.connect() for _ in range(MOST + FOR_HEALTH)]
    assert all(client.transport.calls == [] for client in clients)
    assert bench.metrics.client_connections == MOST + FOR_HEALTH
    clients.append(bench.connect())
    assert clients[MOST].transport.calls == ["abort"]
    assert bench.metrics.connections_refused == 1
    await settled()
    assert [client.transport.ended for client in clients].count(True) == 1
    assert bench.metrics.client_connections == MOST + FOR_HEALTH
    for client in clients:
        client.transport.lose(None, "lost")
    await settled()
    assert bench.metrics.client_connections == 0
    assert statuses(await bench.connect().ask(PHOTOS)) == [200]


@virtual_time
async def test_those_that_come_at_once_each_take_the_place_of_another(bench: Bench) -> None:
    clients = [bench.connect() for _ in range(MOST + FOR_HEALTH + 3)]
    assert [client.transport.calls for client in clients[MOST : MOST + 4]] == [["abort"], ["abort"], ["abort"], []]
    assert bench.metrics.client_connections == MOST + FOR_HEALTH


@virtual_time
async def test_who_asks_again_and_again_keeps_no_health_check_out(bench: Bench) -> None:
    for _ in range(MOST):
        bench.connect()
    strangers = [bench.connect() for _ in range(FOR_HEALTH)]
    watch = asyncio.create_task(bench.shared.watch())
    for _ in range(3):
        await asyncio.sleep(HEALTH_IDLE_SECONDS - 1)
        for stranger in strangers:
            if not stranger.transport.ended:
                await stranger.ask(HEALTH[0])
        assert statuses(await bench.connect().ask(HEALTH[1])) == [200]
    watch.cancel()


@virtual_time
async def test_nobody_sits_on_a_connection_for_health(bench: Bench) -> None:
    watch = asyncio.create_task(bench.shared.watch())
    clients = [bench.connect() for _ in range(MOST)]
    for client in clients:
        assert statuses(await client.ask(PHOTOS)) == [200]
    silent, idle = bench.connect(), bench.connect()
    assert statuses(await idle.ask(HEALTH[0])) == [200]
    await asyncio.sleep(HEALTH_IDLE_SECONDS + LOOK_SECONDS + 0.1)
    assert silent.transport.calls == ["abort"]
    assert idle.transport.calls[-1] == "close"
    assert not any(client.transport.ended for client in clients)
    watch.cancel()


@pytest.mark.parametrize(
    ("wished", "limit", "allowed"),
    [
        (None, 1_024, 1_024 - KEPT),
        (None, 65_536, DEFAULT_CONNECTIONS),
        (50_000, 65_536, 50_000),
        (50_000, 20_000, 20_000 - KEPT),
        (20, 65_536, 20),
        (None, LEAST, LEAST - KEPT),
    ],
)
def test_the_limit_on_open_files_leaves_room_for_databases(wished: int | None, limit: int, allowed: int) -> None:
    assert connections_allowed(wished, limit) == allowed


REFUSED = ("ticket", "too-many-connections"), ("block", "too-many-connections")


@virtual_time
async def test_every_request_that_is_refused_is_counted_once(bench: Bench) -> None:
    for _ in range(MOST):
        bench.connect()
    for question in (PHOTOS, request("/block/photos?size=3"), OTHER, request("/ticket/photos", method="HEAD")):
        assert statuses(await bench.connect().ask(question, question)) == [503]
    for question in HEALTH:
        assert statuses(await bench.connect().ask(question)) == [200]
    assert bench.outcomes() == dict(zip(REFUSED, (2, 1), strict=True))
    assert bench.metrics.connections_refused == 4


@virtual_time
async def test_a_warning_stands_while_it_happens_and_for_a_minute_more(bench: Bench) -> None:
    assert list(bench.shared.warnings()) == []
    clients = [bench.connect() for _ in range(MOST)]
    for _ in range(3):
        (reason,) = bench.shared.warnings()
        assert f"all {MOST} client connections" in reason
        assert "TICKETS_MAX_CONNECTIONS" in reason
        assert "are taken" in reason
        await asyncio.sleep(WARNING_SECONDS)
    assert statuses(await bench.connect().ask(PHOTOS)) == [503]
    clients[0].transport.lose(None, "lost")
    await asyncio.sleep(WARNING_SECONDS - 1)
    (reason,) = bench.shared.warnings()
    assert reason.endswith("were taken: a client was refused 59 s ago")
    await asyncio.sleep(1.1)
    assert list(bench.shared.warnings()) == []


@virtual_time
async def test_the_log_tells_of_it_in_a_line_a_minute(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(MOST):
        bench.connect()
    for _ in range(10):
        assert statuses(await bench.connect().ask(PHOTOS)) == [503]
        await asyncio.sleep(1)
    assert [each.fields["refused"] for each in told(caplog)] == [1]
    await asyncio.sleep(SUM_SECONDS)
    assert [each.fields["refused"] for each in told(caplog)] == [1, 9]
    await asyncio.sleep(3 * SUM_SECONDS)
    assert len(told(caplog)) == 2


def told(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [each for each in caplog.records if each.getMessage() == "all client connections are taken"]
