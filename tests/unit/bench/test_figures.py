"""A benchmark's figures become ratios, doubts, tables, pages and a picture."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import report
from bench.case import ADDED, RATE, SIZE, TAIL, Bound, Case, Sample
from bench.cases import CASES
from bench.figures import Figures, doubts

FACTS = {"date": "2026-11-28 10:00 UTC", "machine": "2 cores", "databases": "two mysql 9.7", "data on": "ext4"}
STEADY = [100.0, 101.0, 99.0, 102.0, 98.0]
WIDE = [100.0, 140.0, 70.0, 135.0, 72.0]


def case(name: str, *bounds: Bound) -> Case:
    """A case that nothing measures."""
    return Case(name, f"title of {name}", lambda _stage, _side, _seconds: Sample(0), bounds)


def figures(**rounds: list[Any]) -> Figures:
    """Figures of the side `this`: the rounds of each case."""
    return Figures(
        {
            (name, "this"): {
                number: each if isinstance(each, Sample) else Sample(each) for number, each in enumerate(samples)
            }
            for name, samples in rounds.items()
        }
    )


@pytest.mark.parametrize(
    ("measured", "other", "said"),
    [
        (figures(http=STEADY, disk=WIDE, nginx=[100.0, 101.0, 10.0, 102.0, 98.0]), {}, ""),
        (figures(http=STEADY), {"load": 1.0}, "the load average before was 1.0 on 2 cores"),
        (figures(http=STEADY), {"others": 0.2}, "other programs used 0.20 cores"),
        (figures(http=STEADY), {"calibration": [1.0, 1.0, 1.4, 1.4, 1.4]}, "the same loop"),
        (figures(http=STEADY), {"facts": {"data on": "tmpfs"}}, "no disk"),
        (figures(http=[100.0] * 4), {}, "a case had 4 rounds, fewer than 5"),
        (figures(http=WIDE, disk=WIDE, nginx=STEADY), {}, "more than 25% apart of http of this, disk of this"),
        (Figures(figures(http=STEADY).rounds, {("nginx", "this"): "it is not installed"}), {}, "it is not installed"),
        (Figures(), {}, "a case had 0 rounds"),
    ],
)
def test_each_reason_to_doubt_is_said_and_a_few_figures_apart_are_none(
    measured: Figures, other: dict[str, Any], said: str
) -> None:
    quiet: dict[str, Any] = {"load": 0.2, "cores": 2, "others": 0.05, "calibration": STEADY, "facts": FACTS}
    found = doubts(measured, **(quiet | other))
    assert len(found) == bool(said)
    assert said in "".join(found)


def test_the_table_says_which_bounds_are_met_by_the_median_of_what_each_round_gave() -> None:
    cases = [
        case("ours", Bound(1.5, "theirs"), Bound(0.15, "theirs", ADDED), Bound(3, measure=TAIL)),
        case("theirs"),
        case("slow", Bound(1_000_000, measure=RATE)),
        case("small", Bound(60, measure=SIZE)),
        case("absent", Bound(2, "theirs")),
    ]
    ours = [Sample(1000, 0.5, 1), Sample(2000, 0.6, 2), Sample(9000, 0.7, 2.8), Sample(2, 9, 9)]
    theirs = [Sample(1000, 0.5, 0.6)] * 3
    table = report.beside(cases, figures(ours=ours, theirs=theirs, slow=[5.0], small=[64.0]), "this").splitlines()
    assert table[2:] == [
        "| title of ours | 1,500 tickets/s ± 100% | 0.65 ms | 2.40 ms "
        "| 2.00 × title of theirs: 1,000 tickets/s<br>p50 is 0.100 ms above title of theirs: 0.50 ms"
        "<br>p99 is 2.67 × p50 | at least 1.5<br>at most 0.15<br>at most 3 | met<br>met<br>met |",
        "| title of slow | 5.0 tickets/s ± 0% |  |  |  | at least 1,000,000 | **missed** |",
        "| title of small | 64.0 tickets/s ± 0% |  |  |  | at most 60 | **missed** |",
        "| title of absent | – tickets/s ± 0% |  |  | – | at least 2 | not measured |",
    ]
    two = Figures({("http", side): {0: Sample(300), 1: Sample(second)} for side, second in (("a", 300), ("b", 150))})
    compared = report.against([case("http"), case("absent")], two, ["a", "b"])
    assert "| title of http | 300 tickets/s | 225 tickets/s | 1.50 | 1.25 to 1.75 |" in compared
    assert "| title of absent | – tickets/s | – tickets/s | – | – |" in compared


def test_publishing_replaces_the_figures_and_nothing_else(tmp_path: Path) -> None:
    report.check_pages()  # those of this checkout have a place
    (tmp_path / "docs").mkdir()
    for path, name in report.PAGES.items():
        (tmp_path / path).write_text("no place\n")
        with pytest.raises(ValueError, match="no place for the figures"):
            report.check_pages(tmp_path)
        (tmp_path / path).write_text(f"before\n<!-- {name}:begin -->\nold\n<!-- {name}:end -->\nafter\n")
    measured = Figures({(each.name, "this"): {0: Sample(1 + number, 1, 2)} for number, each in enumerate(CASES)})
    for _ in range(2):
        report.publish(CASES, measured, "this", FACTS, tmp_path)
    page, readme = [(tmp_path / path).read_text() for path in report.PAGES]
    for text in (page, readme):
        assert text.startswith("before\n<!--")
        assert text.endswith("-->\nafter\n")
        assert "old" not in text
        assert "2026-11-28 10:00 UTC" in text
    # every case has its row, by itself or as what another one is compared with
    assert all(case.title in page for case in CASES)
    assert page.count("not measured") == 0
    assert readme.count("tickets/s |") == len(report.QUOTED) == 4
    picture = ElementTree.fromstring((tmp_path / report.PLOT).read_text())
    assert len(picture.findall("{*}rect")) == 1 + len(report.PLOTTED)


def test_what_nothing_measured_is_null_in_json() -> None:
    said = json.dumps(report.everything(figures(http=[Sample(2.0, 0.5)]), FACTS, []), allow_nan=False)
    assert json.loads(said)["rounds"] == {"http of this": [{"value": 2.0, "p50": 0.5, "p99": None}]}
