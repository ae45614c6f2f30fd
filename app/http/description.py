"""What FastAPI does not put into the OpenAPI document by itself: errors, and which requests need a token."""

from typing import Any

from fastapi import FastAPI

from app.access import Access
from app.http.access import right_of
from app.http.models import ProblemDetails
from app.http.problems import BAD_REQUEST, MEDIA_TYPE, METHOD_NOT_ALLOWED, NOT_FOUND, TABLE

_SCHEME = "bearer"
_CODES = [*sorted(TABLE.values()), (400, BAD_REQUEST), (404, NOT_FOUND), (405, METHOD_NOT_ALLOWED)]
PROBLEM: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": f"An error. Status and `code`: {', '.join(f'{status} {code}' for status, code in _CODES)}. "
        "A 401 has WWW-Authenticate, a 405 has Allow, a 503 has Retry-After.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
    }
}
"""The errors of every path, for `responses` of the application."""


def complete_document(api: FastAPI, access: Access) -> None:
    """Let the OpenAPI document of an application hold what is missing from FastAPI's."""
    plain = api.openapi

    def openapi() -> dict[str, Any]:
        document = plain()
        document["components"]["schemas"]["ProblemDetails"] = ProblemDetails.model_json_schema()
        document["components"]["securitySchemes"] = {_SCHEME: {"type": "http", "scheme": "bearer"}}
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                right = right_of(method.upper(), path)
                if right is not None and access.needs_token(right):
                    operation["security"] = [{_SCHEME: []}]
        return document

    api.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way
