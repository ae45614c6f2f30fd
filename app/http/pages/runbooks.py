"""Which page of docs/operations says what to do about a warning."""

import re
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata

DISTRIBUTION = "ticket-server"
LABEL = "documentation"
"""The label of the documentation's address among the distribution's [project.urls]."""
TITLES = {
    "back-up-and-restore": "Back a ticket database up, and restore it",
    "connections-taken": "All client connections are taken",
    "databases": "Databases on machines of their own",
    "index": "Operations",
    "monitoring": "Monitoring and alerts",
    "replace-a-database": "Replace a ticket database",
    "sequence-at-its-end": "A 32-bit sequence at its end",
    "upgrade": "Upgrade the ticket servers",
}
"""The titles of the pages, by their files' names."""
PAGES = (
    (r"% of its ids are used up|^exhausted:|^its ids end at |^its columns differ", "sequence-at-its-end"),
    (r"client connections", "connections-taken"),
    (r"^a ticket server of |^no tickets are drawn ahead|^its own tables have version", "upgrade"),
    (r"^suspended: stands at ", "back-up-and-restore"),
    (r"^unprotected: |^cannot keep high-water marks", "replace-a-database"),
    (r"^[a-z]+(_[a-z]+)+\b", "databases"),
    (r"^this server's clock|^no worker number|^no instance number", "monitoring"),
)
"""Patterns of a warning's reason, each with its page. The first that fits counts. A reason that begins with a name in
snake case is about a setting of the database."""
ANY_OTHER = "index"


@dataclass(frozen=True, slots=True)
class Runbook:
    """A page of the documentation. `url`: None if the address of the documentation is not known."""

    title: str
    file: str
    url: str | None


def runbook_of(reason: str, base: str | None) -> Runbook:
    """The runbook for a warning with this reason. `base`: the address of the documentation, None if unknown."""
    page = next((page for pattern, page in PAGES if re.search(pattern, reason)), ANY_OTHER)
    url = None if base is None else f"{base.rstrip('/')}/operations/{page}.html"
    return Runbook(TITLES[page], f"docs/operations/{page}.md", url)


@cache
def documentation() -> str | None:
    """The address of the documentation in the metadata of the installed distribution, None if there is none."""
    try:
        urls = metadata(DISTRIBUTION).get_all("Project-URL") or []
    except PackageNotFoundError:
        return None
    return address_among(urls)


def address_among(urls: list[str]) -> str | None:
    """The address of the documentation among lines like `Documentation, https://…`."""
    for line in urls:
        label, _, url = line.partition(",")
        if label.strip().lower() == LABEL and url.strip().startswith(("https://", "http://")):
            return url.strip()
    return None
