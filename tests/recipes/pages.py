"""The pages of docs/recipes and the code in them: the tests run this and no copies of it."""

import re
from pathlib import Path
from typing import NamedTuple

from tests.harness.ticketd import REPOSITORY

PAGES = REPOSITORY / "docs/recipes"
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"(?:<\?php\n)?(?:#|//) (\S+\.\w+)\n")
"""How a block begins that is a whole file: a comment that is its name."""


class Block(NamedTuple):
    """The text between two fences, and its language."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The name of the file that this block is; None for commands."""
        found = _FILE_NAME.match(self.text)
        return found[1] if found else None


def blocks(page: str) -> list[Block]:
    """All blocks of a page, in their order."""
    return [Block(each[1], each[2]) for each in _FENCED.finditer((PAGES / page).read_text(encoding="utf-8"))]


def files(page: str) -> dict[str, str]:
    """The files of a page, by their names."""
    return {each.file: each.text for each in blocks(page) if each.file}


def commands(page: str) -> list[str]:
    """The blocks of a page that are commands, in their order."""
    return [each.text for each in blocks(page) if not each.file]


def write_files(page: str, directory: Path, replacing: dict[str, str] | None = None) -> None:
    """Write the files of a page into a directory. `replacing`: old text to new; each has to be there."""
    texts = files(page)
    for old, new in (replacing or {}).items():
        assert any(old in text for text in texts.values()), f"{old} is not in {page}"
        texts = {name: text.replace(old, new) for name, text in texts.items()}
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
