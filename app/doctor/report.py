"""`ticketd doctor`: checks every ticket database and prints what is wrong and how to fix it, one finding per line.

It draws no ticket and changes nothing. The checks are in `findings`.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from app.databases import engines
from app.databases.inspection import Inspection, Inspector, NotLookedAt
from app.doctor.findings import Case, findings
from app.settings import Settings


def make_inspectors(settings: Settings) -> list[Inspector]:
    """One for each ticket database, in offset order."""
    return [
        engines.make_inspector(address, offset, settings.presumed_increment, settings.database_timeout)
        for offset, address in enumerate(settings.addresses, start=1)
    ]


async def inspect(inspectors: Iterable[Inspector]) -> list[Inspection]:
    """Inspect all of them in parallel: first everything except the positions, then the positions."""
    inspectors = list(inspectors)
    await asyncio.gather(*(inspector.inspect() for inspector in inspectors))
    await asyncio.gather(*(inspector.read_positions() for inspector in inspectors))
    await asyncio.gather(*(inspector.close() for inspector in inspectors))
    return [inspector.inspection for inspector in inspectors]


def expect_recorded_increment(inspections: Iterable[Inspection]) -> None:
    """Expect the increment that the ring records, where one is recorded."""
    recorded = [found.record for found in inspections if found.record is not None]
    if recorded:
        increment = max(recorded, key=lambda record: record.number).increment
        for found in inspections:
            found.increment = increment


def lines(inspections: list[Inspection], settings: Settings) -> Iterator[tuple[bool, str]]:
    """The lines of the report; True with the line of a database that has no finding."""
    for found in inspections:
        wrong = list(findings(Case(found, inspections, settings.database_timeout, settings.increment)))
        for finding in wrong:
            yield False, f"{found.name}: {finding.wrong}. To fix it: {finding.fix}"
        if not wrong:
            yield True, f"{found.name}: {found.note or _summary(found)}"


def notes(inspections: Sequence[Inspection]) -> Iterator[str]:
    """What the operator should know and nothing has to be done about: one line each."""
    if len(inspections) == 1:
        yield (
            "there is only one ticket database: nothing takes over when it fails, and nothing keeps its "
            "high-water marks in case it is restored from a backup"
        )
    for found in inspections:
        if found.unverified:
            yield f"{found.name}: {found.unverified}"
    unanswered: dict[NotLookedAt, list[str]] = {}
    for found in inspections:
        if found.not_looked_at is not None:
            unanswered.setdefault(found.not_looked_at, []).append(found.name)
    for what, names in unanswered.items():
        yield (
            f"{', '.join(names)}: could not look {what.question}: the user lacks the privilege {what.privilege}; "
            "grant it, or run this with a user that has it"
        )


def _summary(found: Inspection) -> str:
    tls = ", TLS" if found.tls else ""
    return f"{found.product}, offset {found.offset} of {found.increment}{tls}, {len(found.tables)} sequences"


def examine(settings: Settings) -> tuple[list[str], bool]:
    """The lines to print, and whether nothing is wrong."""
    inspections = asyncio.run(inspect(make_inspectors(settings)))
    if settings.increment is None:
        expect_recorded_increment(inspections)
    said = list(lines(inspections, settings))
    printed = [f"{'ok' if well else 'wrong'}: {text}" for well, text in said]
    printed += [f"note: {note}" for note in notes(inspections)]
    return printed, all(well for well, _ in said)
