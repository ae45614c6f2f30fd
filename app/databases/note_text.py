"""The notes that have many parts as text, for engines that keep each of them in one value.

A part that this release does not know is passed over, so that a later one can add some.
"""

import json
from dataclasses import asdict, fields, replace
from typing import Any

from app.common.errors import TicketDatabaseUnavailable
from app.databases.protocol import Body, RingRecord, RingState, ServerEntry, Use


def text_of(note: RingRecord | ServerEntry) -> str:
    """A ring record or an announcement as JSON."""
    return json.dumps(asdict(note), separators=(",", ":"))


def record_of(text: str) -> RingRecord:
    """The ring record that `text_of` wrote. Raises TicketDatabaseUnavailable where it is none."""
    try:
        parts = _known(json.loads(text), RingRecord)
        parts["state"] = RingState(parts["state"])
        parts["bodies"] = tuple((int(offset), Body(**_known(body, Body))) for offset, body in parts["bodies"])
        return RingRecord(**parts | {each: tuple(parts[each]) for each in ("offsets", "former")})
    except (ValueError, TypeError, KeyError) as error:
        raise TicketDatabaseUnavailable("has a damaged ring record") from error


def server_of(text: str, at: float) -> ServerEntry:
    """The announcement that `text_of` wrote, and `at` dates. Raises TicketDatabaseUnavailable where it is none."""
    try:
        parts = _known(json.loads(text), ServerEntry)
        uses = parts["uses"]
        parts["uses"] = None if uses is None else tuple(Use(**_known(each, Use)) for each in uses)
        return replace(ServerEntry(**parts | {"kinds": tuple(parts["kinds"])}), at=at)
    except (ValueError, TypeError, KeyError) as error:
        raise TicketDatabaseUnavailable("has a damaged announcement of a ticket server") from error


def _known(parts: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in parts.items() if name in names}
