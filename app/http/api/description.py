"""The OpenAPI document: every route, parameter, answer and error.

FastAPI describes its own routes, with the answers declared here. Tickets and blocks are served ahead of FastAPI, so
their part is written by hand.
"""

import json
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.common.sequences import NAME_PATTERN, TICKET_LIMIT
from app.http.api.models import (
    ID_PATTERN,
    Block,
    Bumped,
    Decoded,
    Health,
    ProblemDetails,
    Sequence,
    Sequences,
    Ticket,
    Tickets,
)
from app.http.gate import OPEN_PATHS
from app.http.problems import MEDIA_TYPE, STATUSES, Code, Problem
from app.kinds.table import DECODE_PARAMETERS, KINDS

JSON = "application/json"
Example = dict[str, Any]


# --- responses by status ---------------------------------------------------------------------------------------------

_PROBLEMS = {
    401: (Code.UNAUTHENTICATED, "The token is missing or unknown.",
          "a bearer token is required: Authorization: …"),
    403: (Code.FORBIDDEN, "The token does not permit this.",
          "this token may draw tickets, but not make or bump a sequence"),
    404: (Code.NO_SUCH_SEQUENCE, "There is no such sequence.",
          "there is no sequence photo; PUT /sequence/photo makes it"),
    409: (Code.CONFLICT, "It conflicts with what the sequence is.", "the sequence photos exists with 64 bits"),
    410: (Code.EXHAUSTED, "The sequence is exhausted on every ticket database.",
          "photos is exhausted: every id has been used"),
    413: (Code.BAD_REQUEST, "The body is too large.", "the body is larger than 65536 bytes"),
    422: (Code.INVALID, "The request is malformed; the detail says what is required.",
          "a sequence's name is 1 to 64 letters, digits and underscores, a letter first"),
    503: (Code.NO_DATABASE, "It cannot be done now; try again later.",
          "no ticket database can draw for photos now"),
}  # fmt: skip


def _example(value: Example) -> dict[str, Any]:
    return {"example": value}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of a route, by status."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        code, description, detail = _PROBLEMS[status]
        example = json.loads(Problem(code, detail, status=status).body)
        codes = ", ".join(f"`{each}`" for each in STATUSES[status])
        found[status] = {
            "description": f"{description} `code`: {codes}.",
            "content": {MEDIA_TYPE: {"schema": _reference(ProblemDetails), **_example(example)}},
        }
        if status == 401:
            found[status]["headers"] = {"WWW-Authenticate": _header("how to authenticate")}
        if status == 503:
            found[status]["headers"] = {"Retry-After": _header("seconds to wait", kind="integer")}
    return found


def answers(
    model: type[BaseModel], description: str, example: Example, *, headers: dict[str, Any] | None = None
) -> dict[str, Any]:
    """An answer in JSON."""
    content = {JSON: {"schema": _reference(model), **_example(example)}}
    return {"description": description, "content": content, **({"headers": headers} if headers else {})}


def text_answer(description: str, media_type: str = "text/plain", example: str | None = None) -> dict[str, Any]:
    """An answer in text."""
    content: dict[str, Any] = {"schema": {"type": "string"}}
    if example is not None:
        content["example"] = example
    return {"description": description, "content": {media_type: content}}


def _header(description: str, kind: str = "string") -> dict[str, Any]:
    return {"description": description, "schema": {"type": kind}}


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


_ON_DATABASES = [
    {"name": f"{host}:3306", "offset": offset, "status": "up", "last": last, "last_str": str(last),
     "headroom": left, "headroom_str": str(left)}
    for host, offset, last, left in (("odd", 1, 7, 4611686018427387900), ("even", 2, 10, 4611686018427387898))
]  # fmt: skip
SEQUENCE_EXAMPLE: Example = {
    "sequence": "photos", "kind": "ticket", "unique": "certainly", "bits": 64,
    "ceiling": TICKET_LIMIT, "ceiling_str": str(TICKET_LIMIT), "exhausted": False,
    "databases": _ON_DATABASES,
}  # fmt: skip
BUMPED_EXAMPLE: Example = {"sequence": "photos", "above": 5, "above_str": "5", "databases": _ON_DATABASES}
DECODED_EXAMPLE: Example = {
    "sequence": "likes", "kind": "instagram", "id_str": "2217813737473025833", "time": "2020-01-09T21:07:01.721Z",
    "time_ms": 1578604021721, "shard": 1001, "counter": 809,
}  # fmt: skip
LINK = {"Link": _header('the next page, as `</sequence?after=photos>; rel="next"`; absent on the last page')}
HEALTH_EXAMPLE: Example = {
    "status": "pass",
    "version": "1.0.0",
    "databases": [
        {"name": "odd:3306", "offset": 1, "status": "up", "since": "2026-01-01T12:00:00Z", "latency_ms": 0.7,
         "last_error": None}
    ],
    "warnings": [],
    "notes": [],
}  # fmt: skip

