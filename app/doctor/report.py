"""`ticketd doctor`: checks every ticket database and prints what is wrong and how to fix it, one finding per line.

It draws no ticket and changes nothing. The checks are in `findings`.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from app.common.sequences import is_inner_name
from app.databases import engines
from app.databases.inspection import Inspection, Inspector, NotLookedAt
from app.doctor.case import Case
from app.doctor.findings import findings
from app.settings import Settings
from app.tickets.agreement.record import former_setting
from app.tickets.sequences.definitions import in_words, of_release

_FOLDS = (
    "folds table names to lower case ({setting} is not 0): every sequence's name is given and answered in lower case"
)
LISTED = 20
"""How many sequences of other kinds are named."""


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


async def _inspect_all(settings: Settings) -> list[Inspection]:
    """Make the inspectors within the event loop: some drivers ask for it in order to make a connection."""
    return await inspect(make_inspectors(settings))


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
        case = Case(found, inspections, settings.database_timeout, settings.increment, time.time_ns() // 1_000_000)
        wrong = list(findings(case))
        for finding in wrong:
            yield False, f"{found.name}: {finding.wrong}. To fix it: {finding.fix}"
        if not wrong:
            yield True, f"{found.name}: {found.note or _summary(found)}"


def notes(inspections: Sequence[Inspection], increment: int | None = None) -> Iterator[str]:
    """What the operator should know and nothing has to be done about: one line each. `increment`: TICKETS_INCREMENT,
    None where it is unset."""
    if len(inspections) == 1:
        yield (
            "there is only one ticket database: nothing takes over when it fails, and nothing keeps its "
            "high-water marks in case it is restored from a backup"
        )
    for found in inspections:
        if found.unverified:
            yield f"{found.name}: {found.unverified}"
    for found in inspections:
        for remark in found.remarks:
            yield f"{found.name}: {remark}"
        if found.record is not None and (note := former_setting(found.record, increment)):
            yield f"{found.name}: {note}"
    yield from _alike(
        {found.name: _FOLDS.format(setting=found.folded_by) if found.folded_by else "" for found in inspections}
    )
    yield from _alike({found.name: _sequences_of_kinds(found) for found in inspections})
    yield from _alike({found.name: _served_by(found) for found in inspections})
    unanswered: dict[NotLookedAt, list[str]] = {}
    for found in inspections:
        for what in found.not_looked_at:
            unanswered.setdefault(what, []).append(found.name)
    for what, names in unanswered.items():
        yield (
            f"{', '.join(names)}: could not look {what.question}: the user lacks the privilege {what.privilege}; "
            "grant it, or run this with a user that has it"
        )


def _alike(said: Mapping[str, str]) -> Iterator[str]:
    """One line for all databases of which the same is said; none where nothing is."""
    names: dict[str, list[str]] = {}
    for name, text in said.items():
        names.setdefault(text, []).append(name)
    for text, those in names.items():
        if text:
            yield f"{', '.join(those)}: {text}"


def _sequences_of_kinds(found: Inspection) -> str:
    """The definitions that the database records, in words."""
    if not found.definitions:
        return ""
    named = [f"{name} ({in_words(definition)})" for name, definition in sorted(found.definitions.items())]
    more = f" and {len(named) - LISTED:,} more" if len(named) > LISTED else ""
    return f"records sequences of other kinds: {'; '.join(named[:LISTED])}{more}"


def _served_by(found: Inspection) -> str:
    """Which ticket servers have probed it lately, in words."""
    releases = Counter(of_release(server) for server in found.servers)
    return (
        "is served by "
        + ", ".join(
            f"{'a ticket server' if count == 1 else f'{count} ticket servers'} {release}"
            for release, count in sorted(releases.items())
        )
        if releases
        else ""
    )


def _summary(found: Inspection) -> str:
    tls = ", TLS" if found.tls else ""
    count = sum(not is_inner_name(name) for name in found.tables) + len(found.definitions)
    return f"{found.product}, offset {found.offset} of {found.increment}{tls}, {count} sequences"


def examine(settings: Settings) -> tuple[list[str], bool]:
    """The lines to print, and whether nothing is wrong."""
    inspections = asyncio.run(_inspect_all(settings))
    if settings.increment is None:
        expect_recorded_increment(inspections)
    said = list(lines(inspections, settings))
    printed = [f"{'ok' if well else 'wrong'}: {text}" for well, text in said]
    if settings.embedded:
        printed.append(
            f"note: these are the two embedded ticket databases, in the folder {settings.folder}; "
            "TICKETS_DATABASES names others"
        )
    printed += [f"note: {note}" for note in notes(inspections, settings.increment)]
    return printed, all(well for well, _ in said)
