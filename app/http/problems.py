"""Errors as RFC 9457 problem details: the one table from an error to its status."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import Scope

from app import errors

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = 1
"""Seconds after which a client may ask again."""
BEARER = 'Bearer realm="tickets"'
"""How a client that sent no token is asked for one."""
BAD_REQUEST, NOT_FOUND, METHOD_NOT_ALLOWED = "bad-request", "not-found", "method-not-allowed"
"""Codes of what is wrong with HTTP itself, for which there is no error of ours."""
_LONGEST_DETAIL = 500
"""Characters. A detail may repeat what a client sent."""

_STATUSES: Mapping[int, tuple[type[errors.TicketError], ...]] = {
    401: (errors.Unauthenticated,),
    403: (errors.Forbidden, errors.CrossSite),
    404: (errors.UnknownSequence,),
    409: (errors.SequenceConflict, errors.AboveCeiling, errors.ForceRequired),
    410: (errors.Exhausted,),
    422: (errors.InvalidRequest,),
    500: (errors.Defect,),
    503: (
        errors.NoTicketDatabase,
        errors.Unavailable,
        errors.OutOfTime,
        errors.Draining,
        errors.ClockAhead,
        errors.Unverified,
        errors.NotConfirmed,
        errors.Growing,
        errors.TooManyConnections,
    ),
}
TABLE = MappingProxyType({kind: (status, kind.code) for status, kinds in _STATUSES.items() for kind in kinds})
"""Status and code of each error, also of the errors derived from it."""


class Problem(NamedTuple):
    """An answer that says what went wrong. headers: all that the answer has, except its length."""

    status: int
    code: str
    title: str
    detail: str
    headers: tuple[tuple[str, str], ...]

    def body(self) -> bytes:
        """Return the answer's body, as JSON."""
        about = {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
        }
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
    found = next((TABLE[kind] for kind in type(error).__mro__ if kind in TABLE), None)
    if found is not None:
        headers = {"www-authenticate": authenticate} if found[0] == HTTPStatus.UNAUTHORIZED else None
        return problem(*found, str(error), headers)
    if isinstance(error, errors.DatabaseError):  # its message may be an operator's affair only
        return problem(*TABLE[errors.NoTicketDatabase], "the ticket databases cannot do this now")
    return problem(*TABLE[errors.Defect], str(errors.Defect()))


def respond(scope: Scope, answer: Problem) -> Response:
    """Return the response with a problem, and leave its code in the `state` of the scope, where `access.Gate` reads."""
    scope.setdefault("state", {})["code"] = answer.code
    return Response(answer.body(), answer.status, dict(answer.headers))
