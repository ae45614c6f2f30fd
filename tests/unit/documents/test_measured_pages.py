"""The pages of capacity and evidence have the figures of the runs that they are made from."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench import capacity_page
from bench.costs import WAYS
from docs.generator.generated import ROOT
from tests.long import page as evidence
from tests.long.plan import Outcome, Part

HARDWARE = {
    "processor": "a processor",
    "cores": "2",
    "memory": "24 GiB",
    "data on": "ext4",
    "one fdatasync of 512 bytes": "0.30 ms (median of 200)",
    "system": "Debian",
}


def run(busy: str = "") -> Mapping[str, Any]:
    """A measurement: way number n, from 1, has n thousand tickets a second, and 10,000 for a core of the server."""
    tickets = [
        {
            "way": way.name,
            "title": way.title,
            "rate": 1000.0 * number,
            "server": 10_000.0,
            "databases": 5_000.0,
            "binary_log": 200.0,
        }
        for number, way in enumerate(WAYS, 1)
    ]
    return {
        "version": "9.8.7",
        "engine": "MySQL 9.7.4",
        "command": "python -m bench.capacity",
        "date": "2026-11-24 10:00 UTC",
        "python": "3.11.7",
        "busy": busy,
        "hardware": HARDWARE,
        "database_settings": "a binary log",
        "connections": {"server": 71_680.0, "http": 12.3, "redis": 8.7, "connections": 2000, "to_database": 5},
        "crashes": [{"what": "one of two databases", "rate": 4_321.0, "skipped": 1_234}],
        "tickets": tickets,
    }


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A folder with both pages of this repository, and without results."""
    for path in (capacity_page.PAGE, evidence.PAGE):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    for path in (capacity_page.RESULTS, evidence.RESULTS):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    return tmp_path


def test_capacity_has_every_measured_figure(repository: Path) -> None:
    capacity_page.publish(run(), repository)
    text = (repository / capacity_page.PAGE).read_text(encoding="utf-8")
    for each in run()["tickets"]:
        assert f"| {each['title']} | {each['rate']:,.0f} | 10,000 | 5,000 | 200 |" in text
    for row in (
        "| one of two databases | 4,321 | 1,234 |",
        "| memory of a ticket server that has issued one ticket | 70.0 MiB |",
        "| one more HTTP connection (2,000 were open) | 12.3 KiB |",
        "| connections of a server to each database, with 256 clients | 5 |",
    ):
        assert row in text
    assert "Release 9.8.7, measured by `python -m bench.capacity` on 2026-11-24 10:00 UTC: MySQL 9.7.4, 2 cores" in text
    assert "Do not trust" not in text
    assert capacity_page.page(repository) == text


def test_the_sizing_table_goes_as_far_as_one_server_did() -> None:
    text = "\n".join(capacity_page.tables(run()))
    # 1,000 tickets: 0.1 core of a server and 0.2 of the databases, of which 70 % are used; 500 a database at 200 bytes
    assert "\n| 1,000 | 0.14 | 0.14 | 8.6 | single tickets over HTTP, 1 connection |" in text
    assert "\n| 5,000 |" not in text
    assert "\n| 20,000 |" not in text


def test_a_measurement_on_a_busy_machine_says_so() -> None:
    text = "\n".join(capacity_page.tables(run("the machine was busy when the run began")))
    assert "**Do not trust the rates: the machine was busy when the run began.**" in text


def test_evidence_has_a_row_for_each_part(repository: Path) -> None:
    said = "on mysql 9.7.4-2: a path\n\n606 s, 50 requests, 60 tickets, 1 bumps\nlongest wait: 1.09 s\nviolations: 0\n"
    outcomes = [
        Outcome(Part("torture", []), 600.0, False, said),
        Outcome(Part("more variants", []), 61.0, False, "....\n83 passed, 9 deselected in 60.00s\n"),
        Outcome(Part("something else", []), 20.0, False, ""),
    ]
    evidence.publish(evidence.as_data(outcomes), repository)
    text = (repository / evidence.PAGE).read_text(encoding="utf-8")
    figures = "606 s, 50 requests, 60 tickets, 1 bumps; longest wait: 1.09 s; violations: 0"
    assert f"| torture | MySQL 9.7.4 | 10 min | {figures} |" in text
    assert "| more variants | - | 1 min | 83 passed, 9 deselected in 60.00s |" in text
    assert "| something else | - | 0 min | passed |" in text
    assert evidence.page(repository) == text


def test_a_part_that_failed_is_said_to_have() -> None:
    row = Outcome(Part("torture", []), 600.0, True, "violations: 2\n").row
    assert row[-1] == "**failed**; violations: 2"
