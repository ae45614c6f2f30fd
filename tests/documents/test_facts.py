"""What the pages list is what there is: settings, alerts, metrics, bit layouts, codes of errors."""

import re
from typing import Any

import yaml

from app.http.problems import STATUSES
from app.kinds.table import KINDS
from app.operations.metrics import COUNTERS, GAUGES, HISTOGRAMS
from app.settings import VARIABLES
from tests.documents import pages
from tests.documents.pages import REPOSITORY

MONITORING, KINDS_PAGE = "docs/operations/monitoring.md", "docs/kinds.md"


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below this heading, without its head."""
    below = pages.text_of(page).split(f"\n{heading}\n", 1)[1]
    lines = re.findall(r"(?:^\|.*\n)+", below, re.MULTILINE)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((REPOSITORY / "deploy/prometheus/rules.yml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def test_the_readme_has_eight_settings_and_they_exist() -> None:
    named = re.findall(
        r"`(TICKETS_\w+)`", " ".join(row[0] for row in rows("README.md", "## The settings that people set"))
    )
    assert len(named) == 8
    assert set(named) <= set(VARIABLES)


def test_the_page_lists_every_alert_with_its_severity() -> None:
    listed = {row[0].strip("`"): row[1] for row in rows(MONITORING, "## Alerts")}
    assert listed == {rule["alert"]: rule["labels"]["severity"] for rule in rules()}
    assert all(rule["annotations"]["runbook"] for rule in rules())


def test_the_metrics_that_the_page_names_exist() -> None:
    exist = {f"{name}_total" for name in COUNTERS} | set(GAUGES) | set(HISTOGRAMS)
    named = set(re.findall(r"`(tickets_\w+)`", " ".join(row[0] for row in rows(MONITORING, "## Metrics"))))
    assert len(named) > 20
    assert named <= exist


def test_the_bits_of_each_layout_are_as_many_as_the_id_has() -> None:
    (block,) = [each.text for each in pages.blocks(KINDS_PAGE) if each.text.startswith("instagram ")]
    drawn = {}
    for line, below in zip(block.splitlines(), block.splitlines()[1:], strict=False):
        if line[:1].isalnum() and below[:1].isdigit():
            name, parts = line.split()[0], [int(each) for each in re.findall(r"│ (\d+):", below)]
            drawn[name] = sum(parts)
            assert int(below.split()[0]) == sum(parts), name
    assert drawn == {name: kind.bits for name, kind in KINDS.items() if name != "ticket"}


def test_the_parameters_of_kinds_are_theirs() -> None:
    listed: dict[str, set[str]] = {}
    for name, *cells in rows(KINDS_PAGE, "## Parameters"):
        kinds = re.findall(r"`(\w+)`", name) or [list(listed)[-1]]
        for kind in kinds:
            listed.setdefault(kind, set()).add(cells[0].strip("`"))
    assert listed == {name: set(kind.parameters) for name, kind in KINDS.items() if kind.parameters}


def test_the_page_lists_every_code_of_an_error() -> None:
    listed = set(re.findall(r"`([a-z-]+)`", " ".join(row[1] for row in rows("docs/http.md", "## Errors"))))
    assert listed == {str(code) for codes in STATUSES.values() for code in codes}
