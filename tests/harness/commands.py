"""`ticketd` for the tests: one command in a subprocess, as somebody would type it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.harness.processes import Ticketd, new_directory, remove_directory

REPOSITORY = Path(__file__).resolve().parents[2]


class Ran(NamedTuple):
    """How a command ended and what it said."""

    status: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()


def command_line(*arguments: object) -> list[str]:
    """The program and these arguments."""
    return [sys.executable, "-m", "app", *map(str, arguments)]


def clean_environment(settings: Mapping[str, object] | None = None) -> dict[str, str]:
    """The environment without what would change a command, and with these settings, by their full names."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TICKETS_", "OTEL_"))}
    return kept | {name: str(value) for name, value in (settings or {}).items()}


def ticketd(*arguments: object, settings: Mapping[str, object] | None = None, timeout: float = 110) -> Ran:
    """Run one command to its end."""
    done = subprocess.run(
        command_line(*arguments),
        cwd=REPOSITORY,
        env=clean_environment(settings),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def forked_ticketd(*arguments: object, settings: Mapping[str, object] | None = None, timeout: float = 110) -> Ran:
    """Run one command to its end, half a second faster (see preloaded). For tests of the command, not of its start."""
    base = new_directory("tickets-command-")
    output, errors = base / "output", base / "errors"
    try:
        process = Ticketd(
            list(map(str, arguments)), stdout=output, stderr=errors, cwd=REPOSITORY, env=clean_environment(settings)
        )
        try:
            status = process.wait(timeout)
        finally:
            process.kill()
        return Ran(status, output.read_text(encoding="utf-8"), errors.read_text(encoding="utf-8"))
    finally:
        remove_directory(base)
