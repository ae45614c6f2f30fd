"""mkdocs.yml: the site has every page of docs/, each in one place."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documents import pages
from tests.documents.pages import REPOSITORY


def configuration() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8"))
    return loaded


def listed(nav: Any) -> Iterator[str]:
    """The pages of a nav, in their order."""
    if isinstance(nav, str):
        yield f"docs/{nav}"
    for each in nav if isinstance(nav, list) else nav.values() if isinstance(nav, dict) else ():
        yield from listed(each)


def test_every_page_has_one_place_in_the_navigation() -> None:
    found = list(listed(configuration()["nav"]))
    assert sorted(found) == [page for page in pages.pages() if page.startswith("docs/")]


def test_every_page_can_be_reached_from_the_map() -> None:
    seen, waiting = set(), ["docs/index.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or not (REPOSITORY / page).is_file():
            continue
        seen.add(page)
        for link in pages.links(page):
            path = link.partition("#")[0]
            if path.endswith(".md") and ":" not in path:
                waiting.append((REPOSITORY / page).parent.joinpath(path).resolve().relative_to(REPOSITORY).as_posix())
    assert not [page for page in pages.pages() if page not in seen]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert (tmp_path / "site/operations/replace-a-database.html").is_file()
    text = (tmp_path / "site/index.html").read_text(encoding="utf-8")
    for outside in ("http://", "https://"):
        assert f'src="{outside}' not in text, "the site loads something from elsewhere"


@pytest.mark.parametrize("line", [190])
def test_the_readme_is_read_at_one_sitting(line: int) -> None:
    assert len(pages.text_of("README.md").splitlines()) <= line
