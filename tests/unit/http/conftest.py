"""Fixtures of the tests on HTTP."""

from collections.abc import Iterator

import pytest

from tests.unit.http.http_bench import Bench


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Made with the test's tokens, if it has any; nothing is in flight after any test."""
    bench = Bench(*getattr(request, "param", ()))
    yield bench
    assert bench.metrics.in_flight == 0
