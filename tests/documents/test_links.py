"""Every link in the repository's Markdown leads to a file that is there, and every anchor to a heading."""

import re
from pathlib import PurePosixPath

import pytest

from tests.documents import pages
from tests.documents.pages import REPOSITORY

OUTSIDE = re.compile(r"(?:https?|mailto):")
NAMED = re.compile(r"(?<![\w/.@-])(?:docs|deploy|mysql_init|client|app|tests|bench)/[\w@./-]*\w")
"""A path of the repository in a text."""
MADE_LATER = {"deploy/secrets/tickets_2_database_password", "app/kinds/NAME.py"}
"""What the reader of a page makes."""
OF_READERS = "docs/recipes/", "CHANGELOG.md", "client/CHANGELOG.md"
"""Pages that name files of the reader's own program, or of other releases."""
PLACES = ("app", "deploy", "client/ticketd_client", "Makefile", "docker-compose.yml", "Dockerfile", ".ci", "mysql_init")
"""Where programs and their comments name pages."""
PICTURES = {".png", ".svg", ".pyc"}


def target(page: str, link: str) -> tuple[str, str]:
    """The file, by its path in the repository, and the anchor that a link of this page leads to."""
    path, _, anchor = link.partition("#")
    if not path:
        return page, anchor
    parts: list[str] = []
    for part in (PurePosixPath(page).parent / path).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts), anchor


@pytest.mark.parametrize("page", pages.documents())
def test_every_link_leads_somewhere(page: str) -> None:
    wrong = []
    for link in pages.links(page):
        if OUTSIDE.match(link):
            continue
        file, anchor = target(page, link)
        if not (REPOSITORY / file).is_file():
            wrong.append(f"{link}: there is no {file}")
        elif anchor and anchor not in pages.anchors(file):
            wrong.append(f"{link}: {file} has no heading for it")
    assert not wrong


@pytest.mark.parametrize("page", pages.documents())
def test_the_headings_of_a_page_differ(page: str) -> None:
    titles = re.findall(r"^#{2,6} +(.*)$", pages.prose(page), re.MULTILINE)
    repeated = {title for title in titles if titles.count(title) > 1}
    assert page.endswith("CHANGELOG.md") or not repeated


@pytest.mark.parametrize("page", pages.documents())
def test_the_files_that_a_page_names_are_there(page: str) -> None:
    named = set(NAMED.findall(pages.text_of(page))) - MADE_LATER
    if not page.startswith(OF_READERS):
        places = REPOSITORY, (REPOSITORY / page).parent
        assert not [name for name in sorted(named) if not any((place / name).exists() for place in places)]


def test_the_pages_that_programs_and_deployments_name_are_there() -> None:
    files = [
        each
        for place in PLACES
        for each in ([REPOSITORY / place] if (REPOSITORY / place).is_file() else (REPOSITORY / place).rglob("*"))
        if each.is_file() and each.suffix not in PICTURES and "__pycache__" not in each.parts
    ]
    named = {
        (each.relative_to(REPOSITORY).as_posix(), name)
        for each in files
        for name in re.findall(r"(?:docs|deploy)/[\w/.-]*\.md(?:#[\w-]+)?", each.read_text(encoding="utf-8"))
    }
    assert len(named) > 8
    for file, name in sorted(named):
        page, _, anchor = name.partition("#")
        assert (REPOSITORY / page).is_file(), f"{file} names {page}"
        assert not anchor or anchor in pages.anchors(page), f"{file} names {name}"
