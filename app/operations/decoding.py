"""Reading an id: of a sequence that this server serves, or of any other origin."""

from collections.abc import Mapping
from typing import Any

from app.common.errors import InvalidRequest, NoTicketDatabase
from app.common.sequences import validated
from app.kinds.table import decoded, kind_named
from app.tickets.ring.ring import Ring
from app.tickets.sequences.catalog import Catalog
from app.tickets.sequences.entry import TICKET, Entry
from app.tickets.sources.kind_sources import RefusingSource
from app.tickets.sources.server_clock import ServerClock

FUTURE_MS = 60_000
"""No id of a sequence is from further ahead. Clocks differ, and this one may be the one that is behind."""


class Decoding:
    """Reads ids."""

    def __init__(self, ring: Ring, catalog: Catalog, clock: ServerClock) -> None:
        self._ring = ring
        self._catalog = catalog
        self._clock = clock

    async def of_sequence(self, name: str, id_text: str) -> dict[str, Any]:
        """What an id of this sequence says. Raises InvalidRequest, UnknownSequence; NoTicketDatabase where no database
        could be asked for the sequence, or nobody can say what it is."""
        entry = await self._catalog.find(validated(name))
        name = entry.name
        if isinstance(entry.supply, RefusingSource):
            raise NoTicketDatabase(f"ids of {name} cannot be read: {entry.supply.reason}")
        said = decoded(name, entry.kind, self._parameters(entry), id_text)
        if entry.kind is TICKET and int(said["id_str"]) > entry.ceiling:
            raise InvalidRequest(f"no ticket of {name} is larger than {entry.ceiling}")
        ahead = said.get("time_ms", 0) - self._clock.latest_ms()
        if ahead > FUTURE_MS:
            raise InvalidRequest(f"the id is of {said['time']}, which is {ahead / 1000:,.0f} s ahead")
        return said

    def of_elsewhere(self, kind_name: str, given: Mapping[str, int], id_text: str) -> dict[str, Any]:
        """The parts of an id of this kind, wherever it was made, with these parameters. Raises InvalidRequest."""
        kind = kind_named(kind_name)
        return decoded(None, kind, kind.for_decoding(given), id_text)

    def _parameters(self, entry: Entry) -> Mapping[str, int]:
        """All that reading an id of it takes."""
        if entry.kind is not TICKET:
            return entry.parameters
        return {"bits": int(entry.width), "increment": self._ring.increment}
