"""A picture of figures: horizontal bars, as SVG."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_ROW, _LEFT, _RIGHT, _WIDTH = 24, 400, 90, 920
"""Pixels: the height of a bar's row, the room for titles and for numbers, and the whole width."""


class Bar(NamedTuple):
    """is_ours: whether a ticket server is measured."""

    title: str
    value: float
    is_ours: bool


def plot(heading: str, bars: Sequence[Bar]) -> str:
    """Return the bars with their titles and values, drawn from zero to the largest."""
    most = max((bar.value for bar in bars), default=0) or 1
    height = _ROW * (len(bars) + 2)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        'font-size="13" fill="#222">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="{_ROW}" font-weight="bold">{escape(heading)}</text>',
    ]
    for number, bar in enumerate(bars):
        top, width = _ROW * (number + 1.5), (_WIDTH - _LEFT - _RIGHT) * bar.value / most
        color, weight = ("#1f6feb", "bold") if bar.is_ours else ("#9aa4af", "normal")
        lines += [
            f'<text x="{_LEFT - 8}" y="{top + 16}" text-anchor="end" font-weight="{weight}">{escape(bar.title)}</text>',
            f'<rect x="{_LEFT}" y="{top + 3}" width="{width:.1f}" height="{_ROW - 6}" fill="{color}"/>',
            f'<text x="{_LEFT + width + 6:.1f}" y="{top + 16}">{bar.value:,.0f}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
