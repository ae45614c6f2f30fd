"""The parts, how each is run, and what of its output comes into the table."""

import itertools
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
AT_A_TIME = 1_000
"""Schedules for one process: the test of the model has a deadline of its own."""
FIGURES = re.compile(
    r"^(on \S+ [^\s:]+|([0-9,]+ snowflake|[0-9]+ s, |livez|failed requests|longest wait|memory|violations).*)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Part:
    """Commands of which as many run at once as there are processors, or one alone; each adds to the environment."""

    name: str
    command: Sequence[str]
    environments: Sequence[dict[str, str]] = field(default_factory=lambda: [{}])


@dataclass(frozen=True)
class Outcome:
    """What came of a part."""

    part: Part
    seconds: float
    failed: int
    output: str

    @property
    def row(self) -> str:
        """Its row in the table."""
        figures = [found[0] for found in FIGURES.finditer(self.output)]
        verdict = f"**{self.failed} failed**" if self.failed else "; ".join(figures) or "passed"
        return f"| {self.part.name} | {self.seconds / 60:.0f} min | {verdict} |"


def model(schedules: int) -> Part:
    """So many schedules, each process with seeds of its own."""
    shares = [AT_A_TIME] * (schedules // AT_A_TIME) + [schedules % AT_A_TIME] * (schedules % AT_A_TIME > 0)
    seeds = random.Random().sample(range(10**9), len(shares))
    # the profile that Hypothesis takes in a CI would give all processes the same seeds
    options = [f"--hypothesis-profile=default --hypothesis-seed={seed}" for seed in seeds]
    return Part(
        f"{schedules:,} schedules of the model",
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/model/test_model.py"],
        [
            {"MODEL_EXAMPLES": str(share), "PYTEST_ADDOPTS": f"{os.environ.get('PYTEST_ADDOPTS', '')} {option}"}
            for share, option in zip(shares, options, strict=True)
        ],
    )


def variants(program: str | None) -> Part:
    """The variants of tests that `make test` leaves out, on this database server or the one that the tests find."""
    chosen = {"TICKETS_TEST_MYSQLD": program} if program else {}
    return Part(
        "more variants of the tests",
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "long and not containers"],
        [{"TICKETS_TEST_LONG": "1", **chosen}],
    )


def torture(seconds: float, program: str | None, databases: int = 2) -> Part:
    """Every fault at random, on so many of this database server or the one that the tests find."""
    chosen = {"TICKETS_TEST_MYSQLD": program} if program else {}
    return Part(
        f"torture for {seconds:g} s, {databases} databases",
        [sys.executable, "-m", "tests.torture", "--databases", str(databases)],
        [{"TORTURE_SECONDS": f"{seconds:g}", **chosen}],
    )


def many_sequences(count: int) -> Part:
    """A start with so many sequences in use."""
    return Part(f"a start with {count:,} sequences", [sys.executable, "-m", "tests.long.many_sequences", f"{count}"])


def clocks(seconds: float, program: str | None) -> Part:
    """Kinds of sequence under wrong clocks, on this database server or the one that the tests find."""
    chosen = {"TICKETS_TEST_MYSQLD": program} if program else {}
    return Part("kinds under wrong clocks", [sys.executable, "-m", "tests.long.clocks", f"{seconds:g}"], [chosen])


def soak(seconds: float) -> Part:
    """Steady load for so long."""
    return Part(f"soak for {seconds:g} s", [sys.executable, "-m", "tests.long.soak", f"{seconds:g}"])


def carry_out(part: Part) -> Outcome:
    """Run it to its end; what it says on stderr, its progress, is shown as it comes."""
    began = time.monotonic()

    def run(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            part.command,
            cwd=REPOSITORY,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )

    with ThreadPoolExecutor(os.cpu_count()) as workers:
        ended = list(workers.map(run, part.environments))
    failed = [done for done in ended if done.returncode]
    return Outcome(
        part,
        time.monotonic() - began,
        len(failed),
        "\n".join(itertools.chain(done.stdout for done in failed or ended)),
    )
