"""How the pages write numbers, times and prose."""

import datetime
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from app.operations.metrics import SECONDS
from app.operations.rates import SAMPLE_SECONDS, SAMPLES

MINUTES = round(SAMPLE_SECONDS * (SAMPLES - 1) / 60)
"""How far back the history of a rate goes."""
YEAR = 365.25 * 86400
"""Seconds."""


@dataclass(frozen=True)
class Sparkline:
    """The coordinates of a line from the left (long ago) to the right (now). Its right end stays where it is while the
    history fills up."""

    points: str
    left: str
    right: str
    flat: bool
    base: str
    width: int = SAMPLES - 2
    height: int = 24
    minutes: int = MINUTES

    @classmethod
    def of(cls, history: Sequence[float]) -> "Sparkline":
        """The line of a rate's history."""
        width, floor = cls.width, cls.height - 1
        base = f"{floor:.1f}"
        top = max(max(history, default=0.0), 1e-9)
        start = width - (len(history) - 1)
        points = [f"{start + i},{floor - (floor - 2) * value / top:.1f}" for i, value in enumerate(history)]
        if len(points) < 2:
            points = [f"0,{base}", f"{width},{base}"]
        left, right = points[0].partition(",")[0], points[-1].partition(",")[0]
        return cls(" ".join(points), left, right, top < 1e-6, base)


def short(value: float) -> str:
    """A large number in few digits."""
    for power, unit in ((12, "×10¹²"), (9, " billion"), (6, " million")):
        if value >= 10**power:
            shown = math.floor(value / 10 ** (power - 1)) / 10
            return f"{math.floor(value / 1e17) / 10:.1f}×10¹⁸" if shown >= 1e5 else f"{shown:,.1f}{unit}"
    return f"{round(value):,}"


def rate(value: float) -> str:
    """Per second."""
    return f"{value:.1f}" if 0 < value < 10 else f"{value:,.0f}"


def latency(seconds: float | None) -> str:
    """In milliseconds. Below the first bucket of the histogram and above its last one, only that bound is known."""
    if seconds is None:
        return "–"
    if seconds == math.inf:
        return f"> {SECONDS[-1]:g} s"
    if seconds <= SECONDS[0]:
        return f"< {SECONDS[0] * 1000:g} ms"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds * 1000:,.0f} ms"


def percent(share: float) -> str:
    """Rounded down, so that only all is 100 %."""
    if 0.995 <= share < 1:
        return f"{math.floor(share * 10000) / 100:.2f} %" if share < 0.9999 else "> 99.99 %"
    return f"{math.floor(share * 1000) / 10:.1f} %" if share < 1 else "100 %"


def small_share(share: float) -> str:
    """A share that is more than nothing, however small."""
    return "< 0.1 %" if 0 < share < 0.001 else percent(share)


def clock(now: float) -> str:
    """A point in time, in UTC."""
    return f"{datetime.datetime.fromtimestamp(now, datetime.UTC):%Y-%m-%d %H:%M:%S}"


def span(seconds: float) -> str:
    """A duration in its one or two largest units."""
    left = max(0, round(seconds))
    parts: list[str] = []
    for unit, size in (("y", round(YEAR)), ("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if left >= size or (unit == "s" and not parts):
            parts.append(f"{left // size} {unit}")
            left %= size
        elif parts:
            break
    return " ".join(parts[:2])


def prose(text: str) -> Markup:
    """A sentence of the API's description, whose `code` stands between backticks."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


FILTERS = {
    "short": short,
    "rate": rate,
    "latency": latency,
    "small_share": small_share,
    "percent": percent,
    "span": span,
    "prose": prose,
}
"""The functions and values for the templates, by their names there."""
