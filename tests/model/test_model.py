"""Whole ticket servers under faults: no id twice, and a duplicate for each protection that is taken out."""

import os
import subprocess
import sys

import pytest

from tests.model import scenarios_lanes, scenarios_ring  # noqa: F401 - register their scripts
from tests.model.__main__ import run_seed
from tests.model.protections import without
from tests.model.stage import SCRIPTS

BATCHES, SEEDS = 8, 5
VARIANTS = 4
"""How often a script may miss its duplicate, because the packets of one variant come in another order."""


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_schedules_keep_the_guarantees(batch: int) -> None:
    for seed in range(batch * SEEDS, (batch + 1) * SEEDS):
        judge, _ = run_seed(seed)
        assert judge.faults == [], f"python -m tests.model --seed {seed} --trace"
        assert judge.count > 0


@pytest.mark.parametrize("protection", SCRIPTS)
def test_an_id_is_given_twice_without(protection: str) -> None:
    script = SCRIPTS[protection]
    assert script.play().judge.faults == []
    with without(protection):
        faults = (fault for variant in range(VARIANTS) for fault in script.play(variant).judge.faults)
        assert any("given twice" in fault for fault in faults)


def test_a_seed_replays_its_schedule_whatever_the_hash_seed() -> None:
    traces = []
    for hash_seed in ("0", "1"):
        command = [sys.executable, "-m", "tests.model", "--seed", "3", "--trace"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        traces.append(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    assert traces[0] == traces[1] != b""
