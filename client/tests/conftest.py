"""Fixtures: servers that answer as a test wants it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from lying_server import Answer, LyingServer


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], LyingServer]]:
    """Starts a server that answers so; it ends with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda answer: stack.enter_context(LyingServer(answer))
