"""A short torture, so that the program itself keeps working. `python -m tests.torture` is the long one."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_short_torture_finds_no_violation(engine: str) -> None:
    command = [sys.executable, "-m", "tests.torture", "--engine", engine, "--seconds", "5", "--seed", "8"]
    done = subprocess.run(
        [*command, "--servers", "2", "--callers", "6"], capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "violations 0" in done.stdout
