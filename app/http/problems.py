"""Errors as RFC 9457 problem details: the one table from exception to status."""

import json
from dataclasses import dataclass
from http import HTTPStatus

from starlette.types import Send

from app.common import errors

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1
LONGEST_DETAIL = 500
"""Characters. A detail may repeat what was sent, so it is cut here."""

STATUS: dict[type[errors.TicketError], int] = {
    errors.InvalidRequest: 422,
    errors.UnknownSequence: 404,
    errors.SequenceConflict: 409,
    errors.AboveCeiling: 409,
    errors.ForceRequired: 409,
    errors.SequenceExhausted: 410,
    errors.Unavailable: 503,
    errors.UnknownError: 500,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error answer: status, one sentence, and additional headers."""

    status: int
    detail: str
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> str:
        """The status's reason phrase."""
        return HTTPStatus(self.status).phrase

    @property
    def body(self) -> bytes:
        """The problem details as JSON."""
        detail = self.detail if len(self.detail) <= LONGEST_DETAIL else self.detail[:LONGEST_DETAIL] + "…"
        text = json.dumps(
            {"type": "about:blank", "title": self.title, "status": self.status, "detail": detail}, ensure_ascii=False
        )
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
        status = STATUS.get(kind)
        if status is not None:
            return Problem(status, str(error))
    return Problem(503, "the ticket databases cannot do it now")


def method_not_allowed(*allowed: str) -> Problem:
    """405 with the allowed methods."""
    methods = ", ".join(allowed)
    return Problem(405, f"this method is not allowed here; allowed: {methods}", (("allow", methods),))


async def send_problem(send: Send, problem: Problem, *, head: bool = False) -> None:
    """Answer with a problem, outside any framework; to HEAD without its body."""
    body = problem.body
    headers = [(key.encode(), value.encode("latin-1")) for key, value in problem.all_headers.items()]
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})
