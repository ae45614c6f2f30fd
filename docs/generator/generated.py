"""Every generated page, and the text that it should have."""

from pathlib import Path

from bench import capacity_page, publication
from docs.generator import settings_page
from tests.long import page as evidence

ROOT = Path(__file__).resolve().parents[2]


def pages(root: Path = ROOT) -> dict[Path, str]:
    """The path of each page below `root`, and its whole text as the settings and the results in the repository have it.

    Raises NoBlock where a page has no place for its figures.
    """
    return {
        Path("docs/settings.md"): settings_page.page(),
        **publication.pages(root),
        capacity_page.PAGE: capacity_page.page(root),
        evidence.PAGE: evidence.page(root),
    }
