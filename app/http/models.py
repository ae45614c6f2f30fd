"""The models of HTTP bodies: requests are read with them, and the OpenAPI document describes answers with them."""

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.config import JsonDict
from pydantic.json_schema import SkipJsonSchema

from app.errors import InvalidRequest
from app.http.problems import BAD_REQUEST, METHOD_NOT_ALLOWED, NOT_FOUND, TABLE
from app.kinds.kind import TICKET_LIMIT
from app.kinds.table import KINDS

NAME_PATTERN = "^[A-Za-z][A-Za-z0-9_]{0,63}$"
CODES = list(dict.fromkeys([BAD_REQUEST, NOT_FOUND, METHOD_NOT_ALLOWED, *(code for _, code in TABLE.values())]))
"""Every word that `code` can be."""
Missing = SkipJsonSchema[None]
"""A field that is left out has no value here, and the document does not offer `null` for it."""
_DIGITS = re.compile("0|[1-9][0-9]{0,98}")


def optional(description: str, example: object = None) -> Any:
    """Return the field of something that may be left out."""

    def shown(schema: JsonDict) -> None:
        schema.pop("default", None)

    examples = None if example is None else [example]
    return Field(default=None, description=description, examples=examples, json_schema_extra=shown)


def _whole_number(value: Any) -> Any:
    """An id may also be a string of digits. In JSON, 5.0 is a whole number too."""
    is_exact = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    is_text = isinstance(value, str) and _DIGITS.fullmatch(value) is not None
    return int(value) if is_exact or is_text else value


WHOLE = BeforeValidator(_whole_number)
"""Lets a strict model take a whole number as a string of digits, without a sign and leading zeros."""
SequenceName = Annotated[str, Field(pattern=NAME_PATTERN, examples=["photos"])]
KindName = Annotated[str, Field(json_schema_extra={"enum": list(KINDS)})]

# --- requests --------------------------------------------------------------------------------------------------------


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


_GIVEN_DIGITS = {"type": "string", "pattern": "^(0|[1-9][0-9]{0,98})$"}
_Natural = Annotated[
    int, Field(ge=0), WHOLE, WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, _GIVEN_DIGITS]})
]


class OfAKind(Strict):
    """A kind, and parameters of that kind."""

    kind: KindName | Missing = optional("`ticket` by default")
    epoch: _Natural | Missing = optional("when the ids' time begins, in milliseconds since 1970")
    shards: _Natural | Missing = optional("`instagram`, `instagram32`: how many shards there are")
    random_bits: _Natural | Missing = optional("`simpleflake`: how many bits of an id are random")

    @property
    def parameters(self) -> dict[str, int]:
        """The parameters that were given, by name."""
        return self.model_dump(exclude={"kind", "id"}, exclude_none=True)


class NewSequence(OfAKind):
    """The kind of a new sequence and the parameters of that kind. Without any: plain tickets of 64 bits, from 1 on."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"kind": "instagram", "shards": 2000}]})
    bits: Literal[32, 53, 64] | Missing = optional("`ticket`: the width of its ids")
    start: Annotated[_Natural, Field(ge=1)] | Missing = optional("`ticket`: no id is smaller")


class Bump(Strict):
    """How far a sequence is advanced."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"above": 1000000}]})
    above: Annotated[_Natural, Field(description="every later ticket is larger")]
    force: Annotated[bool, Field(description="has to be true if that uses up more than 90 % of the sequence")] = False


# --- answers ---------------------------------------------------------------------------------------------------------

_LONG_ID = "[0-9A-Za-z-]{24,36}"
_Id = Annotated[int, Field(ge=1, le=TICKET_LIMIT)]
_AnyId = _Id | Annotated[str, Field(pattern=f"^{_LONG_ID}$", description="of kinds longer than 63 bits")]
_IdText = Annotated[str, Field(pattern=f"^([1-9][0-9]*|{_LONG_ID})$", description="the same as a string")]
_NumberText = Annotated[str, Field(pattern="^[0-9]+$", description="the same as a string")]


class Ticket(BaseModel):
    """One ticket."""

    sequence: SequenceName
    id: _AnyId
    id_str: _IdText


class Tickets(BaseModel):
    """Several tickets. They rise, unless the kind of the sequence has no order."""

    sequence: SequenceName
    count: Annotated[int, Field(ge=1, le=1000)]
    ids: list[_AnyId]
    ids_str: list[_IdText]


