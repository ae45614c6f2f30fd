"""`ticketd doctor` for the tests: what it says, sorted; and settings of a database that are wrong for a while."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.harness.commands import Ran, forked_ticketd
from tests.harness.mysqld import TicketMySQL
from tests.harness.schema import PASSWORD
from tests.harness.ticketd import TicketServer


def server_over(databases: str | None, data_dir: Path | None = None) -> TicketServer:
    """A ticket server with long deadlines, because this machine may be slow."""
    patience = {"TICKETS_DATABASE_TIMEOUT": 10, "TICKETS_REQUEST_TIMEOUT": 14}
    return TicketServer(databases, data_dir=data_dir, settings=patience)


def doctor(databases: str | None, **settings: object) -> Ran:
    """The check-up of these databases. This machine may be slow, and that is another test's business."""
    given: dict[str, object] = {"TICKETS_DATABASE_TIMEOUT": 20}
    if databases is not None:
        given["TICKETS_DATABASES"] = databases
    ran = forked_ticketd(
        "doctor", settings=given | {f"TICKETS_{name.upper()}": value for name, value in settings.items()}
    )
    assert PASSWORD not in ran.output + ran.errors
    return ran


def wrong(ran: Ran) -> list[str]:
    """The lines about what is wrong; the exit status has to fit."""
    assert ran.errors == ""
    found = [line.removeprefix("wrong: ") for line in ran.lines if line.startswith("wrong: ")]
    assert ran.status == (1 if found else 0), ran
    return found


def the_one_line(databases: str, **settings: object) -> str:
    """The line about the one thing that is wrong."""
    (line,) = wrong(doctor(databases, **settings))
    return line


def notes(ran: Ran) -> list[str]:
    """The lines about what nothing has to be done about."""
    return [line.removeprefix("note: ") for line in ran.lines if line.startswith("note: ")]


def mended(line: str) -> str:
    """The SQL statement that the line recommends."""
    return line.partition("To fix it: ")[2]


@contextlib.contextmanager
def set_global(database: TicketMySQL, variable: str, value: str) -> Iterator[None]:
    """A global variable of one database, put back afterwards."""
    ((before,),) = database.execute(f"SELECT @@GLOBAL.{variable}")
    database.execute(f"SET GLOBAL {variable} = {value}")
    try:
        yield
    finally:
        database.execute(f"SET GLOBAL {variable} = %s", [before])
