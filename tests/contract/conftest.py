"""A server for a test, with everything as usual. What a test wants otherwise it changes, or starts with `running`."""

from collections.abc import AsyncIterator

import pytest

from tests.contract import fast_bench, http_bench, redis_bench


@pytest.fixture
async def http(virtual_time: object) -> AsyncIterator[http_bench.Bench]:
    """The HTTP application on two databases, on virtual time."""
    async with http_bench.running() as bench:
        yield bench


@pytest.fixture
async def bench() -> AsyncIterator[redis_bench.Bench]:
    """The door of the Redis protocol."""
    async with redis_bench.running() as bench:
        yield bench


@pytest.fixture
async def raw(bench: redis_bench.Bench) -> redis_bench.Raw:
    """A client of the Redis protocol."""
    return await bench.raw()


@pytest.fixture
async def fast() -> AsyncIterator[fast_bench.Bench]:
    """The HTTP server in front of a desk and an application that the test answers for."""
    async with fast_bench.running() as bench:
        yield bench


@pytest.fixture
async def client(fast: fast_bench.Bench) -> fast_bench.Client:
    """A client of the HTTP server."""
    return await fast.client()
