"""The shim that gives a process a wrong clock."""

import os
import subprocess
import sys
import time

import pytest

from tests.harness.shifted_clock import ShiftedClock

ASKS = "import sys, time\nfor line in sys.stdin: print(time.time(), time.monotonic(), flush=True)"


@pytest.mark.parametrize("begin", [0.0, -0.2, 3600.5, -86_400.25])
def test_the_realtime_clock_is_shifted_and_nothing_else(begin: float) -> None:
    with ShiftedClock(begin) as clock:
        process = subprocess.Popen(
            [sys.executable, "-c", ASKS],
            env=os.environ | clock.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            for seconds in (begin, 31_536_000.0, -0.7):
                clock.set(seconds)
                before = time.time(), time.monotonic()
                process.stdin.write("?\n")
                process.stdin.flush()
                wall, steady = map(float, process.stdout.readline().split())
                after = time.time(), time.monotonic()
                assert before[0] - 0.01 <= wall - seconds <= after[0] + 0.01
                assert before[1] <= steady <= after[1]
            process.stdin.close()
