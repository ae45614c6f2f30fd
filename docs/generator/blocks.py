"""The part of a page that a program writes: what stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->`."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path


class NoBlock(Exception):
    """The page lacks the two comments, or has them more than once or in the wrong order."""


def replaced(text: str, name: str, content: str) -> str:
    """The page `text` with `content` between the comments of this name.

    `content` is Markdown without the comments; empty lines at its ends do not count. Raises NoBlock.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise NoBlock(f"the page needs {begin} and, after it, {end}, once each")
    before, after = text.partition(begin)[0], text.partition(end)[2]
    inside = content.strip("\n")
    return f"{before}{begin}\n\n{inside}\n\n{end}{after}"


def replace_in(path: Path, name: str, content: str) -> None:
    """Write `content` into the block of this name in a file. Raises NoBlock, and then leaves the file as it was."""
    try:
        text = replaced(path.read_text(encoding="utf-8"), name, content)
    except NoBlock as error:
        raise NoBlock(f"{path.name}: {error}") from None
    write(path, text)


def write(path: Path, text: str) -> None:
    """Write a text file whole, or leave it as it was."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """The lines of a Markdown table. `right`: the columns whose values are aligned to the right, counted from 0."""
    rule = ["---:" if number in right else "---" for number in range(len(columns))]
    return [f"| {' | '.join(each)} |" for each in (columns, rule, *rows)]
