"""The pages of the documentation as they stand: the tests run their blocks and no copies of them."""

import os
import re
import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
PROMPT = "$ "
COMMANDS = frozenset({"sh", "console", "sql", "python"})
"""The languages of blocks that somebody types or copies."""
_FENCED = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
_CODE = re.compile(r"`[^`\n]+`")


class Block(NamedTuple):
    """The lines between two fences: the page, the language, the text, and the line of the first fence."""

    page: str
    language: str
    text: str
    line: int


def pages() -> list[str]:
    """README and every page in docs/, by their paths in the repository."""
    found = sorted(path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "docs").rglob("*.md"))
    return ["README.md", *found]


def documents() -> list[str]:
    """Every Markdown file of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=30,
    )  # fmt: skip
    return sorted(name for name in listed.stdout.splitlines() if (REPOSITORY / name).is_file())


def text_of(page: str) -> str:
    """The text of a page, by its path in the repository."""
    return (REPOSITORY / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in their order, without the indentation of the list that they stand in."""
    text = text_of(page)
    return [
        Block(page, each[2], textwrap.dedent(each[3]), text.count("\n", 0, each.start()) + 1)
        for each in _FENCED.finditer(text)
    ]


def block(page: str, beginning: str) -> str:
    """The text of the one block of this page that begins so."""
    (found,) = [each.text for each in blocks(page) if each.text.startswith(beginning)]
    return found


def prose(page: str) -> str:
    """A page without its fenced blocks."""
    return _FENCED.sub("", text_of(page))


def links(page: str) -> list[str]:
    """Where the links and pictures of a page lead, as they are written."""
    return _LINK.findall(_CODE.sub("", prose(page)))


def anchors(page: str) -> set[str]:
    """The anchors that a code host and MkDocs make of a page's headings."""
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in _HEADING.findall(prose(page))]
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


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
