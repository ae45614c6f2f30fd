"""The results as a table for people and as JSON for programs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.cases import GROUPS
from bench.claims import Claim
from bench.databases import DESCRIPTION
from bench.memory import Reading
from bench.run_facts import Facts
from bench.summary import Row

BASE = "server-64"

_HOW_TO_READ = """\
Tickets a second: the median of {rounds} rounds of {seconds} s each, the smallest and the largest; every round goes
through all cases, one after the other. *Ratio* is the median against that of single tickets at 64 connections. p50 and
p99 are of one request, in milliseconds, the median round's. *Cores*: the processor time that was used meanwhile; the
client is what asks. wrk's percentiles are corrected for requests that it would have sent during a stall; those of our
own loop are of the requests as they were. Direct cases alternate between the two databases, a connection to each for
every client; a deadlocked attempt is made again and is no ticket."""


def number(value: float) -> str:
    """Whole where it is large."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def markdown(
    facts: Facts, rows: Mapping[str, Row], claims: Sequence[Claim], readings: Sequence[Reading], plot: str
) -> str:
    """The whole report."""
    lines = [
        f"# Benchmark on {facts.engine}",
        "",
        f"Made by `{facts.command}` on {facts.date}.",
        "",
        f"![Tickets a second, and what was asked]({plot})",
        "",
        *([f"**{facts.warning}**", ""] if facts.warning else []),
        "## What it has to show",
        "",
        "| measure | measured | asked | met | round by round |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {c.title} | {c.measured} | {c.asked} | {c.verdict} | {c.rounds} |" for c in claims),
        "",
        "## Every case",
        "",
        _HOW_TO_READ.format(rounds=facts.rounds, seconds=facts.seconds),
    ]
    base = rows[BASE].median if BASE in rows and rows[BASE].samples else None
    for group in GROUPS:
        chosen = [row for row in rows.values() if row.case.group == group]
        if chosen:
            lines += ["", f"### {group}", "", *_table(chosen, base)]
    if readings:
        lines += ["", "## Memory of one server", "", "| resident memory | MiB |", "| --- | ---: |"]
        lines += [f"| {reading.after} | {reading.mebibytes:.1f} |" for reading in readings]
    lines += ["", "## On what", "", "| | |", "| --- | --- |"]
    lines += [f"| {name} | {value} |" for name, value in (facts.hardware | facts.versions).items()]
    lines += [f"| database settings | {DESCRIPTION} |", ""]
    return "\n".join(lines)


def _table(rows: Sequence[Row], base: float | None) -> list[str]:
    lines = [
        "| case | median | minimum | maximum | ratio | p50 ms | p99 ms | cores | |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for row in rows:
        notes = [note for note in (row.case.note, row.trouble) if note]
        notes += [f"{count:,} {what}" for what, count in row.counts.items()]
        said = "; ".join(notes).replace("|", "/").replace("\n", " ")
        if not row.samples:
            lines.append(f"| {row.case.title} | - | - | - | - | - | - | | {said or 'not measured'} |")
            continue
        ratio = f"{row.median / base:.2f}" if base else "-"
        cores = ", ".join(f"{part} {used:.2f}" for part, used in row.cores.items())
        low, middle, high = (number(value) for value in (min(row.rates), row.median, max(row.rates)))
        lines.append(
            f"| {row.case.title} | {middle} | {low} | {high} | {ratio} | {_milliseconds(row.p50)} "
            f"| {_milliseconds(row.p99)} | {cores} | {said} |"
        )
    return lines


def as_json(facts: Facts, rows: Mapping[str, Row], claims: Sequence[Claim], readings: Sequence[Reading]) -> str:
    """Every round of every case."""
    cases = [
        {
            "case": name,
            "group": row.case.group,
            "title": row.case.title,
            "median": row.median if row.samples else None,
            "minimum": min(row.rates, default=None),
            "maximum": max(row.rates, default=None),
            "p50_ms": row.p50,
            "p99_ms": row.p99,
            "trouble": row.trouble,
            "rounds": [{"round": key, **asdict(sample)} for key, sample in row.samples.items()],
        }
        for name, row in rows.items()
    ]
    whole = {
        **asdict(facts),
        "database_settings": DESCRIPTION,
        "claims": [{**asdict(claim), "met": None if claim.score is None else claim.score >= 1} for claim in claims],
        "cases": cases,
        "memory_mib": {reading.after: round(reading.mebibytes, 1) for reading in readings},
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def write(path: Path, text: str) -> None:
    """Write it whole or not at all."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
