"""All kinds there are, and what HTTP and the command line share of reading ids."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from app.common.errors import InvalidRequest
from app.kinds.flake import Flake
from app.kinds.instagram import Instagram, Instagram32
from app.kinds.kind import Kind
from app.kinds.objectid import ObjectId
from app.kinds.simpleflake import Simpleflake
from app.kinds.snowflake import Snowflake
from app.kinds.ticket import Ticket
from app.kinds.ulid import Ulid
from app.kinds.uuid4 import Uuid4
from app.kinds.uuid7 import Uuid7

_ALL: tuple[Kind, ...] = (
    Ticket(),
    Instagram(),
    Instagram32(),
    Snowflake(),
    Flake(),
    ObjectId(),
    Uuid7(),
    Ulid(),
    Simpleflake(),
    Uuid4(),
)

KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _ALL})
"""By name, in the order in which they are shown."""

DECODE_PARAMETERS: tuple[str, ...] = tuple(dict.fromkeys(name for kind in _ALL for name in kind.read_with))
"""Every parameter that reading an id of some kind takes."""


def kind_named(name: str) -> Kind:
    """The kind of that name; InvalidRequest with all names where there is none."""
    kind = KINDS.get(name)
    if kind is None:
        raise InvalidRequest(f"there is no such kind of sequence; there are {', '.join(KINDS)}")
    return kind


def decoded(sequence: str | None, kind: Kind, parameters: Mapping[str, int], id_text: str) -> dict[str, Any]:
    """What is answered to whoever asks what an id says; `sequence` is None for an id of elsewhere.

    InvalidRequest: no id of this kind and these (complete) parameters reads so.
    """
    return {"sequence": sequence} | kind.decode(parameters, id_text)
