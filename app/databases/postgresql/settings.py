"""Settings of a PostgreSQL server, and changes to the ticket server's tables, that could lose a committed ticket."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.common.errors import TicketDatabaseSetWrong
from app.databases.inspection import Flaw
from app.databases.postgresql import sql
from app.databases.postgresql.errors import SET_UP

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


def check_table(row: Mapping[str, Any]) -> None:
    """Raise TicketDatabaseSetWrong where a table, as `sql.FOUND_TABLES` shows it, cannot be used."""
    name = row["name"]
    columns = [f"{column} {type_}" for column, type_ in sql.COLUMNS[name].items()]
    if row["kind"] != "r":
        raise TicketDatabaseSetWrong(f"has something else than a plain table under the name {name}", SET_UP)
    if not set(columns) <= set(row["columns"]):
        needs = ", ".join(columns)
        raise TicketDatabaseSetWrong(f"has a table {name} without the columns {needs}", f"move it away and {SET_UP}")
    if row["persistence"] != "p":
        raise TicketDatabaseSetWrong(f"has {name} UNLOGGED: a crash empties it", f"ALTER TABLE {name} SET LOGGED")
