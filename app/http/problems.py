"""Errors as RFC 9457 problem details: the one table from an error to its status."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import Scope

from app import errors

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = 1  # seconds after which a client may ask again
BEARER = 'Bearer realm="tickets"'  # how a client that sent no token is asked for one
BAD_REQUEST, NOT_FOUND, METHOD_NOT_ALLOWED = "bad-request", "not-found", "method-not-allowed"
"""Codes of what is wrong with HTTP itself, for which there is no error of ours."""
_LONGEST_DETAIL = 500  # Characters. A detail may repeat what a client sent.

STATUSES: Mapping[type[errors.TicketError], int] = {
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.CrossSite: 403,
    errors.UnknownSequence: 404,
    errors.SequenceConflict: 409,
    errors.AboveCeiling: 409,
    errors.ForceRequired: 409,
    errors.Exhausted: 410,
    errors.InvalidRequest: 422,
    errors.Defect: 500,
    errors.Unavailable: 503,
    errors.DatabaseError: 503,
}
"""The status of each error, also of the errors derived from it."""


def _derived(kind: type[errors.TicketError]) -> list[type[errors.TicketError]]:
    return [kind, *(each for derived in kind.__subclasses__() for each in _derived(derived))]


TABLE = {each: (status, each.code) for kind, status in STATUSES.items() for each in _derived(kind)}
"""Status and code of each error."""


class Problem(NamedTuple):
    """An answer that says what went wrong. headers: all that the answer has, except its length."""

    status: int
    code: str
    title: str
    detail: str
    headers: tuple[tuple[str, str], ...]

    def body(self) -> bytes:
        """Return the answer's body, as JSON."""
        about = {"type": "about:blank", "title": self.title, "status": self.status}
        about |= {"detail": self.detail, "code": self.code}
        # a client may have sent half of a surrogate pair, which UTF-8 does not have
        return json.dumps(about, ensure_ascii=False).encode(errors="backslashreplace")


def problem(status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> Problem:
    """Return the problem with this status, code and detail. headers: in addition to those that every problem has."""
    always = {"content-type": MEDIA_TYPE, "cache-control": "no-store"}
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        always["retry-after"] = str(RETRY_AFTER)
    if len(detail) > _LONGEST_DETAIL:
        detail = detail[:_LONGEST_DETAIL] + "…"
    return Problem(status, code, HTTPStatus(status).phrase, detail, tuple({**always, **(headers or {})}.items()))


def problem_of(error: BaseException, authenticate: str = BEARER) -> Problem:
    """Return the problem for an error. authenticate: the WWW-Authenticate header, where a token is wanted."""
    kind = next((each for each in type(error).__mro__ if each in STATUSES), None)
    if not isinstance(error, errors.TicketError) or kind is None:
        error, kind = errors.Defect(), errors.Defect
    is_inner = kind is errors.DatabaseError  # its message may be an operator's affair only
    detail = "the ticket databases cannot do this now" if is_inner else str(error)
    headers = {"www-authenticate": authenticate} if STATUSES[kind] == HTTPStatus.UNAUTHORIZED else None
    return problem(STATUSES[kind], error.code, detail, headers)


def respond(scope: Scope, answer: Problem) -> Response:
    """Return the response with a problem, and leave its code in the `state` of the scope, where `access.Gate` reads."""
    scope.setdefault("state", {})["code"] = answer.code
    return Response(answer.body(), answer.status, dict(answer.headers))
