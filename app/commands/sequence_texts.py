"""How `create`, `list` and `show` write the server's descriptions of sequences for a terminal.

The server may be of a later release: keys that are unknown here are shown, and those that are missing are "-".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from app.commands.terminal import columns, shown

NONE = "-"
_HEAD = ("SEQUENCE", "KIND", "BITS", "LAST", "HEADROOM", "WARNINGS")
_NUMBERS = (2, 3, 4)
_DATABASE_HEAD = ("DATABASE", "OFFSET", "STATUS", "LAST", "HEADROOM")
_DATABASE_KEYS = ("name", "offset", "status", "last", "headroom")
_DATABASE_NUMBERS = (1, 3, 4)
_LEFT_OUT = frozenset({"sequence", "databases"})

Described = Mapping[str, Any]
"""A sequence as the server describes it, or a warning of /healthz."""


def of_list(sequences: Iterable[Any], warnings: Iterable[Described]) -> list[str]:
    """A heading and a line for each sequence, in aligned columns."""
    warned = _by_sequence(warnings)
    rows = [_row(each, warned.get(str(each.get("sequence")), [])) for each in sequences if isinstance(each, dict)]
    return columns([_HEAD, *rows], _NUMBERS)


def of_sequence(found: Described, warnings: Iterable[Described] = ()) -> list[str]:
    """One sequence: its properties, a line each, then a table of the databases, then the warnings about it."""
    properties = [(f"  {key.replace('_', ' ')}", _text(value)) for key, value in _properties(found)]
    lines = columns(properties) if properties else []
    databases = _databases(found)
    if databases:
        rows = [tuple(_cell(each.get(key)) for key in _DATABASE_KEYS) for each in databases]
        lines += ["", *(f"  {line}" for line in columns([_DATABASE_HEAD, *rows], _DATABASE_NUMBERS))]
    about = _by_sequence(warnings).get(str(found.get("sequence")), [])
    if about:
        lines += ["", *(f"  warning: {reason}" for reason in about)]
    return lines


def _row(each: Described, warned: Sequence[str]) -> tuple[str, ...]:
    # the databases of another kind than `ticket` give what its ids are made of, not the ids
    databases = _databases(each) if each.get("kind") == "ticket" else []
    last = [value for on in databases if isinstance(value := on.get("last"), int)]
    left = [value for on in databases if isinstance(value := on.get("headroom"), int)]
    reasons = [*(["exhausted"] if each.get("exhausted") is True else []), *warned]
    return (
        _cell(each.get("sequence")),
        _cell(each.get("kind")),
        _cell(each.get("bits")),
        _cell(max(last, default=None)),
        _cell(sum(left) if left else None),
        "; ".join(reasons) or NONE,
    )


def _databases(each: Described) -> list[Described]:
    found = each.get("databases")
    return [on for on in found if isinstance(on, dict)] if isinstance(found, list) else []


def _properties(found: Described) -> Iterator[tuple[str, Any]]:
    """The facts about the sequence as a whole, without the numbers that stand there as strings once more."""
    for key, value in found.items():
        repeats = key.endswith("_str") and key.removesuffix("_str") in found
        if key not in _LEFT_OUT and not repeats:
            yield shown(key), value


def _by_sequence(warnings: Iterable[Described]) -> dict[str, list[str]]:
    """The warnings about each sequence, in words."""
    found: dict[str, list[str]] = {}
    for each in warnings:
        sequence, database, reason = (each.get(key) for key in ("sequence", "database", "reason"))
        if isinstance(sequence, str):
            on = f"{database}: " if isinstance(database, str) else ""
            found.setdefault(sequence, []).append(shown(f"{on}{reason}"))
    return found


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return NONE if value is None else shown(str(value))


def _cell(value: Any) -> str:
    """A value without spaces, so that a program can tell the columns apart."""
    return _text(value).replace(" ", "_") or NONE
