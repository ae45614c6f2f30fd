"""Query strings: each parameter at most once, numbers in digits."""

from collections.abc import Sequence
from urllib.parse import parse_qsl

from app.common.errors import InvalidRequest

LONGEST_NUMBER = 19
"""Digits."""
MOST_PARAMETERS = 32
LONGEST_SHOWN = 64
"""Characters of a parameter's name that an error repeats."""


class Parameters:
    """The parameters of a query string, which has no question mark. Raises InvalidRequest where it cannot be read."""

    __slots__ = ("_pairs",)

    def __init__(self, query: bytes) -> None:
        try:
            self._pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
        except ValueError:
            raise InvalidRequest("the query cannot be read") from None

    def refuse_others(self, known: Sequence[str]) -> None:
        """Raise InvalidRequest for a parameter whose name is not known.

        Names that begin with `_` are ignored: browser libraries and proxies add some so that no answer is cached.
        """
        for name, _ in self._pairs:
            if name not in known and not name.startswith("_"):
                shown = name if len(name) <= LONGEST_SHOWN else name[:LONGEST_SHOWN] + "…"
                raise InvalidRequest(f"there is no parameter {shown}; {listed(known)}")

    def number(self, name: str, largest: int, *, least: int = 1) -> int | None:
        """The number `name`, from `least` to `largest`; None where it is not given. Raises InvalidRequest."""
        given = self._given(name)
        if not given:
            return None
        text = given[0]
        plain = len(given) == 1 and len(text) <= LONGEST_NUMBER and text.isascii() and text.isdigit()
        if not plain or (text[0] == "0" and text != "0") or not least <= int(text) <= largest:
            raise InvalidRequest(f"{name} has to be a whole number from {least} to {largest}, in digits, given once")
        return int(text)

    def text(self, name: str) -> str | None:
        """The text `name`; None where it is not given. Raises InvalidRequest."""
        given = self._given(name)
        if len(given) > 1:
            raise InvalidRequest(f"{name} has to be given once")
        return given[0] if given else None

    def _given(self, name: str) -> list[str]:
        return [value for key, value in self._pairs if key == name]


def listed(known: Sequence[str]) -> str:
    """Which parameters a page has, as a part of a sentence."""
    if not known:
        return "there are none"
    return f"there {'is' if len(known) == 1 else 'are'} {', '.join(known)}"
