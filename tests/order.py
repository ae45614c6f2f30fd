"""Which files go first in a run: those that take longest, so that no process of several is left alone with one of them.

`make durations` runs the tests and writes how long each file took to `durations.json`. Only the time that a whole run
takes depends on that file: a test file that is missing there runs after the measured ones.
"""

import json
from collections import defaultdict
from pathlib import Path, PurePath

import pytest

DURATIONS = Path(__file__).with_name("durations.json")
_FOLDERS = ("containers", "model", "deploy", "system", "recipes", "contract", "unit")
"""The order of the folders, for files that were not measured."""


class Durations:
    """A pytest plugin that measures how long each file takes, setting up and tearing down included."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of one test."""
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the files that took a second or more, the longest first, in whole seconds."""
        longest_first = sorted(self._seconds.items(), key=lambda item: -item[1])
        found = {file: round(seconds) for file, seconds in longest_first if seconds >= 1}
        self._path.write_text(json.dumps(found, indent=2) + "\n")


def measured(path: Path = DURATIONS) -> dict[str, int]:
    """How long each file took when it was measured last, in seconds."""
    found: dict[str, int] = json.loads(path.read_text())
    return found


def turn(file: PurePath, seconds: dict[str, int]) -> tuple[bool, int, int]:
    """The place of this file, relative to the repository, in the order of a run: to sort by. `seconds`: see `measured`.

    Tests in containers go first of all, because one process runs all of them.
    """
    folder = file.parts[1]
    return folder != "containers", -seconds.get(str(file), 0), _FOLDERS.index(folder) if folder in _FOLDERS else 0
