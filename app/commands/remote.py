"""The ticket server that a command asks, over `ticketd_client`, and its errors as one line each."""

import time
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import ticketd_client
from ticketd_client import Tickets
from ticketd_client.failover import Failover
from ticketd_client.over_http import HTTPServer
from ticketd_client.servers import Server
from ticketd_client.urls import servers_of
from ticketd_client.workers import Workers

from app.commands.terminal import secret_in
from app.common.errors import SettingsError, TicketError

DEFAULT_URL = "http://127.0.0.1:8000"
URL_VARIABLE, TOKEN_VARIABLE = "TICKETD_URL", "TICKETD_TOKEN_FILE"
AT_ONCE = 1_000
"""Tickets in one request."""
TIMEOUT_SECONDS = 30.0
"""For an answer; and for asking again, once the server has given something."""
PATIENCE_SECONDS = 2.0
"""For asking a server again that has given nothing yet: it may be starting, or it is none."""
MOST_BYTES = 32 * 1024 * 1024
"""Of an answer. A page of 1,000 sequences takes one to two kilobytes for each."""
OK, CREATED, UNAVAILABLE = 200, 201, 503

T = TypeVar("T")


class RequestFailed(TicketError):
    """The ticket server did not do what was asked."""


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


class RemoteServer:
    """The server at a place. Raises SettingsError for what cannot be used, RequestFailed for what was not done."""

    def __init__(self, place: Place) -> None:
        self._place = place
        if "@" in place.url:
            raise SettingsError(f"{place.url_from}: a user or password cannot be used; expected --token-file FILE")
        try:
            self._tickets = Tickets(
                place.url, token=place.token, prefetch=0, timeout=TIMEOUT_SECONDS, patience=PATIENCE_SECONDS
            )
            servers = servers_of(place.url, place.token, None)
        except ticketd_client.InvalidRequest as error:
            source = place.token_from if str(error).startswith("the token") else place.url_from
            raise SettingsError(f"{source}: {error}") from error
        self._failover = Failover(servers, Workers(1), PATIENCE_SECONDS)
        self._speaks_http = all(isinstance(server, HTTPServer) for server in servers)

    def take(self, sequence: str, count: int) -> Iterator[list[int | str]]:
        """`count` tickets (strings where they are longer than 63 bits), in lists of up to 1,000, each requested when
        the one before has been consumed."""
        while count > 0:
            size = min(count, AT_ONCE)
            with _in_one_line():
                tickets = self._tickets.take_many(sequence, size)
            yield tickets
            count -= size

    def bump(self, sequence: str, above: int, *, force: bool = False) -> dict[str, Any]:
        """Advance the sequence above a number; the server's answer."""
        with _in_one_line():
            return self._tickets.bump(sequence, above, force)

    def create(self, sequence: str, given: Mapping[str, object]) -> tuple[bool, dict[str, Any]]:
        """Create the sequence with the kind and the parameters that are `given`. Returns whether this created it, and
        the server's description of it."""
        status, found = self._request("PUT", f"/sequence/{quote(sequence, safe='')}", given, {OK, CREATED})
        return status == CREATED, found

    def show(self, sequence: str) -> dict[str, Any]:
        """The server's description of the sequence."""
        return self._request("GET", f"/sequence/{quote(sequence, safe='')}")[1]

    def matching(self, search: str) -> dict[str, Any]:
        """The sequences whose names contain `search`, ignoring case, as one answer: the server gives pages of 1,000.

        Raises RequestFailed also where the server's pages do not lead from one to the next.
        """
        listed: list[Any] = []
        after = ""
        while True:
            query = urlencode({name: value for name, value in (("search", search), ("after", after)) if value})
            found = self._request("GET", "/sequence" + (f"?{query}" if query else ""))[1]
            page, onward = found.get("sequences"), found.get("next")
            if not isinstance(page, list) or not (onward is None or (isinstance(onward, str) and onward > after)):
                raise RequestFailed(
                    f"{self._place.url} did not answer with a list of sequences: is it a ticket server?"
                )
            listed += page
            if onward is None:
                return found | {"sequences": listed}
            after = onward

    def warnings(self) -> list[dict[str, Any]]:
        """The warnings of /healthz, which the server gives while it cannot issue tickets, too."""
        found = self._request("GET", "/healthz", accepted={OK, UNAVAILABLE})[1].get("warnings")
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    def _request(
        self, method: str, path: str, content: Mapping[str, object] | None = None, accepted: Container[int] = (OK,)
    ) -> tuple[int, dict[str, Any]]:
        """The status, one of `accepted`, and the JSON object of the answer."""
        if not self._speaks_http:
            raise SettingsError(
                f"{self._place.url_from}: {self._place.url} speaks the Redis protocol, which knows tickets alone; "
                "expected http://host:port or https://"
            )

        def question(server: Server, deadline: float) -> tuple[int, dict[str, Any]]:
            assert isinstance(server, HTTPServer)
            return server.request(method, path, content, deadline, MOST_BYTES, accepted=accepted)

        with _in_one_line():
            return self._ask(question)

    def _ask(self, question: Callable[[Server, float], T]) -> T:
        return self._failover.ask(question, time.monotonic() + TIMEOUT_SECONDS, "nothing was done")


@contextmanager
def _in_one_line() -> Iterator[None]:
    try:
        yield
    except ticketd_client.TicketError as error:
        raise RequestFailed(_line_of(error)) from error


def _line_of(error: ticketd_client.TicketError) -> str:
    """The last answer, in the words of a command line."""
    if not error.answers:
        return str(error)
    answer = error.answers[-1]
    if answer.status is not None:
        return answer.says + (
            f"; --token-file FILE, or {TOKEN_VARIABLE}, names a file with one" if answer.status == 401 else ""
        )
    if answer.says.startswith("no answer"):
        return f"no answer from {answer.url}{answer.says.removeprefix('no answer')}: is the server running there?"
    return f"{answer.url} {answer.says}: is it a ticket server?"
