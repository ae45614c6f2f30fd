"""`ticketd doctor` says what of the ticket databases would break a guarantee or slow the server down.

It draws nothing, and changes nothing in the databases. Each check compares the databases, without I/O, and yields
findings with the offset of the database that a finding is about, or `RING`.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from app.databases.address import Address
from app.databases.engines import embedded_files, examine
from app.databases.examination import Examination, Finding, Severity
from app.databases.record import State
from app.databases.session import Book, Counter, RingRow
from app.errors import DatabaseError, DatabaseRefused, NoAnswer
from app.kinds.notation import time_text
from app.kinds.table import KINDS
from app.operations.report import ENDS_SOON_MS, NEAR_END
from app.settings import Settings
from app.tickets.agreement import Agreement, Standing
from app.tickets.definitions import TICKET, Definition, seen_of, settle
from app.tickets.sight import NEVER, Entry

DEADLINE = 20.0
"""Seconds for each database."""
PATIENCE = 5.0
"""Seconds that the doctor waits for a lock."""
AGAIN = 3.5
"""Seconds after which it looks again at marks that differ: by then what was under way has ended, and is level."""
CLOCK_SECONDS = 0.5
"""How far a clock may certainly be apart from this machine's."""
NAMED = 3
"""How many sequences or marks a line names."""
RING = 0
"""In place of an offset: it is about all databases."""

_STYLES = {"ok": "green", Severity.WRONG: "bold red", Severity.UNKNOWN: "yellow", Severity.NOTE: "cyan"}

Said = Iterator[tuple[int, Finding]]
wrong, note = partial(Finding, Severity.WRONG), partial(Finding, Severity.NOTE)
"""Make a finding of a subject and a text: that something is wrong, or what is no fault."""


class Examined(NamedTuple):
    """One entry of the list of databases. found: the error where it could not be examined."""

    offset: int
    name: str
    found: Examination | DatabaseError

    @property
    def read(self) -> Examination | None:
        """What was found, if the database's tables could be read."""
        return self.found if isinstance(self.found, Examination) and not self.found.unread else None

    def entry(self) -> Entry:
        """Return what the decision about the ring needs. A database that no server has used yet has a body of its own.

        What only time can tell is taken for settled: how long the database has been in sight, and its record unchanged.
        """
        if self.read is None:
            error = DatabaseRefused(self.found.unread) if isinstance(self.found, Examination) else self.found
            return Entry(self.offset, self.name, error=error)
        row = self.read.ring or RingRow(f"new {self.offset}")
        return Entry(self.offset, self.name, row, steady=NEVER)


@dataclass(frozen=True)
class Case:
    """All databases, in the order of their offsets, examined once or twice.

    earlier, databases: as they were found first and last; the same where once was enough. timeout: of the database, in
    seconds. increment: TICKETS_INCREMENT, None where it is unset. now_ms: the time, in milliseconds since 1970.
    """

    earlier: Sequence[Examined]
    databases: Sequence[Examined]
    timeout: float
    increment: int | None
    now_ms: int

    @cached_property
    def agreement(self) -> Agreement:
        """The decision that every server makes on the ring, once it has looked at all databases for long enough."""
        entries = [each.entry() for each in self.databases]
        return Agreement(entries, self.increment, ("doctor", ""))

    @property
    def expected_increment(self) -> int:
        """The ring's increment: the recorded one, or the one that a new ring gets."""
        record = self.agreement.record or self.agreement.seen
        return record.increment if record is not None else self.increment or len(self.databases)


def databases(case: Case) -> Said:
    """Yield the findings of each database, and how settings, connection and clock differ from what they should be."""
    machines: dict[str, Examined] = {}
    for each in case.databases:
        found = each.found
        if isinstance(found, DatabaseError):
            continue
        yield from ((each.offset, finding) for finding in found.findings)
        if found.seconds > case.timeout:
            took = f"it took {found.seconds:.2f} s to connect, and servers give up after {case.timeout:g} s"
            yield each.offset, wrong("connection", f"{took}: raise TICKETS_DATABASE_TIMEOUT, or find out what is slow")
        expected = case.expected_increment, each.offset
        if found.numbering not in {None, expected} and each.offset <= expected[0]:
            settings = "auto_increment_increment={}, auto_increment_offset={}"
            text = f"it has {settings.format(*found.numbering)}, and here belong {settings.format(*expected)}"
            yield each.offset, wrong("settings", f"{text}: set them in its configuration, or restore the list's order")
        if (first := machines.setdefault(found.machine, each)) is not each:
            text = f"it is on the same server as {first.name}: both are lost, or go back, together"
            yield each.offset, wrong("server", text)
        doubt = (found.ended - found.began) / 2
        ahead = found.now - found.began - doubt
        if abs(ahead) - doubt > CLOCK_SECONDS:
            where = f"{abs(ahead):.2f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
            yield each.offset, wrong("clock", f"its clock is {where}: let NTP set both")
    if len(case.databases) == 1:
        text = "nothing takes over when it fails, and nothing keeps its high-water marks when it goes back"
        yield 1, note("list", f"it is the only ticket database: {text}")


def ring(case: Case) -> Said:
    """Yield what the ring's records say against the list and the settings."""
    for each in case.databases:
        standing, reason = case.agreement.verdicts[each.offset]
        if standing in {Standing.DOWN, Standing.QUARANTINED}:
            yield each.offset, wrong("ring" if each.read else "database", reason)
        elif standing is not Standing.IN:
            yield each.offset, note("ring", f"it is in none yet: {reason}" if standing is Standing.WAITS else reason)
    record = case.agreement.record
    for offset in record.offsets if record is not None else ():
        if offset > len(case.databases):
            yield RING, wrong("list", f"TICKETS_DATABASES lacks the database of offset {offset}, which is in use")
    if record is not None and record.state is State.CHANGING:
        yield RING, wrong("growth", "nobody draws until it ends: run `ticketd grow` again, or start a ticket server")


