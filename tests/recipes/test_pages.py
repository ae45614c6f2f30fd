"""The pages of docs/recipes are complete: each is listed, its code is run, and it says what crashes and retries do."""

import re

import pytest

from tests.harness.ticketd import REPOSITORY
from tests.recipes import languages, pages
from tests.recipes.languages import HEAVY_LANGUAGES, LANGUAGES

pytestmark = pytest.mark.any_engine

RECIPES = sorted(path.name for path in pages.PAGES.glob("*.md") if path.name != "index.md")
RUN = {language.page for language in [*LANGUAGES.values(), *HEAVY_LANGUAGES.values()]}
WITH_COMMANDS = "plain-sql.md"
"""The page whose blocks are not all files; test_plain_sql.py runs them."""


def text(page: str) -> str:
    return (pages.PAGES / page).read_text(encoding="utf-8")


def test_the_index_lists_every_page_and_a_test_runs_it() -> None:
    assert RECIPES
    assert sorted(re.findall(r"^\| \[[^]]+\]\(([\w-]+\.md)\)", text("index.md"), re.MULTILINE)) == RECIPES
    assert sorted(RUN) == RECIPES


@pytest.mark.parametrize("page", RECIPES)
def test_every_block_is_a_file_that_is_run_or_a_command_that_is(page: str) -> None:
    assert pages.files(page)
    assert len(pages.files(page)) + len(pages.commands(page)) == text(page).count("```") / 2
    assert bool(pages.commands(page)) == (page == WITH_COMMANDS)


@pytest.mark.parametrize("page", RECIPES)
def test_every_page_says_what_crashes_and_retries_do(page: str) -> None:
    after = text(page).partition("\n## Crashes and retries\n")[2].partition("\n## ")[0]
    assert "gap" in after
    assert "never gives a duplicate" in " ".join(after.split())
    assert text(page).partition("\n## Tested with\n")[2].strip()


@pytest.mark.parametrize("page", ["index.md", *RECIPES])
def test_what_a_page_links_to_is_there(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#([\w-]+))?\)", text(page))
    assert links
    for path, heading in links:
        target = pages.PAGES / path
        assert target.is_file(), f"{page} links to {path}"
        headings = re.findall(r"^#+ (.*)", target.read_text(encoding="utf-8"), re.MULTILINE)
        assert not heading or heading in [each.lower().replace(" ", "-") for each in headings]


def test_no_driver_is_left_over() -> None:
    used = {name for each in [*LANGUAGES.values(), *HEAVY_LANGUAGES.values()] for name in each.drivers}
    assert used == {path.name for path in languages.DRIVERS.iterdir()}


def test_what_the_recipes_need_is_installed_by_make() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    for name, language in {**LANGUAGES, **HEAVY_LANGUAGES}.items():
        for need, package in language.needs.items():
            if need not in ("bash", str(languages.PRISMA_MODULES)):
                assert re.search(rf"(?<!\S){re.escape(need)}:{re.escape(package)}(?!\S)", makefile), f"{name}: {need}"
