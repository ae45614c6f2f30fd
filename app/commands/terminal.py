"""The parts that the commands share: lines to print, columns, a server's words, types of arguments, one-line files."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence

from app.common.errors import SettingsError
from app.common.value_files import read_value

AddCommand = Callable[[str, str, str, str], argparse.ArgumentParser]
"""Adds a command by its name, its summary, its description and the text below its options."""


def print_lines(lines: Iterable[str]) -> None:
    """Print the lines and flush, so that the reader has them whatever happens next."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def columns(rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> list[str]:
    """The rows as lines with aligned columns, two spaces apart. `numbers`: the places of the columns of numbers, which
    end at the same place instead of beginning there. The last column is not padded."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if place in numbers else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def shown(text: str, longest: int = 300) -> str:
    """A server's own words on one line, printable, cut after `longest` characters."""
    line = " ".join(text.split())
    line = "".join(sign if sign.isprintable() else "?" for sign in line)
    return line if len(line) <= longest else line[:longest] + "…"


def whole_number(smallest: int) -> Callable[[str], int]:
    """A type for argparse: a whole number in digits."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) >= smallest):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, {smallest} or more")
        return int(text)

    return read


def secret_in(source: str, path: str) -> str:
    """The one line of a file that `source`, a flag or a variable, names. Raises SettingsError."""
    text = read_value(path, source)
    if "\n" in text.strip():
        raise SettingsError(f"{source}: the file {path} does not hold one line")
    return text