class Block(BaseModel):
    """The ids `first + i * step` for i from 0 to `size - 1`."""

    sequence: SequenceName
    first: Annotated[_Id, Field(examples=[7])]
    first_str: _NumberText
    step: Annotated[int, Field(ge=1, examples=[2])]
    size: Annotated[int, Field(ge=1, examples=[500])]


class Database(BaseModel):
    """A ticket database."""

    name: Annotated[str, Field(description="host:port", examples=["odd:3306"])]
    offset: Annotated[int, Field(ge=1)]
    status: Literal["up", "down", "quarantined"]


class OnDatabase(Database):
    """The position of a sequence on one ticket database."""

    last: Annotated[int | None, Field(description="the last ticket known to be drawn")]
    last_str: str | None
    headroom: Annotated[int | None, Field(description="how many tickets are left")]
    headroom_str: str | None


class Sequence(BaseModel):
    """A sequence, with the parameters of its kind."""

    sequence: SequenceName
    kind: KindName
    unique: Annotated[Literal["certainly", "probably"], Field(description="whether no id ever comes twice")]
    odds: str | Missing = optional("where `unique` is `probably`: how probable equal ids are")
    epoch: int | Missing = optional("when the ids' time begins, in milliseconds since 1970")
    shards: int | Missing = optional("`instagram`, `instagram32`: how many shards there are")
    random_bits: int | Missing = optional("`simpleflake`: how many bits of an id are random")
    bits: Annotated[int, Field(ge=32, le=128, description="the length of an id")]
    ceiling: Annotated[int | None, Field(description="no id is larger; null above 63 bits")]
    ceiling_str: str | None
    exhausted: bool
    databases: Annotated[list[OnDatabase], Field(description="empty for kinds from memory")]


class Sequences(BaseModel):
    """A page of the sequences, sorted by name."""

    sequences: list[Sequence]
    next: Annotated[SequenceName | None, Field(description="the value of `after` for the next page; null at the end")]
    total: Annotated[int, Field(ge=0, description="how many there are on all pages")]


class Bumped(BaseModel):
    """A sequence that has been advanced."""

    sequence: SequenceName
    above: Annotated[int, Field(examples=[1000000])]
    above_str: _NumberText
    databases: list[OnDatabase]


class Decoded(BaseModel):
    """What an id says. The fields depend on its kind."""

    sequence: Annotated[SequenceName | None, Field(description="null for an id of elsewhere")]
    kind: KindName
    id_str: _IdText
    time: str | Missing = optional("RFC 3339, in UTC", "2020-01-09T21:07:01.721Z")
    time_ms: int | Missing = optional("the same, in milliseconds since 1970", 1578604021721)
    shard: int | Missing = optional("`instagram`, `instagram32`", 1001)
    datacenter: int | Missing = optional("`snowflake`")
    worker: int | str | Missing = optional("`snowflake`; `flake`: 12 hexadecimal digits")
    random: int | str | Missing = optional("`simpleflake`; `objectid`, `uuid7`, `ulid`: hexadecimal digits")
    counter: int | Missing = optional("`instagram`, `instagram32`, `snowflake`, `flake`, `objectid`", 809)
    offset: int | Missing = optional("`ticket`: of the ticket database that drew it")


class DatabaseHealth(Database):
    """How one ticket database is."""

    node: str | None = optional("the node in use, of a database that has several; null without any")
    since: Annotated[str | None, Field(description="when this status began")]
    latency_ms: float | None
    last_error: str | None


class Noted(BaseModel):
    """Something that an operator should know, and that endangers no ticket."""

    database: str | None
    reason: str


class Warned(Noted):
    """Something that an operator has to put right."""

    sequence: str | None


class Health(BaseModel):
    """The server's health."""

    status: Literal["pass", "warn", "fail"]
    version: str
    databases: list[DatabaseHealth]
    warnings: list[Warned]
    notes: list[Noted]
    embedded: Literal[True] | Missing = optional("the ticket databases are the embedded pair")


class ProblemDetails(BaseModel):
    """An error (RFC 9457)."""

    type: Annotated[str, Field(examples=["about:blank"])]
    title: Annotated[str, Field(examples=["Not Found"])]
    status: Annotated[int, Field(ge=400, le=599, examples=[404])]
    detail: Annotated[str, Field(examples=["there is no sequence photo; PUT /sequence/photo makes it"])]
    code: Annotated[
        str,
        Field(description="the cause as a word for programs; take an unknown word by its status", examples=CODES),
    ]
