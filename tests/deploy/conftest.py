"""Tests in containers run where an engine with the images is; elsewhere they are deselected, and a line says so."""

import pytest

from tests.deploy.engine import why_none

NOTE = pytest.StashKey[str]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests in containers where they cannot run."""
    found = [item for item in items if item.get_closest_marker("containers")]
    if found and (why := why_none()):
        config.stash[NOTE] = f"{len(found)} tests in containers deselected: {why}"
        config.hook.pytest_deselected(items=found)
        items[:] = [item for item in items if item not in found]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say that they were deselected, and why."""
    if note := config.stash.get(NOTE, ""):
        terminalreporter.write_line(note)
