"""`ticketd doctor` says what of the ticket databases would break a guarantee or slow the server down.

It draws nothing, and changes nothing in the databases.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from app.databases.address import Address
from app.databases.engines import embedded_files, examine
from app.databases.examination import Severity
from app.doctor import comparison
from app.doctor.comparison import Case, Examined
from app.errors import DatabaseError, DatabaseRefused
from app.settings import Settings

DEADLINE = 20.0
"""Seconds for each database."""
PATIENCE = 5.0
"""Seconds that the doctor waits for a lock."""
AGAIN = 3.5
"""Seconds after which it looks again at marks that differ: by then what was under way has ended, and is level."""
CHECKS = comparison.databases, comparison.ring, comparison.sequences, comparison.marks
_STYLES = {"ok": "green", Severity.WRONG: "bold red", Severity.UNKNOWN: "yellow", Severity.NOTE: "cyan"}


def run(settings: Settings) -> int:
    """Examine all ticket databases, and print a line for each finding; return the exit status: 1 if any is wrong."""
    lines = list(_lines(asyncio.run(_examine(settings)), settings))
    console = Console(highlight=False, soft_wrap=True)
    for word, text in lines:
        shown = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
        console.print(Text.assemble((word, _STYLES[word]), f": {shown}"))
    return int(any(word == Severity.WRONG for word, _ in lines))


async def _examine(settings: Settings) -> Case:
    """Examine the databases, twice where the first time leaves marks in doubt."""
    addresses = settings.databases or embedded_files(settings.data_dir)

    async def examine_all() -> list[Examined]:
        return await asyncio.gather(*map(_examine_one, range(1, len(addresses) + 1), addresses))

    first = await examine_all()
    case = Case(first, first, settings.database_timeout, settings.increment, time.time_ns() // 1_000_000)
    if any(comparison.marks(case)):
        await asyncio.sleep(AGAIN)
        case = replace(case, databases=await examine_all())
    return case


async def _examine_one(offset: int, address: Address) -> Examined:
    try:
        async with asyncio.timeout(DEADLINE):
            return Examined(offset, address.name, await examine(address, PATIENCE))
    except TimeoutError:
        return Examined(offset, address.name, None, f"did not answer within {DEADLINE:g} s")
    except DatabaseError as error:
        return Examined(offset, address.name, None, str(error), isinstance(error, DatabaseRefused))


def _lines(case: Case, settings: Settings) -> Iterator[tuple[str, str]]:
    """Return the lines: those of each database in the order of the list, then those of the ring."""
    said = [each for check in CHECKS for each in check(case)]
    for each in case.databases:
        findings = [finding for offset, finding in said if offset == each.offset]
        if each.found is not None and all(finding.severity is not Severity.WRONG for finding in findings):
            place = f"offset {each.offset} of {case.expected_increment}"
            yield "ok", f"{each.name}: {each.found.version}, {place}, {len(each.found.counters)} sequences"
        yield from ((severity, f"{each.name}: {subject}: {text}") for severity, subject, text in findings)
    yield from ((each.severity, f"{each.subject}: {each.text}") for offset, each in said if offset == comparison.RING)
    if settings.is_embedded:
        folder = settings.data_dir.absolute()
        yield Severity.NOTE, f"these are the two embedded ticket databases, in the folder {folder}"
