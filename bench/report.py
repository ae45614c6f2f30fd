"""The results as JSON for programs, and as tables for people. The tables are made from the JSON alone, so that a page
can be made again, and compared with the run it is of."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bench.cases import GROUPS
from bench.claims import Claim
from bench.databases import description
from bench.memory import Reading
from bench.run_facts import Facts
from bench.summary import Row
from docs.generator.blocks import table

BASE = "server-64"
"""The case that every other one is divided by."""

_HOW_TO_READ = """\
The rates are tickets a second: the median of {rounds} rounds of {seconds} s each, the smallest and the largest. Every
round goes through all cases, one after the other. *Ratio* is a case's median divided by that of single tickets at 64
connections. p50 and p99 are of one request, in milliseconds: the median of the rounds. *Cores* is the processor time
used meanwhile; *client* is the program that sends the requests, and *elsewhere* everything that is not part of the
benchmark."""

Data = Mapping[str, Any]
"""A run, as its JSON file holds it."""


def as_data(
    facts: Facts,
    rows: Mapping[str, Row],
    claims: Sequence[Claim],
    readings: Sequence[Reading],
    doubts: Sequence[str],
) -> Data:
    """Everything that is known of a run, with every round of every case. `doubts`: the reasons to distrust it."""
    cases = [
        {
            "case": name,
            "group": row.case.group,
            "title": row.case.title,
            "note": row.case.note,
            "trouble": row.trouble,
            "median": row.median if row.samples else None,
            "minimum": min(row.rates, default=None),
            "maximum": max(row.rates, default=None),
            "p50_ms": row.p50,
            "p99_ms": row.p99,
            "counts": row.counts,
            "cores": row.cores,
            "rounds": [{"round": key, **asdict(sample)} for key, sample in row.samples.items()],
        }
        for name, row in rows.items()
    ]
    return {
        **asdict(facts),
        "doubts": list(doubts),
        "database_settings": description(binary_log=False),
        "claims": [{**asdict(claim), "verdict": claim.verdict} for claim in claims],
        "cases": cases,
        "memory_mib": {reading.after: round(reading.mebibytes, 1) for reading in readings},
    }


def as_json(data: Data) -> str:
    """The text of the JSON file."""
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def number(value: float) -> str:
    """A rate: whole where it is large."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def milliseconds(value: float | None) -> str:
    """A latency, without its unit; a dash where none is known."""
    return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def when(data: Data) -> str:
    """The sentence that says of which release the figures are, when they were measured, and on what."""
    hardware = data["hardware"]
    return (
        f"Release {data['versions']['ticket server']}, measured by `{data['command']}` on {data['date']}, on "
        f"{data['engine']} and {hardware['cores']} cores ({hardware['processor']}) for databases, servers and clients "
        "together."
    )


def whole_report(data: Data, plot: str) -> str:
    """A run's own page. `plot`: the name of its picture, beside it."""
    doubts = ["", "Do not trust these figures:", "", *(f"- {doubt}" for doubt in data["doubts"])]
    return "\n".join(
        [
            f"# Benchmark on {data['engine']}",
            *(doubts if data["doubts"] else []),
            "",
            *tables(data, plot),
            "",
        ]
    )


def tables(data: Data, plot: str) -> list[str]:
    """Everything that there is to say of a run, as sections of a page. `plot`: the name of its picture."""
    lines = [
        when(data),
        "",
        f"![Tickets a second, and what the benchmark requires]({plot})",
        "",
        "## What the benchmark requires",
        "",
        *table(
            ["measure", "measured", "required", "met", "smallest and largest round"],
            [
                [claim["title"], claim["measured"], claim["asked"], claim["verdict"], claim["rounds"]]
                for claim in data["claims"]
            ],
        ),
        "",
        "## Every case",
        "",
        _HOW_TO_READ.format(rounds=data["rounds"], seconds=data["seconds"]),
    ]
    base = next((case["median"] for case in data["cases"] if case["case"] == BASE), None)
    for group in GROUPS:
        if chosen := [case for case in data["cases"] if case["group"] == group]:
            lines += ["", f"### {group}", "", *_of_cases(chosen, base)]
    if data["memory_mib"]:
        readings = [[after, f"{mebibytes:.1f}"] for after, mebibytes in data["memory_mib"].items()]
        lines += ["", "### Memory of one server", "", *table(["resident memory", "MiB"], readings, right=(1,))]
    facts = [[name, value] for name, value in (data["hardware"] | data["versions"]).items()]
    facts.append(["database settings", data["database_settings"]])
    lines += ["", "## Machine and versions", "", *table(["", ""], facts)]
    return lines


def _of_cases(cases: Sequence[Data], base: float | None) -> list[str]:
    columns = ["case", "median", "minimum", "maximum", "ratio", "p50 ms", "p99 ms", "cores", "notes"]
    return table(columns, [_of_case(case, base) for case in cases], right=range(1, 7))


def _of_case(case: Data, base: float | None) -> list[str]:
    notes = [note for note in (case["note"], case["trouble"]) if note]
    notes += [f"{count:,} {what}" for what, count in case["counts"].items()]
    said = "; ".join(notes).replace("|", "/").replace("\n", " ")
    if case["median"] is None:
        return [case["title"], *["-"] * 6, "", said or "not measured"]
    return [
        case["title"],
        *(number(case[which]) for which in ("median", "minimum", "maximum")),
        f"{case['median'] / base:.2f}" if base else "-",
        milliseconds(case["p50_ms"]),
        milliseconds(case["p99_ms"]),
        ", ".join(f"{part} {used:.2f}" for part, used in case["cores"].items()),
        said,
    ]
