"""Query strings: each parameter at most once, numbers in digits."""

from urllib.parse import parse_qsl

from app.common.errors import InvalidRequest

LONGEST_NUMBER = 19
"""Digits."""
MOST_PARAMETERS = 32


def number_in(query: bytes, name: str, largest: int, *, least: int = 1) -> int | None:
    """The query's `name`, or None where it is not given. Raises InvalidRequest."""
    given = _given(query, name)
    if not given:
        return None
    text = given[0]
    plain = len(given) == 1 and len(text) <= LONGEST_NUMBER and text.isascii() and text.isdigit()
    if not plain or (text[0] == "0" and text != "0") or not least <= int(text) <= largest:
        raise InvalidRequest(f"{name} has to be a whole number from {least} to {largest}, in digits, given once")
    return int(text)


def text_in(query: bytes, name: str) -> str | None:
    """The query's `name`, or None where it is not given. Raises InvalidRequest."""
    given = _given(query, name)
    if len(given) > 1:
        raise InvalidRequest(f"{name} has to be given once")
    return given[0] if given else None


def names_in(query: bytes) -> list[str]:
    """The names of all parameters, in the order in which they are given. Raises InvalidRequest."""
    return [name for name, _ in _pairs(query)]


def _given(query: bytes, name: str) -> list[str]:
    return [value for key, value in _pairs(query) if key == name]


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
    except ValueError:
        raise InvalidRequest("the query cannot be read") from None
