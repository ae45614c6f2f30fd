"""What FastAPI does not put into the OpenAPI document by itself: error answers, and which requests need a token."""

from typing import Any

from fastapi import FastAPI

from app.access import Access, Right
from app.http.access import right_of
from app.http.models import ProblemDetails
from app.http.problems import BAD_REQUEST, MEDIA_TYPE, TABLE

_ERRORS = {
    401: "The token is missing or unknown.",
    403: "The token does not permit this, or a browser asks on behalf of another site.",
    404: "There is no such sequence.",
    409: "The request does not fit what the sequence is.",
    410: "The sequence is exhausted on every ticket database.",
    413: "The body is too large.",
    422: "The request is malformed; the detail says what is wanted.",
    503: "This cannot be done now. Ask again, or ask another server.",
}
_HEADERS = {401: ("WWW-Authenticate", "how to authenticate"), 503: ("Retry-After", "seconds to wait")}
_SCHEME = "bearer"


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error answers of a route, for its `responses`."""
    return {status: {"$ref": f"#/components/responses/{status}", "description": _ERRORS[status]} for status in statuses}


def complete_document(api: FastAPI, access: Access) -> None:
    """Let the OpenAPI document of an application hold what is missing from FastAPI's."""
    plain = api.openapi

    def openapi() -> dict[str, Any]:
        document = plain()
        if "responses" not in document["components"]:
            _complete(document, access)
        return document

    api.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way


def _complete(document: dict[str, Any], access: Access) -> None:
    components = document["components"]
    components["schemas"]["ProblemDetails"] = ProblemDetails.model_json_schema()
    components["responses"] = {str(status): _response(status) for status in _ERRORS}
    components["securitySchemes"] = {_SCHEME: {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            right = right_of(method.upper(), path)
            if right is None:
                continue
            needs_token = access.needs_token(right)
            if needs_token:
                operation["security"] = [{_SCHEME: []}]
            statuses = [401] * needs_token + [403] * (right is not Right.READING)
            operation["responses"].update({str(status): answer for status, answer in errors(*statuses).items()})


def _response(status: int) -> dict[str, Any]:
    codes = dict.fromkeys([code for its, code in TABLE.values() if its == status] or [BAD_REQUEST])
    answer: dict[str, Any] = {
        "description": f"{_ERRORS[status]} `code`: {', '.join(codes)}.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
    }
    if status in _HEADERS:
        name, description = _HEADERS[status]
        answer["headers"] = {name: {"description": description, "schema": {"type": "string"}}}
    return answer