def sequences(case: Case) -> Said:
    """Yield the sequences that cannot be served, differ between databases, or come to their end."""
    read = {each.offset: each.read for each in case.databases if each.read}
    rows = {offset: found.notes.get(Book.DEFINITIONS, {}) for offset, found in read.items()}
    lacking: dict[int, list[str]] = {}
    for key in sorted({key for offset, found in read.items() for key in found.counters.keys() | rows[offset]}):
        found_by = {offset: found.counters.get(key) for offset, found in read.items()}
        views = {offset: seen_of(key, found, rows[offset].get(key), 0.0) for offset, found in found_by.items()}
        counters = {offset: found for offset, found in found_by.items() if isinstance(found, Counter)}
        standing, reasons = settle(views)
        name = standing.name if standing is not None else key
        yield from ((offset, wrong(name, why)) for offset, why in reasons.items())
        for offset, counter in counters.items():
            yield from ((offset, wrong(name, warning)) for warning in counter.warnings)
        if standing is not None:
            yield from ((RING, wrong(name, why)) for why in _of_all(standing, list(counters.values()), case.now_ms))
        for offset, found in found_by.items():
            if counters and found is None and offset not in reasons:
                lacking.setdefault(offset, []).append(name)
    for offset, names in lacking.items():
        yield offset, note("sequences", f"it lacks {_listed(names)}, which others have: the ticket servers make them")


def _of_all(definition: Definition, counters: list[Counter], now_ms: int) -> Iterator[str]:
    """Yield what is wrong with a sequence on all databases."""
    ceilings = sorted({counter.ceiling for counter in counters})
    if len(ceilings) > 1:
        yield f"it ends at {ceilings[0]} here and at {ceilings[-1]} there: let all its columns be as wide"
    if not definition.is_known:
        yield f"it is of {definition}, which this release cannot serve: install a later one"
    elif definition.kind != TICKET:
        end = KINDS[definition.kind].ends_at(definition.parameters)
        if end is not None and end - now_ms < ENDS_SOON_MS:
            yield f"its ids end at {time_text(end)}: use another sequence, with a later epoch"
    elif counters and (position := max(counter.position for counter in counters)) > NEAR_END * ceilings[0]:
        used = f"{min(100 * position // ceilings[0], 100)} % of its ids are used up, {position} of {ceilings[0]}"
        yield f"{used}: widen its columns on every ticket database, or use another sequence"


def marks(case: Case) -> Said:
    """Yield which marks a database of the ring lacks, and which counters stand below the marks of what was issued."""
    inside = [
        (each.offset, before.read, each.read)
        for before, each in zip(case.earlier, case.databases, strict=True)
        if case.agreement.verdicts[each.offset].standing in {Standing.IN, Standing.LAGS}
        if before.read and before.read.ring and each.read and each.read.ring
    ]
    is_served = any(before.notes[Book.HEARTBEATS] != found.notes[Book.HEARTBEATS] for _, before, found in inside)
    for offset, _, found in inside:
        mine = found.notes[Book.MARKS]
        others = [before.notes[Book.MARKS] for other, before, _ in inside if other != offset]
        lacking = {
            name for rows in others for name, row in rows.items() if name not in mine or mine[name].high < row.high
        }
        if lacking:
            until = "until the ticket servers have copied them, no other database may go back"
            text = f"it lacks the newest high-water marks {_listed(sorted(lacking))}: {until}"
            yield offset, (wrong if is_served else note)("marks", text)
        for key, counter in found.counters.items():
            issued = max((rows[name].issued for rows in others if (name := f"{key}/{offset}") in rows), default=0)
            if isinstance(counter, Counter) and counter.position < min(issued, counter.ceiling):
                text = f"it stands at {counter.position}, though {issued} was issued: the ticket servers raise it"
                yield offset, note(counter.name, text)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


CHECKS = databases, ring, sequences, marks


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
    if any(marks(case)):
        await asyncio.sleep(AGAIN)
        case = replace(case, databases=await examine_all())
    return case


async def _examine_one(offset: int, address: Address) -> Examined:
    try:
        async with asyncio.timeout(DEADLINE):
            return Examined(offset, address.name, await examine(address, PATIENCE))
    except TimeoutError:
        return Examined(offset, address.name, NoAnswer(f"did not answer within {DEADLINE:g} s"))
    except DatabaseError as error:
        return Examined(offset, address.name, error)


def _lines(case: Case, settings: Settings) -> Iterator[tuple[str, str]]:
    """Return the lines: those of each database in the order of the list, then those of the ring."""
    said = [each for check in CHECKS for each in check(case)]
    for each in case.databases:
        findings = [finding for offset, finding in said if offset == each.offset]
        if isinstance(each.found, Examination) and all(finding.severity is not Severity.WRONG for finding in findings):
            place = f"offset {each.offset} of {case.expected_increment}"
            yield "ok", f"{each.name}: {each.found.version}, {place}, {len(each.found.counters)} sequences"
        yield from ((severity, f"{each.name}: {subject}: {text}") for severity, subject, text in findings)
    yield from ((each.severity, f"{each.subject}: {each.text}") for offset, each in said if offset == RING)
    if settings.is_embedded:
        folder = settings.data_dir.absolute()
        yield Severity.NOTE, f"these are the two embedded ticket databases, in the folder {folder}"
