"""Every generated page in the repository is what `make documents` would write from the settings and the results."""

import re
from pathlib import Path

import pytest

from app.setting_names import PREFIX
from app.settings import Settings
from bench import publication
from docs.generator.generated import ROOT, pages
from docs.generator.settings_page import GROUPS, page

PAGES = pages()
COMMIT = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b")


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_the_page_is_up_to_date(path: Path) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == PAGES[path], f"{path} is out of date: run `make documents`"


@pytest.mark.parametrize("path", [path for path in PAGES if path.parts[0] == "docs"], ids=str)
def test_no_page_names_a_commit(path: Path) -> None:
    assert COMMIT.findall(PAGES[path]) == []


def test_the_picture_is_of_the_published_run() -> None:
    picture, run = ROOT / publication.PICTURE, publication.published(ROOT)
    assert picture.exists() == (run is not None)
    assert run is None or f"{run['versions']['ticket server']}, {run['date']}" in picture.read_text(encoding="utf-8")


def test_the_settings_page_has_every_setting_once() -> None:
    headings = re.findall(rf"^### ({PREFIX}\w+)$", page(), re.MULTILINE)
    assert sorted(headings) == sorted(PREFIX + name.upper() for name in Settings.model_fields)
    assert len(next(iter(GROUPS.values()))) == 8


def test_the_settings_page_says_what_each_setting_is_read_by_and_how() -> None:
    sections = dict(re.findall(rf"^### ({PREFIX}\w+)\n(.*?)(?=^##|\Z)", page(), re.MULTILINE | re.DOTALL))
    for variable, text in sections.items():
        assert f"`{variable}_FILE`" in text
        for line in ("- Default: ", "- Accepts: ", "- Flag: `--", "- From a file: ", "- Read by: `ticketd serve`"):
            assert line in text, f"{variable} lacks {line}"
    assert "`--tokens-file FILE`" in sections["TICKETS_TOKENS"]
    assert "`--port VALUE`" in sections["TICKETS_PORT"]
    readers = {variable: text.partition("- Read by: ")[2] for variable, text in sections.items()}
    assert "`ticketd grow`" not in readers["TICKETS_INCREMENT"]
    assert "`ticketd grow`" in readers["TICKETS_DATABASES"]
