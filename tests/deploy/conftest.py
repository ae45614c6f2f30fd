"""Tests in containers run where an engine with the images is; elsewhere they are deselected, and a line says so."""

import subprocess

import pytest

IMAGES = "python:3.13-slim", "mysql:9.7", "haproxy:3.2"
"""What docker-compose.yml and the Dockerfile begin with. Nothing is pulled for a test."""
NOTE = pytest.StashKey[str]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests in containers where they cannot run."""
    found = [item for item in items if item.get_closest_marker("containers")]
    if found and (failed := what_fails()):
        config.stash[NOTE] = f"{len(found)} tests in containers deselected: `docker {failed}` fails"
        config.hook.pytest_deselected(items=found)
        items[:] = [item for item in items if item not in found]


def what_fails() -> str:
    """Return the command of Docker that fails, of those that the tests in containers need; empty where none does."""
    for command in ("compose version", "info", *(f"image inspect {image}" for image in IMAGES)):
        try:
            subprocess.run(["docker", *command.split()], capture_output=True, check=True, timeout=30)
        except (OSError, subprocess.SubprocessError):
            return command
    return ""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say that they were deselected, and why."""
    if note := config.stash.get(NOTE, ""):
        terminalreporter.write_line(note)
