"""The ticket server that a command asks, over `ticketd_client`, and its errors as one line each."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ticketd_client
from ticketd_client import Tickets

from app.common.errors import SettingsError, TicketError

DEFAULT_URL = "http://127.0.0.1:8000"
AT_ONCE = 1_000
"""Tickets in one request."""
TIMEOUT_SECONDS = 30.0
"""For an answer; and for asking again, once the server has given something."""
PATIENCE_SECONDS = 2.0
"""For asking a server again that has given nothing yet: it may be starting, or it is none."""


class RequestFailed(TicketError):
    """The ticket server did not do what was asked."""


class RemoteServer:
    """The server at `url`. Raises SettingsError for what cannot be used, RequestFailed for what was not done."""

    def __init__(self, url: str, token: str | None = None) -> None:
        if "@" in url:
            raise SettingsError("--url: a user or password cannot be used; expected --token-file FILE")
        try:
            self._tickets = Tickets(url, token=token, prefetch=0, timeout=TIMEOUT_SECONDS, patience=PATIENCE_SECONDS)
        except ticketd_client.InvalidRequest as error:
            flag = "--token-file" if str(error).startswith("the token") else "--url"
            raise SettingsError(f"{flag}: {error}") from error

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
        return answer.says + ("; --token-file FILE names a file with one" if answer.status == 401 else "")
    if answer.says.startswith("no answer"):
        return f"no answer from {answer.url}{answer.says.removeprefix('no answer')}: is the server running there?"
    return f"{answer.url} {answer.says}: is it a ticket server?"
