"""A server for a test, with everything as usual. What a test wants otherwise it changes, or starts with `running`."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.redis import door
from tests.contract import fast_bench, http_bench


@pytest.fixture
async def http(virtual_time: object) -> AsyncIterator[http_bench.Bench]:
    """The HTTP application on two databases, on virtual time."""
    async with http_bench.running() as bench:
        yield bench


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[http_bench.RedisBench]:
    """The door of the Redis protocol on two databases."""
    monkeypatch.setattr(door, "SWEEP", 0.05)
    bench = http_bench.RedisBench()
    bench.service.start()
    await bench.door.accept_on([bench.socket])
    await bench.settle(2)
    yield bench
    for raw in bench.raws:
        raw.writer.transport.abort()  # closed, it would first send what the server does not read
    await bench.door.stop()
    await bench.service.stop()


@pytest.fixture
async def raw(bench: http_bench.RedisBench) -> http_bench.Raw:
    """A client of the Redis protocol."""
    return await bench.raw()


@pytest.fixture
async def fast() -> AsyncIterator[fast_bench.Bench]:
    """The HTTP server in front of a desk and an application that the test answers for."""
    bench = fast_bench.Bench()
    serving = asyncio.create_task(bench.http.serve([bench.socket]))
    yield bench
    for client in bench.clients:
        client.writer.close()
    bench.http.stop()
    await asyncio.wait_for(serving, http_bench.DEADLINE)
    bench.socket.close()


@pytest.fixture
async def client(fast: fast_bench.Bench) -> fast_bench.Client:
    """A client of the HTTP server."""
    return await fast.client()
