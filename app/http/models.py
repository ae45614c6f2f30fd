"""What HTTP requests and answers hold: models that read requests, and what the OpenAPI document says of answers."""

import re
from operator import methodcaller
from typing import Annotated, Any, ClassVar, Literal

from fastapi import FastAPI
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema

from app.access import Access
from app.errors import InvalidRequest
from app.http.access import right_of
from app.http.problems import BAD_REQUEST, MEDIA_TYPE, METHOD_NOT_ALLOWED, NOT_FOUND, TABLE
from app.kinds.kind import TICKET_LIMIT
from app.kinds.table import KINDS
from app.tickets.request import LARGEST_BLOCK, MOST_TICKETS

STATUSES = [*sorted(set(TABLE.values())), (400, BAD_REQUEST), (404, NOT_FOUND), (405, METHOD_NOT_ALLOWED)]
CODES = list(dict.fromkeys(code for _, code in STATUSES))  # every word that `code` can be
Missing = SkipJsonSchema[None]
"""A field that is left out has no value here, and the document does not offer `null` for it."""
_DIGITS = "0|[1-9][0-9]{0,98}"


def optional(description: str, *examples: object) -> Any:
    """Return the field of something that may be left out."""
    without_default: Any = methodcaller("pop", "default", None)
    return Field(None, description=description, examples=list(examples) or None, json_schema_extra=without_default)


def _whole_number(value: Any) -> Any:
    """An id may also be a string of digits. In JSON, 5.0 is a whole number too."""
    is_exact = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    is_text = isinstance(value, str) and re.fullmatch(_DIGITS, value) is not None
    return int(value) if is_exact or is_text else value


WHOLE = BeforeValidator(_whole_number)
"""Lets a strict model take a whole number as a string of digits, without a sign and leading zeros."""
NAME_PATTERN = "^[A-Za-z][A-Za-z0-9_]{0,63}$"
SequenceName = Annotated[str, Field(pattern=NAME_PATTERN, examples=["photos"])]
KindName = Annotated[str, Field(json_schema_extra={"enum": list(KINDS)}, examples=["instagram"])]
EPOCH = "when the ids' time begins, in milliseconds since 1970"
SHARDS = "`instagram`, `instagram32`: how many shards there are"
RANDOM_BITS = "`simpleflake`: how many bits of an id are random"


class Strict(BaseModel):
    """What a client sends: nothing is converted, and a name that is not known is refused with those that are.

    passes_over: names that begin so are no mistake.
    """

    model_config = ConfigDict(strict=True)
    passes_over: ClassVar[str | None] = None

    @model_validator(mode="before")
    @classmethod
    def _known_only(cls, given: Any) -> Any:
        """Raise InvalidRequest for a name that is not known."""
        for name in given if isinstance(given, dict) else ():
            if name not in cls.model_fields and not (cls.passes_over and name.startswith(cls.passes_over)):
                raise InvalidRequest(f"there is no parameter {name[:64]}; {cls.listed()}")
        return given

    @classmethod
    def listed(cls) -> str:
        """Return which parameters there are, as a part of a sentence."""
        return f"there {'is' if len(cls.model_fields) == 1 else 'are'} {', '.join(cls.model_fields) or 'none'}"


_AS_GIVEN = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^({_DIGITS})$"}]}
_Natural = Annotated[int, Field(ge=0), WHOLE, WithJsonSchema(_AS_GIVEN)]


class OfAKind(Strict):
    """A kind, and parameters of that kind."""

    kind: KindName | Missing = optional("`ticket` by default")
    epoch: _Natural | Missing = optional(EPOCH)
    shards: _Natural | Missing = optional(SHARDS)
    random_bits: _Natural | Missing = optional(RANDOM_BITS)

    @property
    def parameters(self) -> dict[str, int]:
        """The parameters that were given, by name."""
        return self.model_dump(exclude={"kind", "id"}, exclude_none=True)


class NewSequence(OfAKind, extra="forbid"):
    """The kind of a new sequence and the parameters of that kind. Without any: plain tickets of 64 bits, from 1 on."""

    bits: Literal[32, 53, 64] | Missing = optional("`ticket`: the width of its ids")
    start: Annotated[_Natural, Field(ge=1)] | Missing = optional("`ticket`: no id is smaller")


class Bump(Strict, extra="forbid"):
    """How far a sequence is advanced."""

    above: Annotated[_Natural, Field(description="every later ticket is larger", examples=[1000000])]
    force: Annotated[bool, Field(description="has to be true if that uses up more than 90 % of the sequence")] = False


_Number = Annotated[int, Field(ge=0, le=TICKET_LIMIT), WHOLE]


