"""The ticket server that a command asks: where it is, and what can be asked of it."""

import re
from collections.abc import Container, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from app.commands.server_connection import (
    CREATED,
    OK,
    TOKEN_VARIABLE,
    UNAVAILABLE,
    URL_VARIABLE,
    RequestFailed,
    ServerConnection,
    UnusableURL,
)
from app.commands.terminal import secret_in
from app.common.errors import SettingsError

DEFAULT_URL = "http://127.0.0.1:8000"
AT_ONCE = 1_000
"""Tickets in one request."""
_ID = re.compile(r"[0-9A-Za-z-]{1,36}")
"""An id of any kind, as text."""


class Place(NamedTuple):
    """Where the server is. `url_from`, `token_from`: the flag or the variable that says so, for errors."""

    url: str
    token: str | None
    url_from: str
    token_from: str


def place_of(url: str | None, token_file: str | None, environment: Mapping[str, str]) -> Place:
    """The server that the flags name, or else the variables. `url`, `token_file`: the flags' values, None where they
    are not given. Raises SettingsError, also for a variable that is set and empty."""
    url, url_from = _given(url, "--url", URL_VARIABLE, "a URL", environment)
    path, token_from = _given(token_file, "--token-file", TOKEN_VARIABLE, "the path of a file", environment)
    token = None if path is None else secret_in(token_from, path).strip()
    return Place(DEFAULT_URL if url is None else url, token, url_from, token_from)


def _given(
    value: str | None, flag: str, variable: str, expected: str, environment: Mapping[str, str]
) -> tuple[str | None, str]:
    """The value of the flag or the variable, None where neither is given, and which of them gave it."""
    source = flag
    if value is None and variable in environment:
        value, source = environment[variable].strip(), variable
    if value == "":
        raise SettingsError(f"{source}: '' cannot be used; expected {expected}" + (", or unset" * (source != flag)))
    return value, source


def connection_to(place: Place) -> ServerConnection:
    """A connection to the server at a place. Raises SettingsError, which names the flag or the variable."""
    token = place.token
    if token is not None and not (token and token.isprintable() and " " not in token):
        raise SettingsError(f"{place.token_from}: the file does not hold a token: printable, without spaces")
    try:
        return ServerConnection(place.url, token)
    except UnusableURL as error:
        raise SettingsError(f"{place.url_from}: {error}") from error


class RemoteServer:
    """What can be asked of a ticket server. The methods raise RequestFailed where it did not do that."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    def take(self, sequence: str, count: int) -> Iterator[list[str]]:
        """Yield `count` tickets in lists of up to 1,000. The next list is requested when the caller wants it."""
        while count > 0:
            size = min(count, AT_ONCE)

            def wrong(answer: dict[str, Any], size: int = size) -> str | None:
                return _wrong_tickets(answer, sequence, size)

            path = f"/ticket/{quote(sequence, safe='')}?count={size}"
            yield self._connection.ask("POST", path, check=wrong)[1]["ids_str"]
            count -= size

    def bump(self, sequence: str, above: int, *, force: bool = False) -> dict[str, Any]:
        """Advance the sequence above a number; the server's answer."""
        return self._ask("POST", f"/sequence/{quote(sequence, safe='')}/bump", {"above": above, "force": force})[1]

    def create(self, sequence: str, given: Mapping[str, object]) -> tuple[bool, dict[str, Any]]:
        """Create the sequence with the kind and the parameters that are `given`. Returns whether this created it, and
        the server's description of it."""
        status, found = self._ask("PUT", f"/sequence/{quote(sequence, safe='')}", given, {OK, CREATED})
        return status == CREATED, found

    def show(self, sequence: str) -> dict[str, Any]:
        """The server's description of the sequence."""
        return self._ask("GET", f"/sequence/{quote(sequence, safe='')}")[1]

    def matching(self, search: str) -> dict[str, Any]:
        """The sequences whose names contain `search`, ignoring case, as one answer: the server gives pages of 1,000.

        Raises RequestFailed also where the server's pages do not lead from one to the next.
        """
        listed: list[Any] = []
        after = ""
        while True:
            query = urlencode({name: value for name, value in (("search", search), ("after", after)) if value})
            found = self._ask("GET", "/sequence" + (f"?{query}" if query else ""))[1]
            page, onward = found.get("sequences"), found.get("next")
            if not isinstance(page, list) or not (onward is None or (isinstance(onward, str) and onward > after)):
                raise RequestFailed(
                    f"{self._connection.url} did not answer with a list of sequences: is it a ticket server?"
                )
            listed += page
            if onward is None:
                return found | {"sequences": listed}
            after = onward

    def warnings(self) -> list[dict[str, Any]]:
        """The warnings of /healthz, which the server gives while it cannot issue tickets, too."""
        found = self._ask("GET", "/healthz", accepted={OK, UNAVAILABLE})[1].get("warnings")
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    def _ask(
        self, method: str, path: str, content: Mapping[str, object] | None = None, accepted: Container[int] = (OK,)
    ) -> tuple[int, dict[str, Any]]:
        return self._connection.ask(method, path, content, accepted=accepted)


def _wrong_tickets(answer: Mapping[str, Any], sequence: str, count: int) -> str | None:
    """What is wrong with an answer to a request for `count` tickets; None where nothing is.

    A name may come back in lower case, because some databases fold names.
    """
    ids = answer.get("ids_str")
    if not isinstance(ids, list) or len(ids) != count:
        return f"did not answer with {count} tickets"
    if str(answer.get("sequence")).lower() != sequence.lower():
        return "answered for another sequence"
    if not all(isinstance(each, str) and _ID.fullmatch(each) for each in ids) or len(set(ids)) != count:
        return "answered with ids that no sequence has"
    return None
