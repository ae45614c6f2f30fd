"""The order of a run in several processes."""

import random
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import cast

import pytest

from tests.order import DURATIONS, Durations, measured, turn

REPOSITORY = Path(__file__).resolve().parents[3]


def test_what_takes_longest_goes_first_and_containers_before_all() -> None:
    seconds = {"tests/unit/test_slow.py": 90, "tests/system/test_middle.py": 20}
    unmeasured = ("client/tests/test_x.py", "tests/deploy/test_x.py", "tests/system/test_x.py", "tests/unit/test_x.py")
    files = ("tests/containers/test_x.py", *seconds, *unmeasured)
    found = random.Random(7).sample(files, len(files))
    found.sort(key=lambda file: turn(PurePath(file), seconds))
    assert found == list(files)


def test_durations_of_all_phases_of_a_file_are_added_and_written(tmp_path: Path) -> None:
    def report(nodeid: str, duration: float) -> pytest.TestReport:
        return cast(pytest.TestReport, SimpleNamespace(nodeid=nodeid, duration=duration))

    plugin = Durations(tmp_path / "durations.json")
    for nodeid, seconds in (
        ("tests/a.py::x", 1.0),
        ("tests/b.py::y[1]", 3.0),
        ("tests/b.py::z", 4.0),
        ("c.py::q", 0.2),
    ):
        plugin.pytest_runtest_logreport(report(nodeid, seconds))
    plugin.pytest_sessionfinish()
    assert list(measured(tmp_path / "durations.json").items()) == [("tests/b.py", 7), ("tests/a.py", 1)]


def test_most_of_the_measured_files_are_still_there() -> None:
    """Else somebody moved tests and did not measure again, and a run takes longer than it need."""
    found = [(REPOSITORY / name).is_file() for name in measured(DURATIONS)]
    assert sum(found) >= 0.9 * len(found) > 0
