"""The OpenAPI document: every route, parameter, answer and error.

FastAPI describes its own routes, with the answers declared here. Tickets and blocks are served ahead of FastAPI, so
their part is written by hand.
"""

from typing import Annotated, Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.json_schema import models_json_schema

from app.common.sequences import NAME_PATTERN, TICKET_LIMIT
from app.http.problems import MEDIA_TYPE
from app.kinds.table import KINDS

OPEN_PATHS = frozenset({"/livez", "/readyz", "/healthz"})
"""Paths that need no token."""

JSON = "application/json"
Example = dict[str, Any]


# --- requests ------------------------------------------------------------------------------------------------------


def _whole_number(value: Any) -> Any:
    """An id may also be sent as a string, by clients that lose precision above 2^53."""
    digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 99
    exact = isinstance(value, float) and value.is_integer() and abs(value) < 2**53  # in JSON 5.0 is a whole number
    return int(value) if digits or exact else value


def _as_number_or_digits(least: int) -> WithJsonSchema:
    digits = {"type": "string", "pattern": "^[1-9][0-9]{0,98}$" if least else "^[0-9]{1,99}$"}
    return WithJsonSchema({"anyOf": [{"type": "integer", "minimum": least}, digits]})


Start = Annotated[int, Field(ge=1), BeforeValidator(_whole_number), _as_number_or_digits(1)]
Epoch = Annotated[int, Field(ge=0), BeforeValidator(_whole_number), _as_number_or_digits(0)]
Above = Annotated[int, Field(ge=0), BeforeValidator(_whole_number), _as_number_or_digits(0)]


class NewSequence(BaseModel):
    """The kind of a new sequence and the kind's parameters; by default plain tickets of 64 bits, starting at 1."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"bits": 64, "start": 1}, {"kind": "instagram", "shards": 2000}]},
    )
    kind: Annotated[str | None, Field(description=f"one of {', '.join(KINDS)}", max_length=32)] = None
    bits: Annotated[Literal[32, 53, 64] | None, Field(description="`ticket`: the width of its ids")] = None
    start: Annotated[Start | None, Field(description="`ticket`: the first one is at least this")] = None
    epoch: Annotated[Epoch | None, Field(description="when the ids' time begins, in milliseconds since 1970")] = None
    shards: Annotated[int | None, Field(description="`instagram`, `instagram32`: how many there are")] = None
    random_bits: Annotated[int | None, Field(description="`simpleflake`: how many of an id's bits are random")] = None

    @property
    def parameters(self) -> dict[str, int]:
        """The parameters that were named, by name."""
        return self.model_dump(exclude={"kind"}, exclude_none=True)


class Bump(BaseModel):
    """How far to advance a sequence."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"above": 1000000}]})
    above: Annotated[Above, Field(description="every later ticket is larger than this")]
    force: Annotated[bool, Field(description="required if this uses up more than 90 % of the sequence")] = False


# --- responses --------------------------------------------------------------------------------------------------

Id = Annotated[int, Field(ge=1, le=TICKET_LIMIT)]
IdText = Annotated[str, Field(pattern="^[1-9][0-9]*$", description="the same as a string")]
Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]


class Ticket(BaseModel):
    """One ticket."""

    sequence: Name
    id: Id
    id_str: IdText


class Tickets(BaseModel):
    """Several tickets, increasing."""

    sequence: Name
    count: Annotated[int, Field(ge=1, le=1000)]
    ids: list[Id]
    ids_str: list[IdText]


class Block(BaseModel):
    """A block: the ids `first + i * step` for i from 0 to `size - 1`."""

    sequence: Name
    first: Id
    first_str: IdText
    step: Annotated[int, Field(ge=1)]
    size: Annotated[int, Field(ge=1)]


