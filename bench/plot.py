"""The results as a picture: an SVG written by hand, light or dark as the reader's system is."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from bench.cases import GROUPS
from bench.claims import Claim
from bench.report import number
from bench.run_facts import Facts
from bench.summary import Row

_WIDTH = 1000
_MARGIN = 28
_LABELS = 432
_LEFT = _MARGIN + _LABELS
_RIGHT = _WIDTH - _MARGIN - 96
_ROW = 22
_GROUP = 34
_REACH = 8.0
"""Scores are drawn up to so many times what was asked, and down to so small a part."""

_SHORTER = (
    ("at least", "≥"),
    ("at most", "≤"),
    (", not growing", ""),
    (", 64 connections, against", ", against"),
    ("against Redis INCR, 64 connections", "against Redis INCR"),
    ("redis-benchmark INCR, 64 connections", "redis-benchmark INCR"),
    ("TICKETS_RESERVE_SECONDS=", "reserve s="),
    (", appendfsync always", ""),
    ("1,000 sequences at random", "1,000 sequences"),
    (" and 1,000,000 tickets", ", 1 M tickets"),
)
"""Short forms of a measure's words, for the columns of the picture."""

_STYLE = """
:root { --paper: #ffffff; --ink: #1d2733; --faint: #66717e; --line: #e3e7ec; --ours: #0b7a75; --theirs: #8593a3;
  --met: #0b7a75; --missed: #c2521b; }
@media (prefers-color-scheme: dark) { :root { --paper: #14191f; --ink: #e6ebf0; --faint: #98a4b1; --line: #2a323c;
  --ours: #3cc4b8; --theirs: #7d8b9b; --met: #3cc4b8; --missed: #f08a4b; } }
text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--ink); }
.title { font-size: 19px; font-weight: 600; } .group { font-weight: 600; }
.faint { fill: var(--faint); font-size: 12px; } .value { font-variant-numeric: tabular-nums; }
.paper { fill: var(--paper); } .grid { stroke: var(--line); } .asked { stroke: var(--ink); stroke-dasharray: 3 3; }
.ours { fill: var(--ours); stroke: var(--ours); } .theirs { fill: var(--theirs); stroke: var(--theirs); }
.range { stroke-width: 5; stroke-linecap: round; opacity: .38; }
.met { fill: var(--met); } .missed { fill: var(--missed); }
"""


class _Sheet:
    """Elements from top to bottom."""

    def __init__(self) -> None:
        self.elements: list[str] = []
        self.y = 0.0

    def text(self, x: float, words: str, kind: str = "", anchor: str = "start", y: float | None = None) -> None:
        at = self.y if y is None else y
        self.elements.append(
            f'<text x="{x:.1f}" y="{at:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.elements.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>')


def svg(facts: Facts, rows: Mapping[str, Row], claims: Sequence[Claim]) -> str:
    """The picture of one run."""
    sheet = _Sheet()
    sheet.y = 42
    sheet.text(_MARGIN, f"Durable tickets a second, {facts.engine}", "title")
    sheet.y += 22
    rounds = f"{facts.rounds} round{'s' if facts.rounds > 1 else ''}"
    machine = f"{facts.hardware['cores']} cores, {facts.hardware['processor']}"
    sheet.text(_MARGIN, f"Median, smallest and largest of {rounds} of {facts.seconds} s; {machine}", "faint")
    sheet.text(_WIDTH - _MARGIN, f"release {facts.versions['ticket server']}, {facts.date}", "faint", "end")
    measured = [row for row in rows.values() if row.samples]
    if measured:
        _throughput(sheet, measured)
    judged = [claim for claim in claims if claim.score is not None]
    if judged:
        _asked(sheet, judged)
    height = sheet.y + 24
    body = "\n".join(sheet.elements)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" '
        f'height="{height:.0f}" role="img" aria-label="Durable tickets a second, and what the benchmark requires">\n'
        f'<style>{_STYLE}</style>\n<rect class="paper" width="100%" height="100%"/>\n{body}\n</svg>\n'
    )


def _throughput(sheet: _Sheet, rows: Sequence[Row]) -> None:
    """A dot for the median, a band from the smallest to the largest, on a logarithmic axis."""
    low = math.floor(math.log10(min(min(row.rates) for row in rows)))
    high = math.ceil(math.log10(max(max(row.rates) for row in rows)))
    high = max(high, low + 1)

    def across(rate: float) -> float:
        return _LEFT + (math.log10(max(rate, 10**low)) - low) / (high - low) * (_RIGHT - _LEFT)

    sheet.y += 26
    top = sheet.y + 6
    for power in range(low, high + 1):
        sheet.text(
            across(10**power), f"{10**power:,}" if power < 6 else f"{10 ** (power - 6)} million", "faint", "middle"
        )
    grid = len(sheet.elements)
    for group in GROUPS:
        chosen = [row for row in rows if row.case.group == group]
        if not chosen:
            continue
        sheet.y += _GROUP
        sheet.text(_MARGIN, group, "group")
        for row in chosen:
            sheet.y += _ROW
            kind = "ours" if row.case.ours else "theirs"
            sheet.text(_MARGIN + 12, row.case.title + ("*" if "not crash-safe" in row.case.note else ""))
            middle = sheet.y - 4
            sheet.line(across(min(row.rates)), middle, across(max(row.rates)), middle, f"range {kind}")
            sheet.elements.append(f'<circle cx="{across(row.median):.1f}" cy="{middle:.1f}" r="5" class="{kind}"/>')
            sheet.text(_WIDTH - _MARGIN, number(row.median), "value", "end")
    lines = _Sheet()
    for power in range(low, high + 1):
        lines.line(across(10**power), top, across(10**power), sheet.y + 8, "grid")
    sheet.elements[grid:grid] = lines.elements
    if any("not crash-safe" in row.case.note for row in rows):
        sheet.y += 26
        sheet.text(_MARGIN, "* not crash-safe: what a power cut loses is issued again", "faint")


def _asked(sheet: _Sheet, claims: Sequence[Claim]) -> None:
    """How far beyond what is asked each measure lies: to the right of the line it is met."""
    sheet.y += 50
    sheet.text(_MARGIN, "What the benchmark requires", "title")
    sheet.y += 8
    top = sheet.y
    left, right = _MARGIN + 520, _WIDTH - _MARGIN - 190
    middle, half = (left + right) / 2, (right - left) / 2
    for claim in claims:
        sheet.y += _ROW + 4
        score = min(max(claim.score or 0, 1 / _REACH), _REACH)
        end = middle + math.log(score) / math.log(_REACH) * half
        kind = "met" if score >= 1 else "missed"
        sheet.text(_MARGIN + 12, _short(claim.title))
        x, width = min(middle, end), max(2.0, abs(end - middle))
        sheet.elements.append(
            f'<rect x="{x:.1f}" y="{sheet.y - 11:.1f}" width="{width:.1f}" height="13" rx="2" class="{kind}"/>'
        )
        sheet.text(_WIDTH - _MARGIN, f"{claim.measured.partition(';')[0]} ({_short(claim.asked)})", "value", "end")
    sheet.line(middle, top, middle, sheet.y + 10, "asked")
    sheet.y += 26
    sheet.text(middle, "just met", "faint", "middle")
    sheet.text(left, f"{_REACH:g} × worse", "faint", "middle")
    sheet.text(right, f"{_REACH:g} × better", "faint", "middle")


def _short(words: str) -> str:
    """Fits into its column."""
    for long, short in _SHORTER:
        words = words.replace(long, short)
    return words
