"""The order of a run in several processes."""

from pathlib import Path, PurePath

from tests.order import LONGEST_FIRST, turn

REPOSITORY = Path(__file__).resolve().parents[3]


def test_what_takes_longest_goes_first() -> None:
    assert [name for name in LONGEST_FIRST if not (REPOSITORY / name).is_file()] == []
    unnamed = ("client/tests/test_x.py", "tests/deploy/test_x.py", "tests/system/test_x.py", "tests/unit/test_x.py")
    files = ("tests/containers/test_x.py", *LONGEST_FIRST, *unnamed)
    found = list(reversed(files))
    found.sort(key=lambda file: turn(PurePath(file)))
    assert found == list(files)