class SequenceOnDatabase(BaseModel):
    """The position of a sequence on one ticket database."""

    name: Annotated[str, Field(description="the database's host:port")]
    offset: Annotated[int, Field(ge=1)]
    status: Literal["up", "down", "quarantined"]
    last: Annotated[int | None, Field(description="the last ticket known to be drawn")]
    last_str: str | None
    headroom: Annotated[int | None, Field(description="how many tickets are left")]
    headroom_str: str | None


class Sequence(BaseModel):
    """A sequence."""

    sequence: Name
    bits: Literal[32, 64]
    ceiling: Annotated[int, Field(description="no ticket is larger")]
    ceiling_str: str
    exhausted: bool
    databases: list[SequenceOnDatabase]


class Sequences(BaseModel):
    """Sequences, sorted by name: all of them, or one page."""

    sequences: list[Sequence]
    next: Annotated[Name | None, Field(description="the value of `after` for the next page; null on the last page")]
    total: Annotated[int, Field(ge=0, description="how many there are on all pages")]


class Bumped(BaseModel):
    """A sequence that has been advanced."""

    sequence: Name
    above: int
    above_str: str
    databases: list[SequenceOnDatabase]


class TicketDatabaseHealth(BaseModel):
    """One ticket database."""

    name: Annotated[str, Field(description="host:port")]
    offset: Annotated[int, Field(ge=1)]
    status: Literal["up", "down", "quarantined"]
    since: Annotated[str, Field(description="when this status began")]
    latency_ms: float | None
    last_error: Annotated[str | None, Field(description="the last error; it stays when the database comes back")]


class Warned(BaseModel):
    """Something that requires an operator's attention."""

    sequence: str | None
    database: str | None
    reason: str


class Health(BaseModel):
    """The server's health."""

    status: Literal["pass", "warn", "fail"]
    version: str
    databases: list[TicketDatabaseHealth]
    warnings: list[Warned]