# --- parameters ----------------------------------------------------------------------------------------------------

SEQUENCE_PARAMETER = {
    "name": "sequence",
    "in": "path",
    "required": True,
    "description": "the sequence's name: a letter, then letters, digits and `_`; at most 64",
    "schema": {"type": "string", "pattern": f"^{NAME_PATTERN}$"},
    "example": "photos",
}

_ID_PARAMETER = {"description": "an id of it, as the server writes it", "schema": {"type": "string"}, "example": "7"}


def _number_parameter(
    name: str, largest: int, description: str, *, required: bool, example: int | None, least: int = 1
) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": f"{description}; a whole number from {least} to {largest}, in digits",
        "schema": {"type": "integer", "minimum": least, "maximum": largest},
        **({} if example is None else {"example": example}),
    }


def _text_parameter(
    name: str, description: str, example: str | None = None, pattern: str | None = None
) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": False,
        "description": description,
        "schema": {"type": "string", **({} if pattern is None else {"pattern": f"^{pattern}$"})},
        **({} if example is None else {"example": example}),
    }


def list_parameters(largest_page: int, search_pattern: str) -> list[dict[str, Any]]:
    """The parameters of GET /sequence."""
    return [
        _number_parameter(
            "limit", largest_page, f"how many at most; {largest_page} by default", required=False, example=10
        ),
        _text_parameter("after", "only names after this one, which need not exist", "albums", NAME_PATTERN),
        _text_parameter("search", "only names that contain this, ignoring case", "photo", search_pattern),
    ]


def decode_parameters() -> list[dict[str, Any]]:
    """The parameters of GET /decode."""
    found: list[dict[str, Any]] = [
        {"name": "kind", "in": "query", "required": True, "description": "the kind of the id",
         "schema": {"type": "string", "enum": list(KINDS)}, "example": DECODED_EXAMPLE["kind"]},
        {"name": "id", "in": "query", "required": True, "description": "the id, as a string",
         "schema": {"type": "string", "minLength": 1}, "example": DECODED_EXAMPLE["id_str"]},
    ]  # fmt: skip
    for name in DECODE_PARAMETERS:
        kinds = [kind for kind in KINDS.values() if name in kind.read_with]
        largest = max(kind.read_with[name].largest for kind in kinds)
        least = min(kind.read_with[name].smallest for kind in kinds)
        of = ", ".join(f"`{kind.name}`" for kind in kinds)
        found.append(_number_parameter(name, largest, f"of {of}", required=False, example=None, least=least))
    return found


def page_parameters(largest_number: int, sorts: list[str]) -> list[dict[str, Any]]:
    """The parameters of the status page."""
    return [
        _text_parameter("search", "only sequences whose names contain this, ignoring case", "photo"),
        _number_parameter(
            "page", largest_number, "the page to show; the last one if there are fewer", required=False, example=1
        ),
        _text_parameter(
            "sort", f"sorts the table: one of {', '.join(sorts)}; empty: as without", sorts[0], f"({'|'.join(sorts)})?"
        ),
        _number_parameter("warned", 1, "1: only sequences with a warning", required=False, example=None),
        _text_parameter("of", "a sequence, for the box that says what an id of it says", "photos"),
        _text_parameter("id", "the id", "7"),
        _text_parameter("kind", "instead of `of`: the kind of an id of elsewhere"),
        *(_text_parameter(name, "of the kind, as in `/decode`") for name in DECODE_PARAMETERS),
    ]


# --- tickets and blocks --------------------------------------------------------------------------------------------

_NO_STORE = {"Cache-Control": _header("`no-store`: a cached ticket would be a duplicate")}
_KEY = "`instagram`, `instagram32`: the id is of the shard `key` modulo the number of shards"
_SHARD = "the same: the id is of this shard; by default of shard 0, and not both"
_DRAWS = (
    "No ticket is ever issued twice; there may be gaps. `HEAD` draws nothing and is answered with 405. Another query "
    "parameter, unless its name begins with `_`, or a body that is neither empty nor `{}` draws nothing and is "
    "answered with 422."
)


