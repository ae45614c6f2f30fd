"""A short torture, so that the program itself keeps working. `python -m tests.torture` is the long one."""

import subprocess
import sys

import pytest


@pytest.mark.timeout(400)
def test_a_short_torture_finds_no_violation() -> None:
    command = [sys.executable, "-m", "tests.torture", "--engine", "sqlite", "--seconds", "1", "--callers", "6"]
    done = subprocess.run([*command, "--seed", "8"], capture_output=True, text=True, check=False, timeout=390)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "violations 0" in done.stdout
