"""What the client raises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Answer(NamedTuple):
    """What one URL answered, or why it did not: `says` in words, `status` of HTTP where there was one."""

    url: str
    says: str
    status: int | None = None


class TicketError(Exception):
    """The client could not do what was asked. `answers`: what each URL that was asked answered last."""

    def __init__(self, message: str, answers: Iterable[Answer] = ()) -> None:
        self.answers = tuple(answers)
        super().__init__(message, self.answers)  # all that it is made of, so that it can be pickled

    def __str__(self) -> str:
        return str(self.args[0])


class NoSuchSequence(TicketError):
    """There is no such sequence."""


class SequenceExhausted(TicketError):
    """Every ticket of the sequence has been handed out."""


class NotAllowed(TicketError):
    """The server wants a token, or another one."""


class TicketsUnavailable(TicketError):
    """No URL gave what was asked for within `timeout`. The text lists what each answered; later it may work."""


class SequenceConflict(TicketError):
    """The sequence is there with other parameters than were asked for."""


class InvalidRequest(TicketError, ValueError):
    """What was asked for is malformed: a sequence's name, a number, a key, a URL."""
