"""The variants of tests that `make long` runs, and `make test` leaves out."""

import os

import pytest


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that are marked `long`, unless TICKETS_TEST_LONG is set."""
    if not os.environ.get("TICKETS_TEST_LONG"):
        more = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=more)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
