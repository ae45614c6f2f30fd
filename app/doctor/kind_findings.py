"""The doctor's checks on sequences of other kinds than `ticket`, as each ticket database records them."""

from collections.abc import Iterator

from app.doctor.case import Case, Finding
from app.kinds.notation import time_text
from app.kinds.table import KINDS
from app.tickets.sequences.definitions import in_words, of_release

ENDS_SOON_MS = 90 * 86_400_000


def definitions_that_differ(case: Case) -> Iterator[Finding]:
    """A sequence is the same everywhere. A server writes what is missing, and serves no contradiction."""
    here = case.database.definitions
    for name in sorted({name for other in case.others for name in other.definitions} | here.keys()):
        others = [other for other in case.everyone if name in other.definitions and other is not case.database]
        if name in here:
            earlier = next((o for o in case.earlier if o.definitions.get(name, here[name]) != here[name]), None)
            if earlier is not None:
                yield Finding(
                    f"{name}: is of {in_words(here[name])} here and of {in_words(earlier.definitions[name])} on "
                    f"{earlier.name}: servers serve that one, and ids of both may have been given",
                    "use another sequence in place of the one recorded here; then delete its row from _definitions "
                    "and _kinds of this database",
                )
        else:
            yield Finding(
                f"{name}: is not recorded here, but {others[0].name} records it as "
                f"{in_words(others[0].definitions[name])}",
                "start a ticket server while both are up: it records it here",
            )


def definitions_and_tables(case: Case) -> Iterator[Finding]:
    """A sequence of another kind than `ticket` has no table of its name."""
    for name in sorted(case.database.tables.keys() & {name for each in case.everyone for name in each.definitions}):
        yield Finding(
            f"{name}: has a table of plain tickets, but is recorded as a sequence of another kind; servers of release "
            "0.2.0 refuse it, and ids of both may have been given",
            "end the server of an older release that draws from the table, use another sequence for its tickets, and "
            "drop the table",
        )


def definitions_unknown(case: Case) -> Iterator[Finding]:
    for name, definition in sorted(case.database.definitions.items()):
        kind = KINDS.get(definition.kind)
        if kind is None or not kind.holds(definition.parameters):
            yield Finding(
                f"{name}: is of {in_words(definition)}, which this version of ticketd does not know",
                "use the newer ticketd that made it",
            )


def kind_ends_soon(case: Case) -> Iterator[Finding]:
    """Said once, of the first database that records it."""
    said = {name for other in case.earlier for name in other.definitions}
    for name, definition in sorted(case.database.definitions.items()):
        kind = KINDS.get(definition.kind)
        if name in said or kind is None or not kind.holds(definition.parameters):
            continue
        ends_at = kind.ends_at(definition.parameters)
        if ends_at is not None and ends_at - case.now_ms < ENDS_SOON_MS:
            word = "have ended" if ends_at <= case.now_ms else "end"
            yield Finding(
                f"{name}: its ids {word} at {time_text(ends_at)}: it is of {in_words(definition)}",
                "use another sequence for new objects, with a later epoch or of another kind",
            )


def older_servers(case: Case) -> Iterator[Finding]:
    """A server that does not know a kind takes the sequence's name for free."""
    for server in case.database.servers:
        unknown = sorted({d.kind for d in case.database.definitions.values()} - set(server.kinds))
        if unknown:
            yield Finding(
                f"is served by a ticket server {of_release(server)}, which does not know sequences of kind "
                f"{', '.join(unknown)}",
                "upgrade that server, or stop it",
            )
