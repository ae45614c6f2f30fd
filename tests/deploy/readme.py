"""The commands of deploy/README.md, as they stand there: the tests run these and no copies of them."""

import os
import re
import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
README = REPOSITORY / "deploy/README.md"


class Block(NamedTuple):
    """What stands between two fences: its language, its text, and the line it begins at."""

    language: str
    text: str
    line: int


def blocks() -> list[Block]:
    """All of them, in their order."""
    text = README.read_text(encoding="utf-8")
    fenced = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
    return [
        Block(each[2], textwrap.dedent(each[3]), text.count("\n", 0, each.start()) + 1)
        for each in fenced.finditer(text)
    ]


def block(beginning: str) -> str:
    """The text of the one block that begins so."""
    (found,) = [each.text for each in blocks() if each.text.startswith(beginning)]
    return found


def run(
    script: str,
    cwd: Path,
    *,
    replacing: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = 110,
) -> str:
    """Run a block in bash, in the folder `cwd`; its output. AssertionError with all of it where a command fails.

    `replacing`: what has another value in a test, such as an address; each has to be there. `environment`: further
    variables. None of the outer environment's TICKETS_ and COMPOSE_ variables gets in. `timeout` in seconds.
    """
    for old, new in (replacing or {}).items():
        assert old in script, f"{old} is not in\n{script}"
        script = script.replace(old, new)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TICKETS_", "COMPOSE_"))}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=cwd,
        env=kept | dict(environment or {}),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout
