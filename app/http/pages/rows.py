"""The row of one sequence on the pages."""

import datetime
from dataclasses import dataclass
from typing import Any

from app.http.pages.formats import YEAR, Sparkline, span
from app.kinds.table import KINDS
from app.operations.admin import ENDS_SOON_MS
from app.operations.rates import Rate

_PARAMETERS = tuple(dict.fromkeys(name for kind in KINDS.values() for name in kind.parameters if name != "bits"))
"""Of kinds, that a sequence has beside its bits."""
SOON_SECONDS = 30 * 86400
"""An end at the present rate that is nearer than this stands out."""


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
    """When the ids will be used up at the present rate of all servers, or when the time in them ends. `day`: None where
    that is far away."""

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
        known, left, share = _known(each, "last"), _known(each, "headroom"), share_left(each)
        return cls(
            each["sequence"],
            f"{each['bits']} bits" if each["kind"] == "ticket" else each["kind"],
            ", ".join(f"{name} {value}" for name, value in parameters_of(each).items()),
            rate.now,
            Sparkline.of(rate.history),
            [(on["name"], on["last"]) for on in each["databases"]] if known else [],
            max(known) - min(known) if len(known) > 1 else None,
            each["exhausted"],
            None if share is None else _Headroom(sum(left), share, _exact(each)),
            _end(each, rate.used, now),
            _reserve(each),
        )


def parameters_of(each: dict[str, Any]) -> dict[str, str]:
    """The parameters of its kind, by name."""
    return {name.replace("_", " "): str(each[name]) for name in _PARAMETERS if name in each}


def _reserve(each: dict[str, Any]) -> str:
    """The tickets in reserve and how long they last at the present rate; empty if the server draws none ahead."""
    if "reserve" not in each:
        return ""
    lasts = each["reserve_seconds"]
    return f"{each['reserve']:,} in reserve" + ("" if lasts is None else f", for {span(lasts)}")


def _exact(each: dict[str, Any]) -> str:
    return ", ".join(f"{on['headroom'] or 0:,} on {on['name']}" for on in each["databases"])


def _known(each: dict[str, Any], what: str) -> list[int]:
    """`last` or `headroom` of the databases where it is known; nothing of kinds other than `ticket`."""
    databases = each["databases"] if each["kind"] == "ticket" else []
    return [on[what] for on in databases if on[what] is not None]


def share_left(each: dict[str, Any]) -> float | None:
    """Which share of the ids is left, from 0 to 1; None where that is not known, or of no meaning."""
    if not _known(each, "headroom"):
        return None
    share: float = 1 - max(_known(each, "last"), default=0) / each["ceiling"]
    return max(0.0, share)


def seconds_left(each: dict[str, Any], used: float, now: float) -> float | None:
    """In how many seconds the sequence ends, None if it does not. `used`: ids used up per second by all servers.
    `now`: in seconds since 1970."""
    left = _known(each, "headroom")
    if left:
        return sum(left) / used if used > 0 else None
    ends = each.get("ends")
    return None if ends is None else datetime.datetime.fromisoformat(ends).timestamp() - now


def _end(each: dict[str, Any], used: float, now: float) -> _End | None:
    seconds = seconds_left(each, used, now)
    if seconds is None:
        return None
    if "ends" in each:
        return _End(span(seconds), datetime.datetime.fromisoformat(each["ends"]), soon=seconds < ENDS_SOON_MS / 1000)
    if seconds > 1000 * YEAR:
        return _End("over 1,000 years")
    if seconds > 100 * YEAR:
        return _End(f"{round(seconds / YEAR):,} years")
    day = datetime.datetime.fromtimestamp(now + seconds, datetime.UTC)
    return _End(span(seconds), day, soon=seconds < SOON_SECONDS)
