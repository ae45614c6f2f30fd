"""The tables of a run, in Markdown, and the pages that have them."""

import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.case import Case
from bench.figures import Figures, is_met
from bench.processes import ROOT

PAGES = {Path("docs/performance.md"): "performance", Path("README.md"): "figures"}
"""The pages with figures of a run, and the names of their comments."""
QUOTED = ("http-64", "reserve-64", "block", "client")
"""The cases that the README quotes."""


def beside(cases: Sequence[Case], figures: Figures, side: str) -> str:
    """Return the table of a run of this server, with what each figure is compared with."""
    lines = ["| | median | compared with | asked | |", "| --- | ---: | ---: | ---: | --- |"]
    for case in cases:
        compared = [f"{_number(figures.median(case.name, side))} {case.unit}", "", "", ""]
        for bound in case.bounds:
            reached = figures.reached(case, bound, side)
            if reached is not None:
                shown = f"{reached:.2f} × `{bound.than}`" if bound.than else ""
                least = f"{'at most' if case.is_cost else 'at least'} {bound.ratio:,.9g}{' ×' * bool(bound.than)}"
                compared[1:] = [shown, least, "met" if is_met(case, bound, reached) else "**missed**"]
        lines.append(f"| {case.title}{'' if case.is_ours else f' (`{case.name}`)'} | {' | '.join(compared)} |")
    return "\n".join(lines)


def against(cases: Sequence[Case], figures: Figures, sides: Sequence[str]) -> str:
    """Return the table of two servers, the ratio of the first to the second in each round."""
    one, other = sides
    lines = [f"| | {one} | {other} | ratio | middle half of the ratios |", "| --- | ---: | ---: | ---: | --- |"]
    for case in cases:
        ratios = figures.ratios((case.name, one), (case.name, other))
        medians = " | ".join(f"{_number(figures.median(case.name, side))} {case.unit}" for side in sides)
        lines.append(f"| {case.title} | {medians} | {_middle(ratios)} |")
    return "\n".join(lines)


def described(facts: Mapping[str, str], doubts: Sequence[str]) -> str:
    """Return on what the run was made, and why it cannot be trusted."""
    lines = [f"{'; '.join(f'{name} {value}' for name, value in facts.items())}."]
    if doubts:
        lines += ["", "**Untrustworthy:**", "", *(f"- {doubt}" for doubt in doubts)]
    return "\n".join(lines)


def check_pages(root: Path = ROOT) -> None:
    """Raise ValueError where a page has no place for the figures."""
    for path, name in PAGES.items():
        _replaced((root / path).read_text(encoding="utf-8"), name, "")


def publish(cases: Sequence[Case], figures: Figures, side: str, facts: Mapping[str, str], root: Path = ROOT) -> None:
    """Write the figures into the pages. Raises ValueError where one has no place for them."""
    whole = f"{described(facts, ())}\n\n{beside(cases, figures, side)}"
    quoted = [case for case in cases if case.name in QUOTED]
    short = (
        f"Medians of one run, on {facts['machine']}, {facts['database']}, {facts['date']}; databases, server and "
        f"clients on one machine.\n\n| | |\n| --- | ---: |\n"
    ) + "\n".join(f"| {case.title} | {_number(figures.median(case.name, side))} {case.unit} |" for case in quoted)
    for path, name in PAGES.items():
        page = (root / path).read_text(encoding="utf-8")
        (root / path).write_text(_replaced(page, name, whole if name == "performance" else short), encoding="utf-8")


def _replaced(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"a page has no place for the figures: {begin} and {end}, each once")
    return re.sub(f"{begin}.*{end}", lambda _: f"{begin}\n\n{text}\n\n{end}", page, flags=re.DOTALL)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _middle(ratios: Sequence[float]) -> str:
    """The median of the ratios, and where their middle half lies."""
    if not ratios:
        return "– | –"
    lower, middle, upper = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else [*ratios] * 3
    return f"{middle:.2f} | {lower:.2f} to {upper:.2f}"
