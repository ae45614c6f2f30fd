"""What the pages say of one sequence."""

import datetime
from dataclasses import dataclass
from typing import Any

from app.http.pages.formats import YEAR, Sparkline, span
from app.kinds.table import KINDS
from app.operations.admin import ENDS_SOON_MS
from app.operations.rates import Rate

_PARAMETERS = tuple(dict.fromkeys(name for kind in KINDS.values() for name in kind.parameters if name != "bits"))
"""Of kinds, that a sequence has beside its bits."""


@dataclass(frozen=True)
class _Headroom:
    """The ids that are left: their number, their share, the exact number on each database."""

    left: int
    share: float
    exact: str

    @property
    def state(self) -> str:
        return "fail" if self.share < 0.1 else "warn" if self.share < 0.25 else "pass"


@dataclass(frozen=True)
class _End:
    """When the ids will be used up at the present rate of all servers. `day`: None where that is far away."""

    span: str
    day: datetime.datetime | None = None
    soon: bool = False


@dataclass(frozen=True)
class Row:
    """One sequence, as the pages show it.

    `lasts`: the last ticket of each database, empty where none is known. `about`: what is said of its kind, and
    `parameters` the kind's. A sequence of another kind than `ticket` has no drift and no headroom, and ends with the
    time in its ids. `reserve`: what was drawn ahead, in words.
    """

    name: str
    about: str
    parameters: str
    rate: float
    line: Sparkline
    lasts: list[tuple[str, int | None]]
    drift: int | None
    exhausted: bool
    headroom: _Headroom | None
    end: _End | None
    reserve: str

    @classmethod
    def of(cls, each: dict[str, Any], rate: Rate, now: float) -> "Row":
        """The row of a sequence as `Admin.described` tells it."""
        databases = each["databases"] if each["kind"] == "ticket" else []
        known = [on["last"] for on in databases if on["last"] is not None]
        left = [on["headroom"] for on in databases if on["headroom"] is not None]
        return cls(
            each["sequence"],
            f"{each['bits']} bits" if each["kind"] == "ticket" else each["kind"],
            ", ".join(f"{name} {value}" for name, value in parameters_of(each).items()),
            rate.now,
            Sparkline.of(rate.history),
            [(on["name"], on["last"]) for on in databases] if known else [],
            max(known) - min(known) if len(known) > 1 else None,
            each["exhausted"],
            _headroom(each, max(known, default=0), sum(left)) if left else None,
            _end(sum(left), rate, now) if left else _end_of_time(each.get("ends"), now),
            _reserve(each),
        )


def parameters_of(each: dict[str, Any]) -> dict[str, str]:
    """The parameters of its kind, by name."""
    return {name.replace("_", " "): str(each[name]) for name in _PARAMETERS if name in each}


def _reserve(each: dict[str, Any]) -> str:
    """What is in reserve and how long it lasts at the present rate; empty where nothing is drawn ahead."""
    if "reserve" not in each:
        return ""
    lasts = each["reserve_seconds"]
    return f"{each['reserve']:,} in reserve" + ("" if lasts is None else f", for {span(lasts)}")


def _headroom(each: dict[str, Any], last: int, left: int) -> _Headroom:
    exact = ", ".join(f"{on['headroom'] or 0:,} on {on['name']}" for on in each["databases"])
    return _Headroom(left, max(0.0, 1 - last / each["ceiling"]), exact)


def _end_of_time(ends: str | None, now: float) -> _End | None:
    """The end of a kind with a time in its ids."""
    if ends is None:
        return None
    day = datetime.datetime.fromisoformat(ends)
    seconds = day.timestamp() - now
    return _End(span(seconds), day, soon=seconds < ENDS_SOON_MS / 1000)


def _end(left: int, rate: Rate, now: float) -> _End | None:
    if rate.used <= 0:
        return None
    seconds = left / rate.used
    if seconds > 1000 * YEAR:
        return _End("over 1,000 years")
    if seconds > 100 * YEAR:
        return _End(f"{round(seconds / YEAR):,} years")
    day = datetime.datetime.fromtimestamp(now + seconds, datetime.UTC)
    return _End(span(seconds), day, soon=seconds < 30 * 86400)
