"""A run that is published: the page and the README have its figures, and no others."""

import json
import re
import shutil
from pathlib import Path

import pytest

from bench import publication, report
from bench.cases import CASES
from bench.claims import judge
from bench.memory import MILLIONS, Reading
from bench.model import Sample
from bench.run_facts import Facts
from bench.summary import Row
from docs.generator.blocks import NoBlock

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A folder with the pages of this repository, and without results."""
    for page in (publication.PAGE, publication.README):
        (tmp_path / page).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / page, tmp_path / page)
    publication.results(tmp_path).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def data() -> report.Data:
    """A whole run. Case number n, from 1, has n thousand tickets a second, give or take 1 %."""
    rows = {}
    for position, case in enumerate(CASES, 1):
        rates = [1000.0 * position * (1 + wobble / 100) for wobble in (-1, -0.5, 0, 0.5, 1)]
        samples = {
            number: Sample(rate, 1.25, 3.5, {"oddities": 1}, {"server": 0.5}) for number, rate in enumerate(rates, 1)
        }
        rows[case.name] = Row(case, samples)
    readings = [Reading(f"after {number} million", 70.0) for number in range(MILLIONS + 1)]
    facts = Facts(
        engine="MySQL 9.7.4",
        command="python -m bench",
        date="2026-11-24 10:00 UTC",
        rounds=5,
        seconds=4,
        hardware={"cores": "2", "processor": "a processor"},
        versions={"ticket server": "9.8.7", "Python": "3.11"},
        busy="",
    )
    return report.as_data(facts, rows, judge(rows, readings, 1_000_000), readings, [])


def rate_of(name: str) -> str:
    """The median of a case in `data`, as it is written."""
    return f"{1000 * (1 + [case.name for case in CASES].index(name)):,}"


def test_the_page_has_every_case_and_every_threshold(repository: Path, data: report.Data) -> None:
    publication.publish(data, "<svg/>", repository)
    text = (repository / publication.PAGE).read_text(encoding="utf-8")
    for case in CASES:
        assert f"| {case.title} | {rate_of(case.name)} |" in text
    for claim in data["claims"]:
        assert f"| {claim['title']} | {claim['measured']} | {claim['asked']} | {claim['verdict']} |" in text
    for words in ("Release 9.8.7", "2026-11-24 10:00 UTC", "MySQL 9.7.4", "2 cores (a processor)", "| Python | 3.11 |"):
        assert words in text
    assert f"]({publication.PICTURE.name})" in text
    assert (repository / publication.PICTURE).read_text(encoding="utf-8") == "<svg/>"
    assert "## What to distrust" in text


def test_the_readme_quotes_four_figures(repository: Path, data: report.Data) -> None:
    publication.publish(data, "<svg/>", repository)
    text = (repository / publication.README).read_text(encoding="utf-8")
    block = text.partition("<!-- figures:begin -->")[2].partition("<!-- figures:end -->")[0]
    assert re.findall(r"\| ([\d,]+) \| 1\.25 ms \|", block) == [rate_of(name) for name, _ in publication.QUOTED]
    assert len(publication.QUOTED) == 4
    assert "Release 9.8.7" in block
    assert f"answered {rate_of(publication.BESIDE)} `INCR` a second" in block


def test_the_pages_can_be_made_again_from_the_published_file(repository: Path, data: report.Data) -> None:
    publication.publish(data, "<svg/>", repository)
    for path, text in publication.pages(repository).items():
        assert (repository / path).read_text(encoding="utf-8") == text


def test_a_figure_that_was_edited_by_hand_is_not_the_page_any_more(repository: Path, data: report.Data) -> None:
    publication.publish(data, "<svg/>", repository)
    page = repository / publication.PAGE
    page.write_text(page.read_text(encoding="utf-8").replace(rate_of("server-64"), "123,456"), encoding="utf-8")
    assert publication.pages(repository)[publication.PAGE] != page.read_text(encoding="utf-8")


def test_without_a_published_run_the_pages_say_so(repository: Path) -> None:
    for text in publication.pages(repository).values():
        assert "No run of this release has been published yet" in text


def test_a_page_without_the_place_for_its_figures_is_an_error(repository: Path) -> None:
    (repository / publication.README).write_text("no block\n", encoding="utf-8")
    with pytest.raises(NoBlock):
        publication.pages(repository)


def test_a_run_that_cannot_be_trusted_says_why_on_its_own_page(data: report.Data) -> None:
    text = report.whole_report(json.loads(report.as_json({**data, "doubts": ["the machine was busy"]})), "picture.svg")
    assert "Do not trust these figures:\n\n- the machine was busy\n" in text