class NoQuery(Strict):
    """The query of a path without parameters, and what every other query derives from.

    Names that begin with `_` are passed over, because browser libraries and proxies add some so that no answer is
    cached. Any other name is refused, so that a misspelt `?cuont=3` draws nothing.
    """

    passes_over: ClassVar = "_"


class TicketQuery(NoQuery):
    """How many tickets, and of which shard."""

    count: Annotated[int, Field(ge=1, le=MOST_TICKETS), WHOLE] | Missing = optional("without it a single ticket", 3)
    key: _Number | Missing = optional("`instagram`, `instagram32`: a number; its remainder is the shard")
    shard: _Number | Missing = optional("in place of `key`: the shard itself, 0 by default")


class BlockQuery(NoQuery):
    """How large a block."""

    size: Annotated[int, Field(ge=1, le=LARGEST_BLOCK), WHOLE] = Field(
        description="how many tickets; at most 65,535 divided by the ring's increment", examples=[500]
    )


class ListQuery(NoQuery):
    """Which sequences, and how many of them."""

    search: Annotated[str, Field(pattern="^[A-Za-z0-9_]{0,64}$", description="part of the name, in any case")] = ""
    after: SequenceName | Missing = optional("only names behind this one, which need not exist", "albums")
    limit: Annotated[int, Field(ge=1, le=1_000, description="how many at most"), WHOLE] = 1_000


class DecodeQuery(OfAKind, NoQuery):
    """An id of elsewhere, its kind, and the parameters of that kind."""

    kind: KindName
    id: Annotated[str, Field(min_length=1, examples=["2217813737473025833"])]
    bits: _Number | Missing = optional("`ticket`: the width of the sequence, 64 by default")
    increment: _Number | Missing = optional("`ticket`: the increment of the databases")


# --- answers, as JSON schemas ----------------------------------------------------------------------------------------

Schema = dict[str, Any]
Responses = dict[int | str, dict[str, Any]]  # what answers a path has, by their status
_TEXT, _WHOLE, _POSITIVE = {"type": "string"}, {"type": "integer"}, {"type": "integer", "minimum": 1}
_ID: Schema = {**_POSITIVE, "maximum": TICKET_LIMIT, "examples": [7]}
_LONG_ID = "[0-9A-Za-z-]{24,36}"
_ANY_ID: Schema = {"anyOf": [_ID, {**_TEXT, "pattern": f"^{_LONG_ID}$", "description": "of kinds longer than 63 bits"}]}
_ID_TEXT: Schema = {**_TEXT, "pattern": f"^([1-9][0-9]*|{_LONG_ID})$", "description": "the same as a string"}
_DIGITS_TEXT: Schema = {**_TEXT, "pattern": "^[0-9]+$", "description": "the same as a string"}
_EITHER: Schema = {"type": ["integer", "string"]}


def _list_of(name: str) -> Schema:
    return {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}}


