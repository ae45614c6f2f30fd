"""What an id says, of a sequence that this server knows."""

from typing import Any

from app.errors import InvalidRequest, NoTicketDatabase
from app.kinds.table import KINDS
from app.service import Service
from app.tickets.definitions import TICKET

MOST_AHEAD_MS = 60_000
"""An id from further in the future is none of the sequence. Clocks differ, and this server's may be the late one."""


async def of_sequence(service: Service, name: str, id_text: str) -> dict[str, Any]:
    """Return what an id of this sequence says.

    Raises InvalidRequest where the sequence has no such id, UnknownSequence; NoTicketDatabase where nobody knows the
    sequence, or the ring's increment, now.
    """
    entry = await service.catalog.find(name)
    kind, parameters = KINDS[entry.definition.kind], entry.definition.parameters
    if entry.definition.kind == TICKET:
        record = service.sight.record
        if record is None:
            raise NoTicketDatabase("the increment of the ticket databases is not known yet")
        parameters = {"bits": entry.bits, "increment": record.increment}
    said = kind.decode(parameters, id_text)
    ahead = said.get("time_ms", 0) - service.clock.latest_ms()
    if ahead > MOST_AHEAD_MS:
        raise InvalidRequest(f"the id's time is {said['time']}, which is {ahead / 1000:,.0f} s ahead")
    return {"sequence": entry.name, **said}
