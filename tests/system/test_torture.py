"""A few seconds of `make torture`; `make long` has the rest."""

import os
import subprocess
import sys

import pytest

from tests.harness.ticketd import REPOSITORY


@pytest.mark.timeout(240)
def test_torture() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.torture"],
        cwd=REPOSITORY,
        env=os.environ | {"TORTURE_SECONDS": "4"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=220,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0
    assert "violations: 0" in done.stdout