_FIELDS: dict[str, Schema] = {
    "sequence": {**_TEXT, "pattern": NAME_PATTERN, "examples": ["photos"]},
    "kind": {"enum": list(KINDS)},
    "id": _ANY_ID,
    "id_str": _ID_TEXT,
    "count": {**_POSITIVE, "maximum": MOST_TICKETS},
    "ids": {"type": "array", "items": _ANY_ID},
    "ids_str": {"type": "array", "items": _ID_TEXT},
    "first": _ID,
    **dict.fromkeys(("first_str", "above_str", "ceiling_str", "last_str", "headroom_str"), _DIGITS_TEXT),
    "step": {**_POSITIVE, "examples": [2]},
    "size": {**_POSITIVE, "examples": [500]},
    "name": {**_TEXT, "description": "host:port", "examples": ["odd:3306"]},
    "offset": {**_POSITIVE, "description": "of a ticket database"},
    "status": {"enum": ["up", "down", "quarantined"]},
    "last": {**_WHOLE, "description": "the last ticket known to be drawn"},
    "headroom": {**_WHOLE, "description": "how many tickets are left"},
    "unique": {"enum": ["certainly", "probably"], "description": "whether no id ever comes twice"},
    "odds": {**_TEXT, "description": "where `unique` is `probably`: how probable equal ids are"},
    "epoch": {**_WHOLE, "description": EPOCH},
    "shards": {**_WHOLE, "description": SHARDS},
    "random_bits": {**_WHOLE, "description": RANDOM_BITS},
    "bits": {**_WHOLE, "minimum": 32, "maximum": 128, "description": "the length of an id"},
    "ceiling": {**_WHOLE, "description": "no id is larger; null above 63 bits"},
    "exhausted": {"type": "boolean"},
    "databases": {**_list_of("OnDatabase"), "description": "empty for kinds from memory"},
    "sequences": _list_of("Sequence"),
    "next": {**_TEXT, "description": "the value of `after` for the next page; null at the end"},
    "total": {**_WHOLE, "description": "how many there are on all pages"},
    "above": _WHOLE,
    "time": {**_TEXT, "description": "RFC 3339, in UTC", "examples": ["2020-01-09T21:07:01.721Z"]},
    "time_ms": {**_WHOLE, "description": "the same, in milliseconds since 1970", "examples": [1578604021721]},
    **dict.fromkeys(("shard", "datacenter", "counter"), _WHOLE),
    "worker": {**_EITHER, "description": "`snowflake`; `flake`: 12 hexadecimal digits"},
    "random": {**_EITHER, "description": "`simpleflake`; `objectid`, `uuid7`, `ulid`: hexadecimal digits"},
    "node": {**_TEXT, "description": "the node in use, of a database that has several; null without any"},
    "since": {**_TEXT, "description": "when this status began"},
    "latency_ms": {"type": "number"},
    **dict.fromkeys(("last_error", "database", "reason", "version", "title", "detail"), _TEXT),
    "warnings": {**_list_of("Warned"), "description": "what an operator has to put right"},
    "notes": {**_list_of("Noted"), "description": "what an operator should know, and what endangers no ticket"},
    "embedded": {"const": True, "description": "the ticket databases are the embedded pair"},
    "type": {"const": "about:blank"},
    "code": {**_TEXT, "description": "a word for programs; take an unknown one by its status", "examples": CODES},
    "Health.status": {"enum": ["pass", "warn", "fail"]},
    "Health.databases": _list_of("DatabaseHealth"),
    "ProblemDetails.status": {**_WHOLE, "minimum": 400, "maximum": 599, "examples": [404]},
}
"""What stands in a field of this name, in every answer or in one."""
_DATABASE = "name offset status"
_ANSWERS = {
    "Ticket": "sequence id id_str",
    "Tickets": "sequence count ids ids_str",
    "Block": "sequence first first_str step size",
    "OnDatabase": f"{_DATABASE} last|null last_str|null headroom|null headroom_str|null",
    "Sequence": "sequence kind unique odds? epoch? shards? random_bits? bits ceiling|null ceiling_str|null exhausted "
    "databases",
    "Sequences": "sequences next|null total",
    "Bumped": "sequence above above_str databases",
    "Decoded": "sequence|null kind id_str time? time_ms? shard? datacenter? worker? random? counter? offset?",
    "DatabaseHealth": f"{_DATABASE} node|null? since|null latency_ms|null last_error|null",
    "Noted": "database|null reason",
    "Warned": "sequence|null database|null reason",
    "Health": "status version databases warnings notes embedded?",
    "ProblemDetails": "type title status detail code",
}
"""The fields of each answer. `|null`: may be null. `?`: may be missing."""


def _answer(name: str, fields: list[str]) -> Schema:
    properties = {}
    for field in fields:
        key, _, null = field.removesuffix("?").partition("|")
        schema = _FIELDS.get(f"{name}.{key}") or _FIELDS[key]
        properties[key] = {"anyOf": [schema, {"type": "null"}]} if null else schema
    needed = [field.partition("|")[0] for field in fields if not field.endswith("?")]
    return {"type": "object", "properties": properties, "required": needed}


ANSWERS = {name: _answer(name, fields.split()) for name, fields in _ANSWERS.items()}
"""The schemas of all answers, by name."""


def answered(*names: str, status: int | str = 200, about: str = "As asked for.") -> Responses:
    """Return what `responses` of a path says: which of ANSWERS it gives with this status."""
    schemas = [{"$ref": f"#/components/schemas/{name}"} for name in names]
    media = MEDIA_TYPE if names == ("ProblemDetails",) else "application/json"
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {status: {"description": about, "content": {media: {"schema": schema}}}}


PROBLEM = answered(
    "ProblemDetails",
    status="default",
    about=f"An error. Status and `code`: {', '.join(f'{status} {code}' for status, code in STATUSES)}. "
    "A 401 has WWW-Authenticate, a 405 has Allow, a 503 has Retry-After.",
)
"""The errors of every path, for `responses` of the application."""


def complete_document(api: FastAPI, access: Access) -> None:
    """Let the OpenAPI document have what FastAPI does not put there: the answers, and which requests need a token."""
    plain = api.openapi

    def openapi() -> dict[str, Any]:
        document = plain()
        document["components"]["schemas"] |= ANSWERS
        document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                right = right_of(method.upper(), path)
                if right is not None and access.needs_token(right):
                    operation["security"] = [{"bearer": []}]
        return document

    api.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way
