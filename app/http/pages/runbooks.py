"""Which page of docs/operations says what to do about a warning, or about a database that is not up."""

import re

TITLES = {  # of the pages, by the names of their files
    "add-a-ticket-database": "Add a ticket database, or take one away",
    "back-up-and-restore": "Back a ticket database up, and restore it",
    "databases": "Databases on machines of their own",
    "index": "Operations",
    "monitoring": "Monitoring and alerts",
    "replace-a-database": "Replace a ticket database",
    "sequence-at-its-end": "A 32-bit sequence at its end",
    "upgrade": "Upgrade the ticket servers",
}
PAGES = (  # patterns of reasons, each with its page; the first that fits counts
    (r"ticketd grow|^the ring is being changed|^its offset is above|^the recorded increment", "add-a-ticket-database"),
    (r"of its ids are used up|^exhausted:|^its ids end at |^its columns differ", "sequence-at-its-end"),
    (r"upgrade the ticket server$|which this release cannot serve$", "upgrade"),
    (r"^its high-water marks are not compared|^its ring record is damaged", "back-up-and-restore"),
    (
        r"^unprotected: |same data as|is taken into the ring|^waits until this data|^holds other data"
        r"|another ring|^was drawn at offset|^the ring has a database at offset",
        "replace-a-database",
    ),
    (r"^this server's clock|^(no )?(worker|instance) number", "monitoring"),
    (r"^[a-z]+(_[a-z]+)+\b|^fsync|ALTER TABLE|^its sequences could not be|^sequences could not be made", "databases"),
)
ANY_OTHER = "index"


def runbook_of(reason: str) -> tuple[str, str]:
    """Return title and file of the page for a reason as /healthz gives it; of the overview where it has no own page."""
    page = next((page for pattern, page in PAGES if re.search(pattern, reason)), ANY_OTHER)
    return TITLES[page], f"docs/operations/{page}.md"
