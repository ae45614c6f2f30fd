"""`ticket`, and all kinds of sequence by their names."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from app.errors import InvalidRequest
from app.kinds.chance import Simpleflake, Ulid, Uuid4, Uuid7
from app.kinds.kind import TICKET_LIMIT, Kind, Parameter, Parameters
from app.kinds.notation import decimal
from app.kinds.timed import TIMED

_BITS = Parameter(64, 32, 64, (32, 53, 64))


class Ticket(Kind):
    """A counter in steps of the ring's increment, which reading an id takes, too."""

    name, bits, unique = "ticket", 64, "certainly"
    parameters: Mapping[str, Parameter] = {"bits": _BITS, "start": Parameter(1, 1, TICKET_LIMIT)}

    @property
    def read_with(self) -> Mapping[str, Parameter]:
        return {"bits": _BITS, "increment": Parameter(None, 1, 65535)}

    def ceiling(self, parameters: Parameters) -> int:
        return (1 << min(63, parameters.get("bits", 64))) - 1

    def decode(self, parameters: Parameters, id_text: str) -> dict[str, Any]:
        """See Kind.decode. `offset`: of the database that gave the ticket."""
        number = decimal(id_text, self.name, self.ceiling(parameters))
        offset = (number - 1) % parameters["increment"] + 1
        return {"kind": self.name, "id_str": str(number), "offset": offset}


_ALL: tuple[Kind, ...] = (Ticket(), *TIMED, Uuid7(), Ulid(), Simpleflake(), Uuid4())
KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _ALL})
"""The kinds by name, in the order in which they are shown."""
DECODE_PARAMETERS: tuple[str, ...] = tuple(dict.fromkeys(name for kind in _ALL for name in kind.read_with))
"""Every parameter that reading an id of some kind takes."""


def kind_named(name: str) -> Kind:
    """Return the kind of this name. Raises InvalidRequest, which lists all names."""
    if name not in KINDS:
        raise InvalidRequest(f"there is no such kind of sequence; there are {', '.join(KINDS)}")
    return KINDS[name]


def decoded(kind_name: str, given: Mapping[str, int], id_text: str) -> dict[str, Any]:
    """Return what an id of this kind says, made anywhere with these parameters. Raises InvalidRequest."""
    kind = kind_named(kind_name)
    return {"sequence": None, **kind.decode(kind.complete(given, reading=True), id_text)}
