"""A few seconds of `make torture`; `make long` has the rest."""

import os
import random
import subprocess
import sys

import pytest

from tests.harness.processes import wait_until
from tests.harness.tally import Tally
from tests.harness.ticketd import REPOSITORY
from tests.torture.stage import Stage


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


def test_a_database_that_ends_by_itself_is_started_again_and_said() -> None:
    with Stage(random.Random(1), Tally()) as stage:
        odd = stage.pair.odd
        odd.kill()
        wait_until(lambda: stage.servers[-1].databases()[0]["status"] != "up", 20, "a server to miss it")
        stage.wait_until_well()
        assert odd.running
        assert stage.died == [f"{odd.name}: for no known reason"]
