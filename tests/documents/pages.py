"""The pages of the documentation, and what can be read off them."""

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def read(path: str) -> str:
    """Return the text of a file, by its path in the repository."""
    return (ROOT / path).read_text(encoding="utf-8")


def paths(*patterns: str) -> list[str]:
    """Return the paths of the files in the repository that match."""
    found = (path for pattern in patterns for path in sorted(ROOT.glob(pattern)))
    return [str(path.relative_to(ROOT)) for path in found if path.is_file() and path.suffix != ".pyc"]


PAGES = paths("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md")


def prose(text: str) -> str:
    """Return a text without its fenced blocks."""
    return _FENCE.sub("", text)


def code(text: str) -> Iterator[str]:
    """Yield each line of a fenced block, and each word or command that stands in back-quotes."""
    for found in _FENCE.finditer(text):
        yield from found[3].replace("\\\n", " ").splitlines()
    yield from re.findall(r"`([^`]+)`", prose(text))


def rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of each row of each table."""
    for line in prose(text).splitlines():
        if line.startswith("| ") and not line.startswith("| ---"):
            yield [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield what is typed in the blocks with prompts, each with what it prints."""
    for found in _FENCE.finditer(text):
        if found[2] == "console":
            for part in re.split(r"^\$ ", dedent(found[3]), flags=re.MULTILINE)[1:]:
                typed, _, printed = part.partition("\n")
                yield typed, printed
