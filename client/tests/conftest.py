"""Fixtures: servers that answer as a test wants it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from tests.variants import leave_out

from lying_server import Answer, LyingServer


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """As tests/conftest.py does, which is not read where these tests are run alone."""
    leave_out(config, items)


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], LyingServer]]:
    """Starts a server that answers so; it ends with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda answer: stack.enter_context(LyingServer(answer))
