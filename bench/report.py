"""The tables of a run, in Markdown, and the pages that have them."""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.case import Bound, Case, Sample
from bench.figures import Figures, is_met
from bench.plot import Bar, plot
from bench.processes import ROOT

PAGES = {Path("docs/performance.md"): "performance", Path("README.md"): "figures"}
"""The pages with figures of a run, and the names of their comments."""
PLOT = Path("docs/performance.svg")
PLOT_TITLE = "Tickets or requests a second, 64 connections"
QUOTED = ("http-64", "reserve-64", "block", "client")
"""The cases that the README quotes."""
PLOTTED = (
    *("http-64", "reserve-64", "resp-64", "resp-reserve-64", "nginx-64", "fastapi-64"),
    *("redis-64", "redis-memory-64", "pgbench-64", "replace-64", "flickr-64"),
)
"""The cases in the picture: each answer is one ticket, or what stands for it."""


def beside(cases: Sequence[Case], figures: Figures, side: str) -> str:
    """Return the table of a run of this server. What a bound compares with stands in the row of that bound."""
    lines = ["| | median | p50 | p99 | compared | bound | |", "| --- | ---: | ---: | ---: | --- | --- | --- |"]
    titles = {case.name: case for case in cases}
    compared = {bound.than for case in cases for bound in case.bounds}
    for case in cases:
        if case.name in compared:
            continue
        sample = figures.median(case.name, side)
        rate = f"{_rate(case, sample)} ± {figures.spread(case.name, side) / 2:.0%}"
        bounds = [_judged(bound, titles.get(bound.than, case), figures, case, side) for bound in case.bounds]
        cells = ["<br>".join(column) for column in zip(*bounds, strict=True)] or [""] * 3
        row = [case.title, rate, _milliseconds(sample.p50), _milliseconds(sample.p99), *cells]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def _judged(bound: Bound, than: Case, figures: Figures, case: Case, side: str) -> tuple[str, str, str]:
    """What was reached, the bound, and whether it is met."""
    limit = f"at {'most' if bound.measure.is_most else 'least'} {bound.limit:,.9g}"
    reached = figures.reached(case, bound, side)
    if math.isnan(reached):
        return "–", limit, "not measured"
    other = figures.median(than.name, side)
    values = {"title": than.title, "rate": _rate(than, other), "p50": _milliseconds(other.p50)}
    shown = bound.measure.shown.format(value=reached, **values)
    return shown, limit, "met" if is_met(bound, reached) else "**missed**"


def against(cases: Sequence[Case], figures: Figures, sides: Sequence[str]) -> str:
    """Return the table of two servers, the ratio of the first to the second in each round."""
    one, other = sides
    lines = [f"| | {one} | {other} | ratio | middle half of the ratios |", "| --- | ---: | ---: | ---: | --- |"]
    for case in cases:
        ratios = [this.value / that.value for this, that in figures.pairs((case.name, one), (case.name, other))]
        medians = " | ".join(_rate(case, figures.median(case.name, side)) for side in sides)
        lines.append(f"| {case.title} | {medians} | {_middle(ratios)} |")
    return "\n".join(lines)


def described(facts: Mapping[str, str], doubts: Sequence[str]) -> str:
    """Return on what the run was made, and why it cannot be trusted."""
    lines = [f"{'; '.join(f'{name} {value}' for name, value in facts.items())}."]
    if doubts:
        lines += ["", "**Untrustworthy:**", "", *(f"- {doubt}" for doubt in doubts)]
    return "\n".join(lines)


def everything(figures: Figures, facts: Mapping[str, str], doubts: Sequence[str]) -> dict[str, object]:
    """Return the whole run for JSON: the figures of each round, with null for a latency that nothing measured."""
    rounds = {
        f"{case} of {side}": [
            {name: None if math.isnan(value) else value for name, value in sample._asdict().items()}
            for sample in samples.values()
        ]
        for (case, side), samples in figures.rounds.items()
    }
    return {"facts": facts, "doubts": doubts, "rounds": rounds}


def check_pages(root: Path = ROOT) -> None:
    """Raise ValueError where a page has no place for the figures."""
    for path, name in PAGES.items():
        _replaced((root / path).read_text(encoding="utf-8"), name, "")


def publish(cases: Sequence[Case], figures: Figures, side: str, facts: Mapping[str, str], root: Path = ROOT) -> None:
    """Write the figures into the pages, and the picture. Raises ValueError where a page has no place for them."""
    found = {case.name: (case, figures.median(case.name, side)) for case in cases}
    bars = [Bar(case.title, sample.value, case.is_ours) for case, sample in map(found.__getitem__, PLOTTED)]
    bars.sort(key=lambda bar: -bar.value)
    (root / PLOT).write_text(plot(PLOT_TITLE, bars), encoding="utf-8")
    whole = f"{described(facts, ())}\n![{PLOT_TITLE}]({PLOT.name})\n\n{beside(cases, figures, side)}"
    short = (
        f"Medians of one run on {facts['date']}: {facts['machine']}, {facts['databases']}. Databases, server and "
        "clients shared the machine.\n\n| | |\n| --- | ---: |\n"
    ) + "\n".join(f"| {case.title} | {_rate(case, sample)} |" for case, sample in map(found.__getitem__, QUOTED))
    for (path, name), text in zip(PAGES.items(), (whole, short), strict=True):
        page = (root / path).read_text(encoding="utf-8")
        (root / path).write_text(_replaced(page, name, text), encoding="utf-8")


def _replaced(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"a page has no place for the figures: {begin} and {end}, each once")
    return re.sub(f"{begin}.*{end}", lambda _: f"{begin}\n\n{text}\n\n{end}", page, flags=re.DOTALL)


def _rate(case: Case, sample: Sample) -> str:
    number = "–" if math.isnan(sample.value) else f"{sample.value:,.{0 if sample.value >= 100 else 1}f}"
    return f"{number} {case.unit}"


def _milliseconds(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f} ms"


def _middle(ratios: Sequence[float]) -> str:
    """The median of the ratios, and where their middle half lies."""
    if not ratios:
        return "– | –"
    lower, middle, upper = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else [*ratios] * 3
    return f"{middle:.2f} | {lower:.2f} to {upper:.2f}"
