"""Publishes the figures of a release: docs/performance.md, its picture, and the four figures that README.md quotes.

All of it is made from one file, `bench/results/release.json`, by functions that anybody can call again.
"""

import json
from pathlib import Path
from typing import Any

from bench import report
from bench.report import Data
from docs.generator import blocks

RELEASE = "release"
"""The name of the published run's files in bench/results/."""
PAGE, PICTURE, README = Path("docs/performance.md"), Path("docs/performance.svg"), Path("README.md")
PAGE_BLOCK, README_BLOCK = "performance", "figures"

QUOTED = (
    ("server-64", "single tickets over HTTP, 64 connections"),
    ("server-latency-1", "single tickets over HTTP, one connection"),
    ("redis-ahead-64-1", "`INCR` over the Redis protocol, 64 connections, `TICKETS_RESERVE_SECONDS=2`"),
    ("block-10000", "blocks of 10,000 tickets over HTTP, one connection"),
)
"""The four cases that the README quotes, and what it calls them."""
BESIDE = "redis-always-64-1"
"""The case that the README names beside them: Redis itself, as durable."""

_NOTHING_YET = "No run of this release has been published yet. `make bench` writes this part."


def results(root: Path) -> Path:
    """The folder of a repository's results."""
    return root / "bench" / "results"


def published(root: Path) -> Data | None:
    """The run that a repository has published, None where there is none."""
    path = results(root) / f"{RELEASE}.json"
    if not path.exists():
        return None
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def pages(root: Path) -> dict[Path, str]:
    """Both pages as they should be: their paths below `root`, and their whole text. Raises NoBlock."""
    data = published(root)
    found = {}
    for path, block, lines in (
        (PAGE, PAGE_BLOCK, report.tables(data, PICTURE.name) if data else [_NOTHING_YET]),
        (README, README_BLOCK, headline(data) if data else [_NOTHING_YET]),
    ):
        text = (root / path).read_text(encoding="utf-8")
        found[path] = blocks.replaced(text, block, "\n".join(lines))
    return found


def publish(data: Data, picture: str, root: Path) -> None:
    """Make this run the published one. `picture`: the text of its SVG. `root`: the repository's folder."""
    blocks.write(results(root) / f"{RELEASE}.json", report.as_json(data))
    blocks.write(root / PICTURE, picture)
    for path, text in pages(root).items():
        blocks.write(root / path, text)


def headline(data: Data) -> list[str]:
    """The four figures of the README, and on what they were measured."""
    cases = {case["case"]: case for case in data["cases"]}
    rows = [
        [words, report.number(cases[name]["median"]), f"{report.milliseconds(cases[name]['p50_ms'])} ms"]
        for name, words in QUOTED
    ]
    redis = cases[BESIDE]
    return [
        *blocks.table(["", "tickets a second", "median wait"], rows, right=(1, 2)),
        "",
        f"{report.when(data)} Both databases flush every commit to the disk. Redis itself, with `appendfsync always`, "
        f"answered {report.number(redis['median'])} `INCR` a second on the same machine over 64 connections. "
        f"[{PAGE}]({PAGE}) has every case, and says what to distrust.",
    ]
