"""A benchmark's figures become ratios, doubts, tables and pages."""

from pathlib import Path
from typing import Any

import pytest

from bench import report
from bench.case import Bound, Case
from bench.figures import Figures, doubts

FACTS = {"date": "2026-11-28 10:00 UTC", "machine": "2 cores", "database": "mysql 9.7", "data on": "ext4"}
STEADY = [100.0, 101.0, 99.0, 102.0, 98.0]


def case(name: str, *bounds: Bound, is_cost: bool = False) -> Case:
    """A case that nothing measures."""
    return Case(name, f"title of {name}", lambda _stage, _side, _seconds: 0.0, bounds, is_cost=is_cost)


def figures(**rates: list[float]) -> Figures:
    """Figures of the side `this`: the rounds of each case."""
    return Figures({(name.replace("_", "-"), "this"): dict(enumerate(rounds)) for name, rounds in rates.items()})


@pytest.mark.parametrize(
    ("measured", "other", "said"),
    [
        (figures(http=STEADY, random=[100.0, 101.0, 10.0, 102.0, 98.0]), {}, ""),
        (figures(http=STEADY), {"load": 1.0}, "the load average before was 1.0 on 2 cores"),
        (figures(http=STEADY), {"others": 0.5}, "other processes used 0.50 cores"),
        (figures(http=STEADY), {"calibration": [1.0, 1.0, 1.4, 1.4, 1.4]}, "the same loop"),
        (figures(http=STEADY), {"facts": {"data on": "tmpfs"}}, "no disk"),
        (figures(http=[100.0] * 4), {}, "a case had 4 rounds, fewer than 5"),
        (figures(http=[100.0, 140.0, 70.0, 135.0, 72.0]), {}, "the rounds of http of this"),
        (Figures(figures(http=STEADY).rounds, {("nginx", "this"): "it is not installed"}), {}, "it is not installed"),
        (Figures(), {}, "a case had 0 rounds"),
    ],
)
def test_each_reason_to_doubt_is_said_and_one_round_apart_is_none(
    measured: Figures, other: dict[str, Any], said: str
) -> None:
    quiet: dict[str, Any] = {"load": 0.2, "cores": 2, "others": 0.05, "calibration": STEADY, "facts": FACTS}
    found = doubts(measured, **(quiet | other))
    assert len(found) == bool(said)
    assert said in "".join(found)


def test_the_table_says_which_bounds_are_met_and_missed_by_the_median_of_the_ratios_within_rounds() -> None:
    cases = [
        case("ours", Bound(1.5, "theirs")),
        case("slow", Bound(1_000_000)),
        case("small", Bound(128), is_cost=True),
        case("absent", Bound(2, "theirs")),
    ]
    rounds = figures(ours=[1000.0, 2000.0, 9000.0, 2.0], theirs=[1000.0, 1000.0, 1000.0], slow=[5.0], small=[64.0])
    table = report.beside(cases, rounds, "this")
    assert "| title of ours | 1,500 tickets/s | 2.00 × `theirs` | at least 1.5 × | met |" in table
    assert "| title of slow | 5.0 tickets/s |  | at least 1,000,000 | **missed** |" in table
    assert "| title of small | 64.0 tickets/s |  | at most 128 | met |" in table
    assert "| title of absent | – tickets/s |  |  |  |" in table
    two = Figures({("http", "this"): {0: 300.0, 1: 300.0}, ("http", "other"): {0: 100.0, 1: 200.0}})
    table = report.against([case("http"), case("absent")], two, ["this", "other"])
    assert "| title of http | 300 tickets/s | 150 tickets/s | 2.25 | 1.88 to 2.62 |" in table
    assert "| title of absent | – tickets/s | – tickets/s | – |" in table


def test_publishing_replaces_the_figures_and_nothing_else(tmp_path: Path) -> None:
    report.check_pages()  # those of this checkout have a place
    (tmp_path / "docs").mkdir()
    for path, name in report.PAGES.items():
        (tmp_path / path).write_text("no place\n")
        with pytest.raises(ValueError, match="no place for the figures"):
            report.check_pages(tmp_path)
        (tmp_path / path).write_text(f"before\n<!-- {name}:begin -->\nold\n<!-- {name}:end -->\nafter\n")
    for _ in range(2):
        report.publish([case("http-64"), case("other")], figures(http_64=[2e3], other=[1.0]), "this", FACTS, tmp_path)
    page, readme = [(tmp_path / path).read_text() for path in report.PAGES]
    for text in (page, readme):
        assert text.startswith("before\n<!--")
        assert text.endswith("-->\nafter\n")
        assert "old" not in text
        assert text.count("| title of http-64 | 2,000 tickets/s |") == 1
        assert "2026-11-28 10:00 UTC" in text
    assert "title of other" in page
    assert "title of other" not in readme
