"""The pages of the documentation, and what can be read off them."""

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
"""The folder of the repository."""
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def read(path: str) -> str:
    """Return the text of a file, by its path in the repository."""
    return (ROOT / path).read_text(encoding="utf-8")


def name_of(page: Path) -> str:
    """Return the path of a page in the repository."""
    return str(page.relative_to(ROOT))


def blocks(text: str, language: str = "") -> list[str]:
    """Return the fenced blocks of a text; language: only those in this one."""
    return [dedent(found[3]) for found in _FENCE.finditer(text) if language in ("", found[2])]


def prose(text: str) -> str:
    """Return a text without its fenced blocks."""
    return _FENCE.sub("", text)


def code(text: str) -> Iterator[str]:
    """Yield each line of a fenced block, and each word or command that stands in back-quotes."""
    for block in blocks(text):
        yield from block.replace("\\\n", " ").splitlines()
    yield from re.findall(r"`([^`]+)`", prose(text))


def rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of each row of each table."""
    for line in prose(text).splitlines():
        if line.startswith("| ") and not line.startswith("| ---"):
            yield [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield what is typed in the blocks with prompts, each with what it prints."""
    for block in blocks(text, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            typed, _, printed = part.partition("\n")
            yield typed, printed
