"""The models of HTTP bodies. The server reads requests with them; the OpenAPI document describes answers with them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.config import JsonDict
from pydantic.json_schema import SkipJsonSchema

from app.common.sequences import NAME_PATTERN, TICKET_LIMIT
from app.http.problems import Code
from app.kinds.table import KINDS

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
        json_schema_extra={
            "examples": [
                {"bits": 64, "start": 1},
                {"kind": "instagram", "epoch": 1314220021721, "shards": 2000},
                {"kind": "simpleflake", "random_bits": 23},
                *[JsonDict(kind=name) for name in KINDS if name not in ("ticket", "instagram", "simpleflake")],
            ]
        },
    )
    kind: Annotated[
        str | None,
        Field(description=f"one of {', '.join(KINDS)}; `ticket` by default"),
        WithJsonSchema({"anyOf": [{"type": "string", "enum": list(KINDS)}, {"type": "null"}]}),
    ] = None
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

ID_PATTERN = "[1-9][0-9]*|[0-9A-Za-z-]{24,36}"
"""An id as a string. Those of more than 63 bits have no other form."""
Id = Annotated[int, Field(ge=1, le=TICKET_LIMIT)]
AnyId = Id | Annotated[str, Field(pattern="^[0-9A-Za-z-]{24,36}$", description="of kinds longer than 63 bits")]
IdText = Annotated[str, Field(pattern=f"^({ID_PATTERN})$", description="the same as a string")]
NumberText = Annotated[str, Field(pattern="^[1-9][0-9]*$", description="the same as a string")]
Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
KindName = Annotated[str, Field(json_schema_extra={"enum": list(KINDS)})]


def _without_default(schema: JsonDict) -> None:
    del schema["default"]


def _optional(description: str) -> Any:
    """A field that is left out of an answer where it has no value."""
    return Field(default=None, description=description, json_schema_extra=_without_default)


def _with_parameters(schema: dict[str, Any]) -> None:
    """The kinds' parameters are fields of a sequence, too."""
    parameters: dict[str, Any] = {}
    for kind in KINDS.values():
        for name in kind.parameters:
            if name not in schema["properties"] and name != "start":
                parameters.setdefault(name, []).append(kind.name)
    for name, kinds in parameters.items():
        described = ", ".join(f"`{kind}`" for kind in kinds)
        schema["properties"][name] = {"type": "integer", "title": name, "description": f"of {described}"}


class Ticket(BaseModel):
    """One ticket."""

    sequence: Name
    id: AnyId
    id_str: IdText


class Tickets(BaseModel):
    """Several tickets; increasing, unless the sequence's kind is in no order."""

    sequence: Name
    count: Annotated[int, Field(ge=1, le=1000)]
    ids: list[AnyId]
    ids_str: list[IdText]


class Block(BaseModel):
    """A block: the ids `first + i * step` for i from 0 to `size - 1`."""

    sequence: Name
    first: Id
    first_str: NumberText
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
    """A sequence, and the parameters of its kind."""

    model_config = ConfigDict(json_schema_extra=_with_parameters)
    sequence: Name
    kind: KindName
    unique: Annotated[Literal["certainly", "probably"], Field(description="whether no id ever comes twice")]
    odds: str | SkipJsonSchema[None] = _optional("where `unique` is `probably`: how probable equal ids are")
    bits: Annotated[int, Field(ge=32, le=128, description="the length of an id")]
    ceiling: Annotated[int | None, Field(description="no id is larger; null above 63 bits")]
    ceiling_str: str | None
    ends: str | SkipJsonSchema[None] = _optional("when the time in its ids ends, if it ever does")
    exhausted: bool
    databases: Annotated[list[SequenceOnDatabase], Field(description="empty for kinds from memory")]
    reserve: int | SkipJsonSchema[None] = _optional("tickets drawn ahead, with TICKETS_RESERVE_SECONDS")
    reserve_seconds: float | None = _optional("how long they last at the present rate; null where there is none")


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


class Decoded(BaseModel):
    """The parts of an id. The fields depend on its kind."""

    sequence: Annotated[Name | None, Field(description="null for an id of elsewhere")]
    kind: KindName
    id_str: IdText
    time: str | SkipJsonSchema[None] = _optional("RFC 3339, in UTC; `ticket` and `uuid4` have none")
    time_ms: int | SkipJsonSchema[None] = _optional("the same, in milliseconds since 1970")
    shard: int | SkipJsonSchema[None] = _optional("`instagram`, `instagram32`")
    datacenter: int | SkipJsonSchema[None] = _optional("`snowflake`")
    worker: int | str | SkipJsonSchema[None] = _optional("`snowflake`; `flake`: 12 hexadecimal digits")
    random: int | str | SkipJsonSchema[None] = _optional(
        "`simpleflake`; `objectid`, `uuid7`, `ulid`: in hexadecimal digits"
    )
    counter: int | SkipJsonSchema[None] = _optional("`instagram`, `instagram32`, `snowflake`, `flake`, `objectid`")
    offset: int | SkipJsonSchema[None] = _optional("`ticket`: of the database that drew it")


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


class Noted(BaseModel):
    """Something that an operator should know, and that requires nothing."""

    database: str | None
    reason: str


class Health(BaseModel):
    """The server's health."""

    status: Literal["pass", "warn", "fail"]
    version: str
    databases: list[TicketDatabaseHealth]
    warnings: list[Warned]
    notes: list[Noted]
    embedded: Literal[True] | SkipJsonSchema[None] = _optional("whether these are the two embedded ticket databases")


class ProblemDetails(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str
    code: Annotated[
        str,
        Field(
            pattern="^[a-z]+(-[a-z]+)*$",
            description=f"what went wrong, in a word for programs: {', '.join(Code)}; take a word that "
            "you do not know by the status",
        ),
    ]