class ProblemDetails(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str


# --- responses by status ---------------------------------------------------------------------------------------------

_PROBLEMS = {
    401: ("Unauthorized", "The token is missing or unknown.", "a bearer token is required: Authorization: …"),
    403: ("Forbidden", "The token does not permit this.",
          "this token may draw tickets, but not make or bump a sequence"),
    404: ("Not Found", "There is no such sequence.", "there is no sequence photo; PUT /sequence/photo makes it"),
    409: ("Conflict", "It conflicts with the sequence's present state.", "the sequence photos exists with 64 bits"),
    410: ("Gone", "The sequence is exhausted on every ticket database.", "photos is exhausted: every id has been used"),
    413: ("Content Too Large", "The body is too large.", "the body is larger than 65536 bytes"),
    422: ("Unprocessable Content", "The request is malformed; the detail says what is required.",
          "a sequence's name is 1 to 64 letters, digits and underscores, a letter first"),
    503: ("Service Unavailable", "It cannot be done now; try again later.",
          "no ticket database can draw for photos now"),
}  # fmt: skip


def _example(value: Example) -> dict[str, Any]:
    return {"example": value}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of a route, by status."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        title, description, detail = _PROBLEMS[status]
        example = {"type": "about:blank", "title": title, "status": status, "detail": detail}
        found[status] = {
            "description": description,
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
    "sequence": "photos", "bits": 64, "ceiling": TICKET_LIMIT, "ceiling_str": str(TICKET_LIMIT), "exhausted": False,
    "databases": _ON_DATABASES,
}  # fmt: skip
BUMPED_EXAMPLE: Example = {"sequence": "photos", "above": 5, "above_str": "5", "databases": _ON_DATABASES}
LINK = {"Link": _header('the next page, as `</sequence?after=photos>; rel="next"`; absent on the last page')}
HEALTH_EXAMPLE: Example = {
    "status": "pass",
    "version": "1.0.0",
    "databases": [
        {"name": "odd:3306", "offset": 1, "status": "up", "since": "2026-01-01T12:00:00Z", "latency_ms": 0.7,
         "last_error": None}
    ],
    "warnings": [],
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


def _number_parameter(name: str, largest: int, description: str, *, required: bool, example: int) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": f"{description}; a whole number from 1 to {largest}, in digits",
        "schema": {"type": "integer", "minimum": 1, "maximum": largest},
        "example": example,
    }


def _text_parameter(name: str, description: str, example: str, pattern: str | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": False,
        "description": description,
        "schema": {"type": "string", **({} if pattern is None else {"pattern": f"^{pattern}$"})},
        "example": example,
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


def page_parameters(largest_number: int) -> list[dict[str, Any]]:
    """The parameters of the status page."""
    return [
        _text_parameter("search", "only sequences whose names contain this, ignoring case", "photo"),
        _number_parameter(
            "page", largest_number, "the page to show; the last one if there are fewer", required=False, example=1
        ),
    ]


# --- tickets and blocks --------------------------------------------------------------------------------------------

_NO_STORE = {"Cache-Control": _header("`no-store`: a cached ticket would be a duplicate")}
_DRAWS = "No ticket is ever issued twice; there may be gaps. `HEAD` draws nothing and is answered with 405."


def _ticket_operation(method: str, largest: int) -> dict[str, Any]:
    single = {"sequence": "photos", "id": 7, "id_str": "7"}
    several = {"sequence": "photos", "count": 3, "ids": [7, 9, 11], "ids_str": ["7", "9", "11"]}
    return {
        "tags": ["tickets"],
        "summary": "Take a ticket, or several",
        "description": f"One ticket, or an increasing list of `count` tickets. {_DRAWS}",
        "operationId": f"{method}_ticket",
        "parameters": [
            SEQUENCE_PARAMETER,
            _number_parameter("count", largest, "how many; by default a single ticket", required=False, example=3),
        ],
        "responses": {
            "200": {
                "description": "The ticket or tickets; as text, one id per line.",
                "headers": _NO_STORE,
                "content": {
                    JSON: {
                        "schema": {"anyOf": [_reference(Ticket), _reference(Tickets)]},
                        "examples": {"one": {"value": single}, "several": {"value": several}},
                    },
                    "text/plain": {"schema": {"type": "string", "pattern": r"^([1-9][0-9]*\n)+$"}, "example": "7\n"},
                },
            },
            **_by_text(problems(401, 404, 410, 422, 503)),
        },
    }


def _block_operation(method: str, largest: int) -> dict[str, Any]:
    block = {"sequence": "photos", "first": 7, "first_str": "7", "step": 2, "size": 500}
    return {
        "tags": ["tickets"],
        "summary": "Take a block of tickets",
        "description": "The ids `first + i * step` for i from 0 to `size - 1`. A block is issued whole or not at all, "
        f"and costs the same whatever its size. {_DRAWS}",
        "operationId": f"{method}_block",
        "parameters": [
            SEQUENCE_PARAMETER,
            _number_parameter("size", largest, "how many tickets", required=True, example=min(500, largest)),
        ],
        "responses": {
            "200": {**answers(Block, "The block.", block), "headers": _NO_STORE},
            **_by_text(problems(401, 404, 410, 422, 503)),
        },
    }


def _by_text(found: dict[int | str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {str(status): answer for status, answer in found.items()}


# --- the document --------------------------------------------------------------------------------------------------

_TAGS = [
    {"name": "tickets", "description": "Drawing tickets."},
    {"name": "sequences", "description": "One per kind of object; each is a table in the ticket databases."},
    {"name": "operation", "description": "For load balancers, monitoring and people."},
]
_ABOUT = (
    "Unique ids from two or more ticket databases. Every id is given as a number and as a string, for clients that "
    "lose precision above 2^53; in a request an id may be either. Errors are `application/problem+json` (RFC 9457)."
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
    answered: list[type[BaseModel]] = [Ticket, Tickets, Block, Sequence, Sequences, Bumped, Health, ProblemDetails]
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
    return document
