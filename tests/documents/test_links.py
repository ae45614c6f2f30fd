"""Links between the pages, and from what a server says to its runbook."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.http.pages.runbooks import ANY_OTHER, TITLES, runbook_of
from tests.documents.pages import PAGES, ROOT, prose, read, rows


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings, as code hosts and MkDocs make them."""
    heads = re.findall(r"^#+ (.+)$", prose(read(page)), re.MULTILINE)
    words = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head).lower() for head in heads)
    return {re.sub(r"[^\w\- ]", "", each).strip().replace(" ", "-") for each in words}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    for path, anchor in re.findall(r"\]\(([^)\s#]*)#?([^)\s]*)\)", prose(read(page))):
        if not path.startswith(("http", "mailto:")):
            target = (ROOT / page).parent / path if path else ROOT / page
            assert target.exists(), path
            assert not anchor or anchor in anchors(str(target)), f"{path}#{anchor}"


def test_the_pages_become_a_site_and_every_page_can_be_reached(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "site" / "operations" / "warnings.html").exists()


def test_the_tests_that_tests_readme_names_exist() -> None:
    names = re.findall(r"`([\w/]+(?:\.py|/))[^`]*`", prose(read("tests/README.md")))
    assert len(names) > 20
    assert [name for name in names if not ((ROOT / "tests" / name).exists() or (ROOT / name).exists())] == []


def test_the_page_of_reasons_names_the_runbook_that_the_server_names_and_it_has_that_title() -> None:
    for page, title in TITLES.items():
        assert read(f"docs/operations/{page}.md").startswith(f"# {title}\n")
    for reasons, *_, runbook in (cells for cells in rows(read("docs/operations/warnings.md")) if len(cells) == 3):
        for reason in re.findall(r"`([^`]+)`", reasons):
            title, file = runbook_of(reason.replace("…", "3"))
            page = file.removeprefix("docs/operations/")
            assert page == f"{ANY_OTHER}.md" or f"[{title}]({page})" == runbook, reason
