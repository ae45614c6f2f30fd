"""The parts, how each is run, and what of its output comes into the table."""

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_FIRST_WORDS = (
    "seeds ",
    "[0-9,]+ snowflake",
    "[0-9]+ s, ",
    "livez",
    "failed requests",
    "databases that",
    "longest wait",
    "memory",
    "violations",
    "[0-9]+ of [0-9]+ ways of installing",
    "[0-9]+ passed",
)
FIGURES = re.compile(rf"^({'|'.join(_FIRST_WORDS)}).*", re.MULTILINE)
ENGINE = re.compile(r"^on (\S+) ([^\s:]+)", re.MULTILINE)
PRODUCTS = {"mysql": "MySQL", "mariadb": "MariaDB"}


@dataclass(frozen=True)
class Part:
    """A command, and what it adds to the environment."""

    name: str
    command: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The result of a part."""

    part: Part
    seconds: float
    failed: bool
    output: str

    @property
    def engine(self) -> str:
        """The database server that the part says it ran on; a dash where it names none."""
        found = ENGINE.search(self.output)
        return f"{PRODUCTS.get(found[1], found[1])} {found[2].partition('-')[0]}" if found else "-"

    @property
    def row(self) -> list[str]:
        """Its row in the table: the part, the database server, how long it took, and what came of it."""
        figures = [found[0] for found in FIGURES.finditer(self.output)]
        verdict = "; ".join([*["**failed**"] * self.failed, *figures]) or "passed"
        return [self.part.name, self.engine, f"{self.seconds / 60:.0f} min", verdict]


def model(schedules: int) -> Part:
    """This number of schedules with new seeds, on every processor."""
    first = random.SystemRandom().randrange(10**9)
    seeds = ["--schedules", f"{schedules}", "--first", f"{first}"]
    return Part(
        f"{schedules:,} schedules of the model",
        [sys.executable, "-m", "tests.model", *seeds, "--processes", f"{os.cpu_count() or 1}"],
    )


def variants(program: str | None) -> Part:
    """The variants of tests that `make test` leaves out, on this database server or the one that the tests find."""
    chosen = {"TICKETS_TEST_MYSQLD": program} if program else {}
    return Part(
        "more variants of the tests",
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "long and not containers"],
        {"TICKETS_TEST_LONG": "1", **chosen},
    )


def torture(seconds: float, program: str | None, databases: int = 2) -> Part:
    """Every fault at random, on so many of this database server or the one that the tests find."""
    chosen = {"TICKETS_TEST_MYSQLD": program} if program else {}
    return Part(
        f"torture for {seconds:g} s, {databases} databases",
        [sys.executable, "-m", "tests.torture", "--databases", str(databases)],
        {"TORTURE_SECONDS": f"{seconds:g}", **chosen},
    )


def many_sequences(count: int) -> Part:
    """A start with so many sequences in use."""
    return Part(f"a start with {count:,} sequences", [sys.executable, "-m", "tests.long.many_sequences", f"{count}"])


def clocks(seconds: float, program: str | None) -> Part:
    """Kinds of sequence under wrong clocks, on this database server or the one that the tests find."""
    chosen = {"TICKETS_TEST_MYSQLD": program} if program else {}
    return Part("kinds under wrong clocks", [sys.executable, "-m", "tests.long.clocks", f"{seconds:g}"], chosen)


def costly(seconds: float) -> Part:
    """The search for the most expensive byte, for so long."""
    command = [sys.executable, "-m", "tests.long.costly", "--seconds", f"{seconds:g}"]
    return Part(f"the most expensive byte, for {seconds:g} s", command)


def two_bodies(rounds: int, program: str | None) -> Part:
    """Two bodies of data for one offset, on this database server or the one that the tests find."""
    chosen = {"TICKETS_TEST_MYSQLD": program} if program else {}
    command = [sys.executable, "-m", "tests.long.two_bodies", "--rounds", f"{rounds}", "--held", "120"]
    return Part(f"two bodies for one offset, three held for 120 s, {rounds} rounds", command, chosen)


def older_releases(program: str | None) -> Part:
    """Servers of earlier releases beside this one, where the repository's history is there."""
    chosen = {"TICKETS_TEST_MYSQLD": program} if program else {}
    return Part("servers of earlier releases", [sys.executable, "-m", "tests.long.older_releases"], chosen)


def installing() -> Part:
    """Every documented way of installing, each from a clean environment."""
    return Part("every way of installing", [sys.executable, "-m", "tests.packaging"])


def soak(seconds: float) -> Part:
    """Steady load for so long."""
    return Part(f"soak for {seconds:g} s", [sys.executable, "-m", "tests.long.soak", f"{seconds:g}"])


def carry_out(part: Part) -> Outcome:
    """Run it to its end; what it says on stderr, its progress, is shown as it comes."""
    began = time.monotonic()
    ended = subprocess.run(
        part.command,
        cwd=REPOSITORY,
        env=os.environ | part.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return Outcome(part, time.monotonic() - began, ended.returncode != 0, ended.stdout)
