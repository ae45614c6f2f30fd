"""Errors as RFC 9457 problem details: the one table from exception to code, and from code to status."""

import json
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus

from starlette.types import Send

from app.common import errors

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1
LONGEST_DETAIL = 500
"""Characters. A detail may repeat what was sent, so it is cut here."""


class Code(StrEnum):
    """The cause of an error as a word for programs. A word never changes its meaning; a later release may add words."""

    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    CROSS_SITE = "cross-site"
    BAD_REQUEST = "bad-request"
    NO_SUCH_SEQUENCE = "no-such-sequence"
    NOT_FOUND = "not-found"
    METHOD_NOT_ALLOWED = "method-not-allowed"
    CONFLICT = "conflict"
    ABOVE_CEILING = "above-ceiling"
    FORCE_REQUIRED = "force-required"
    EXHAUSTED = "exhausted"
    INVALID = "invalid"
    INTERNAL = "internal"
    NO_DATABASE = "no-database"
    OUT_OF_TIME = "out-of-time"
    DRAINING = "draining"
    CLOCK_AHEAD = "clock-ahead"
    UNVERIFIED = "unverified"
    NOT_CONFIRMED = "not-confirmed"
    OLDER_SERVER = "older-server"
    TOO_MANY_CONNECTIONS = "too-many-connections"


STATUSES: dict[int, tuple[Code, ...]] = {
    400: (Code.BAD_REQUEST,),
    401: (Code.UNAUTHENTICATED,),
    403: (Code.FORBIDDEN, Code.CROSS_SITE),
    404: (Code.NO_SUCH_SEQUENCE, Code.NOT_FOUND),
    405: (Code.METHOD_NOT_ALLOWED,),
    409: (Code.CONFLICT, Code.ABOVE_CEILING, Code.FORCE_REQUIRED),
    410: (Code.EXHAUSTED,),
    413: (Code.BAD_REQUEST,),
    422: (Code.INVALID,),
    431: (Code.BAD_REQUEST,),
    500: (Code.INTERNAL,),
    503: (
        Code.NO_DATABASE,
        Code.OUT_OF_TIME,
        Code.DRAINING,
        Code.CLOCK_AHEAD,
        Code.UNVERIFIED,
        Code.NOT_CONFIRMED,
        Code.OLDER_SERVER,
        Code.TOO_MANY_CONNECTIONS,
    ),
}
"""The codes of each status."""
_STATUS = {code: status for status, codes in reversed(STATUSES.items()) for code in codes}

CODES: dict[type[errors.TicketError], Code] = {
    errors.InvalidRequest: Code.INVALID,
    errors.UnknownSequence: Code.NO_SUCH_SEQUENCE,
    errors.SequenceConflict: Code.CONFLICT,
    errors.AboveCeiling: Code.ABOVE_CEILING,
    errors.ForceRequired: Code.FORCE_REQUIRED,
    errors.SequenceExhausted: Code.EXHAUSTED,
    errors.Unavailable: Code.NO_DATABASE,
    errors.OutOfTime: Code.OUT_OF_TIME,
    errors.Draining: Code.DRAINING,
    errors.WrongClock: Code.CLOCK_AHEAD,
    errors.Unverified: Code.UNVERIFIED,
    errors.NotConfirmed: Code.NOT_CONFIRMED,
    errors.OlderServer: Code.OLDER_SERVER,
    errors.TooManyConnections: Code.TOO_MANY_CONNECTIONS,
    errors.UnknownError: Code.INTERNAL,
}
"""The code for each of our errors, and for those that derive from it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error answer: a code, one sentence, and additional headers. `status`: which of the code's statuses, where it
    is not the first."""

    code: Code
    detail: str
    headers: tuple[tuple[str, str], ...] = ()
    status: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", self.status or _STATUS[self.code])

    @property
    def title(self) -> str:
        """The status's reason phrase."""
        return HTTPStatus(self.status).phrase

    @property
    def body(self) -> bytes:
        """The problem details as JSON."""
        detail = self.detail if len(self.detail) <= LONGEST_DETAIL else self.detail[:LONGEST_DETAIL] + "…"
        about = {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": detail,
            "code": self.code,
        }
        text = json.dumps(about, ensure_ascii=False)
        return text.encode(errors="backslashreplace")  # half a surrogate pair becomes its JSON escape

    @property
    def all_headers(self) -> dict[str, str]:
        """Every header of the answer."""
        always = {"content-type": MEDIA_TYPE, "cache-control": "no-store"}
        if self.status == 503:
            always["retry-after"] = str(RETRY_AFTER_SECONDS)
        return always | dict(self.headers)


def problem_of(error: errors.TicketError) -> Problem:
    """The problem details for one of our errors."""
    for kind in type(error).__mro__:
        code = CODES.get(kind)
        if code is not None:
            return Problem(code, str(error))
    return Problem(Code.NO_DATABASE, "the ticket databases cannot do it now")


def method_not_allowed(*allowed: str) -> Problem:
    """405 with the allowed methods."""
    methods = ", ".join(allowed)
    detail = f"this method is not allowed here; allowed: {methods}"
    return Problem(Code.METHOD_NOT_ALLOWED, detail, (("allow", methods),))


def body_too_large(largest: int) -> Problem:
    """413 with the largest size, in bytes."""
    return Problem(Code.BAD_REQUEST, f"the body is larger than {largest} bytes", status=413)


async def send_problem(send: Send, problem: Problem, *, head: bool = False) -> None:
    """Answer with a problem, outside any framework; to HEAD without its body."""
    body = problem.body
    headers = [(key.encode(), value.encode("latin-1")) for key, value in problem.all_headers.items()]
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})
