"""What of a PostgreSQL server's settings could lose a committed ticket."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.databases.inspection import Flaw

_RELOAD = "in postgresql.conf and reload it"


def flaws_of(settings: Mapping[str, Any]) -> Iterator[Flaw]:
    """The flaws of a session with these settings, as `sql.LOOK` gives them."""
    if settings["fsync"] == "off":
        yield Flaw("fsync=off loses tickets that were issued when the machine stops", f"set fsync = on {_RELOAD}")
    if settings["full_page_writes"] == "off":
        yield Flaw(
            "full_page_writes=off: a page that a power cut leaves half written cannot be repaired, and the tickets in "
            "it are lost",
            f"set full_page_writes = on {_RELOAD}",
        )
    if settings["synchronous"] == "off":
        yield Flaw(
            "synchronous_commit=off stays off in the ticket server's session: a crash loses tickets that were issued",
            "let this user set it, or set synchronous_commit = on for it",
        )


def warnings_of(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The same as /healthz shows it."""
    return tuple(flaw.wrong for flaw in flaws_of(settings))