def _ticket_operation(method: str, largest: int) -> dict[str, Any]:
    single = {"sequence": "photos", "id": 7, "id_str": "7"}
    several = {"sequence": "photos", "count": 3, "ids": [7, 9, 11], "ids_str": ["7", "9", "11"]}
    uuid = "019a0c4e-7f6b-7c3a-9d52-0f6e1b7a4c88"
    longer = {"sequence": "sessions", "id": uuid, "id_str": uuid}
    return {
        "tags": ["tickets"],
        "summary": "Take a ticket, or several",
        "description": "One ticket, or a list of `count` tickets: increasing, unless the sequence's kind is in no "
        f"order. An id of more than 63 bits is a string. {_DRAWS}",
        "operationId": f"{method}_ticket",
        "parameters": [
            SEQUENCE_PARAMETER,
            _number_parameter("count", largest, "how many; by default a single ticket", required=False, example=3),
            *(
                _number_parameter(name, TICKET_LIMIT, text, required=False, example=None, least=0)
                for name, text in (("key", _KEY), ("shard", _SHARD))
            ),
        ],
        "responses": {
            "200": {
                "description": "The ticket or tickets; as text, one id per line.",
                "headers": _NO_STORE,
                "content": {
                    JSON: {
                        "schema": {"anyOf": [_reference(Ticket), _reference(Tickets)]},
                        "examples": {
                            "one": {"value": single},
                            "several": {"value": several},
                            "one of kind uuid7": {"value": longer},
                        },
                    },
                    "text/plain": {
                        "schema": {"type": "string", "pattern": rf"^(({ID_PATTERN})\n)+$"},
                        "example": "7\n",
                    },
                },
            },
            **_by_text(problems(401, 403, 404, 410, 413, 422, 503)),
        },
    }


def _block_operation(method: str, largest: int) -> dict[str, Any]:
    block = {"sequence": "photos", "first": 7, "first_str": "7", "step": 2, "size": 500}
    return {
        "tags": ["tickets"],
        "summary": "Take a block of tickets",
        "description": "The ids `first + i * step` for i from 0 to `size - 1`, of sequences of kind `ticket` "
        "alone. A block is issued whole or not at all, "
        f"and costs the same whatever its size. {_DRAWS}",
        "operationId": f"{method}_block",
        "parameters": [
            SEQUENCE_PARAMETER,
            _number_parameter("size", largest, "how many tickets", required=True, example=min(500, largest)),
        ],
        "responses": {
            "200": {**answers(Block, "The block.", block), "headers": _NO_STORE},
            **_by_text(problems(401, 403, 404, 409, 410, 413, 422, 503)),
        },
    }


def _by_text(found: dict[int | str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {str(status): answer for status, answer in found.items()}


# --- the document --------------------------------------------------------------------------------------------------

_TAGS = [
    {"name": "tickets", "description": "Drawing tickets."},
    {"name": "sequences", "description": "One per kind of object, each of a kind of its own, and what their ids say."},
    {"name": "operation", "description": "For load balancers, monitoring and people."},
]
_ABOUT = (
    "Unique ids from two or more ticket databases. Every id is given as a number and as a string, for clients that "
    "lose precision above 2^53 (as a string alone above 63 bits); in a request an id may be either. "
    "Errors are `application/problem+json` (RFC 9457), with a `code` for programs."
)


def describe(
    api: FastAPI, *, largest_count: int, largest_block: int, reading_is_free: bool, changes_are_free: bool
) -> dict[str, Any]:
    """The OpenAPI document of the whole server."""
    document = get_openapi(title=api.title, version=api.version, description=_ABOUT, routes=api.routes, tags=_TAGS)
    tickets = {method: _ticket_operation(method, largest_count) for method in ("get", "post")}
    blocks = {method: _block_operation(method, largest_block) for method in ("get", "post")}
    document["paths"] = {
        "/ticket/{sequence}": tickets,
        "/block/{sequence}": blocks,
        **document["paths"],
    }
    answered: list[type[BaseModel]] = [
        Ticket, Tickets, Block, Sequence, Sequences, Bumped, Decoded, Health, ProblemDetails,
    ]  # fmt: skip
    _, schemas = models_json_schema(
        [(model, "serialization") for model in answered], ref_template="#/components/schemas/{model}"
    )
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(schemas["$defs"])
    if not (reading_is_free and changes_are_free):
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            changes = method == "put" or path.endswith("/bump")
            free = path in OPEN_PATHS or (changes_are_free if changes else reading_is_free)
            if not free:
                operation["security"] = [{"bearer": []}]
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "sequence":
                    parameter.update(SEQUENCE_PARAMETER)
                if parameter["name"] == "id" and parameter["in"] == "path":
                    parameter.update(_ID_PARAMETER)
    elsewhere = document["paths"]["/decode"]["get"]["responses"]["200"]["content"][JSON]
    elsewhere["example"] = {**DECODED_EXAMPLE, "sequence": None}  # FastAPI leaves null out
    return document
