"""The figures of docs/capacity.md, made from the JSON that `python -m bench.capacity` has left."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report import number
from docs.generator import blocks

PAGE, BLOCK, RESULTS = Path("docs/capacity.md"), "capacity", Path("bench/results/capacity.json")
SIZES = (100, 1_000, 5_000, 20_000, 50_000, 100_000)
"""Tickets a second in the sizing table, as far as one server reached them."""
SIZED_BY = ("http-1", "http-16", "http-64", "http-256")
"""The ways of asking that the sizing table goes by, the slowest first."""
ROOM = 0.7
"""The share of a core that the sizing table lets a process use."""
_NOTHING_YET = "Nobody has measured this release yet. `python -m bench.capacity` writes this part."

Data = Mapping[str, Any]
"""A run, as its JSON file holds it."""


def page(root: Path) -> str:
    """The whole page as it should be. `root`: the repository's folder. Raises NoBlock."""
    path = root / RESULTS
    lines = tables(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else [_NOTHING_YET]
    return blocks.replaced((root / PAGE).read_text(encoding="utf-8"), BLOCK, "\n".join(lines))


def publish(data: Data, root: Path) -> None:
    """Keep the run, and write its figures into the page."""
    blocks.write(root / RESULTS, json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    blocks.write(root / PAGE, page(root))


def tables(data: Data) -> list[str]:
    """Every figure, as sections of the page."""
    return [
        *_on_what(data),
        "",
        "## What a ticket costs",
        "",
        *_of_tickets(data["tickets"]),
        "",
        "## What a connection costs",
        "",
        *_of_connections(data["connections"]),
        "",
        "## What a crash costs",
        "",
        *blocks.table(
            ["killed with SIGKILL", "tickets a second before", "tickets that nobody gets"],
            [[each["what"], number(each["rate"]), f"{each['skipped']:,}"] for each in data["crashes"]],
            right=(1, 2),
        ),
        "",
        "## How much to provide",
        "",
        *_sizes({each["way"]: each for each in data["tickets"]}),
    ]


def _on_what(data: Data) -> list[str]:
    hardware = data["hardware"]
    doubt = ["", f"**Do not trust the rates: {data['busy']}.**"] if data["busy"] else []
    return [
        f"Release {data['version']}, measured by `{data['command']}` on {data['date']}: {data['engine']}, "
        f"{hardware['cores']} cores ({hardware['processor']}) for databases, servers and clients together, "
        f"{hardware['memory']} of memory, data on {hardware['data on']}, one flush to the disk "
        f"{hardware['one fdatasync of 512 bytes']}, {hardware['system']}, Python {data['python']}. The databases ran "
        f"with {data['database_settings']}.",
        *doubt,
    ]


def _of_tickets(tickets: Sequence[Data]) -> list[str]:
    columns = [
        "way of asking",
        "tickets a second",
        "for each core of the server",
        "for each core of the databases",
        "binary log, bytes a ticket",
    ]
    rows = [
        [
            each["title"],
            number(each["rate"]),
            number(each["server"]),
            number(each["databases"]),
            f"{each['binary_log']:.2f}" if each["binary_log"] < 100 else f"{each['binary_log']:.0f}",
        ]
        for each in tickets
    ]
    return blocks.table(columns, rows, right=range(1, 5))


def _of_connections(cost: Data) -> list[str]:
    rows = [
        ["memory of a ticket server that has issued one ticket", f"{cost['server'] / 1024:.1f} MiB"],
        [f"one more HTTP connection ({cost['connections']:,} were open)", f"{cost['http']:.1f} KiB"],
        ["one more connection with the Redis protocol (as many)", f"{cost['redis']:.1f} KiB"],
        ["connections of a server to each database, with 256 clients", f"{cost['to_database']}"],
    ]
    return blocks.table(["", "measured"], rows, right=(1,))


def _sizes(tickets: Mapping[str, Data]) -> list[str]:
    """A row for each rate that one server reached."""
    rows = []
    for size in SIZES:
        way = next((tickets[name] for name in SIZED_BY if tickets[name]["rate"] >= size), None)
        if way is None:
            break
        a_day = size * way["binary_log"] / 2 * 86_400 / 1e9
        rows.append(
            [
                f"{size:,}",
                f"{size / way['server'] / ROOM:.2f}",
                f"{size / way['databases'] / 2 / ROOM:.2f}",
                f"{a_day:.1f}",
                way["title"],
            ]
        )
    columns = [
        "tickets a second",
        "cores for ticket servers",
        "cores for each of two databases",
        "binary log of each database, GB a day",
        "computed from",
    ]
    return blocks.table(columns, rows, right=range(1, 4))
