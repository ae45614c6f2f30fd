"""`ticket`: plain numbers from the ticket databases."""

from collections.abc import Mapping
from typing import Any, ClassVar

from app.common.sequences import TICKET_LIMIT
from app.kinds.kind import Kind, Parameter, number_ceiling
from app.kinds.notation import decimal

_BITS = Parameter(64, 32, 64, (32, 53, 64))


class Ticket(Kind):
    """A counter, odd here and even there. Reading an id takes the ring's increment."""

    name = "ticket"
    bits = 64
    unique = "certainly"
    ordered = True
    parameters: ClassVar[Mapping[str, Parameter]] = {"bits": _BITS, "start": Parameter(1, 1, TICKET_LIMIT)}

    @property
    def read_with(self) -> Mapping[str, Parameter]:
        return {"bits": _BITS, "increment": Parameter(None, 1, 65535)}

    def ceiling(self, parameters: Mapping[str, int]) -> int | None:
        return number_ceiling(parameters.get("bits", 64))

    def ends_at(self, parameters: Mapping[str, int]) -> int | None:
        return None

    def decode(self, parameters: Mapping[str, int], id_text: str) -> dict[str, Any]:
        """The offset of the database that gave the ticket; `parameters` has the ring's `increment`."""
        number = decimal(id_text, self.name, number_ceiling(parameters.get("bits", 64)))
        offset = (number - 1) % parameters["increment"] + 1
        return {"kind": self.name, "id_str": str(number), "offset": offset}
