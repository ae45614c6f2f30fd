"""What `ticketd doctor` says of the databases together. No I/O.

Each check yields findings, with the offset of the database that a finding is about, or `RING`.
"""

from collections.abc import Iterator
from functools import partial

from app.databases.examination import Finding, Severity
from app.databases.record import State
from app.databases.session import Book, Counter
from app.doctor.case import Case, Examined
from app.kinds.notation import time_text
from app.kinds.table import KINDS
from app.tickets.definitions import TICKET, Settled, seen_of, settle
from app.tickets.situation import Standing

CLOCK_SECONDS = 0.5
"""How far apart two clocks may be."""
NEARLY_USED_UP = 0.9
ENDS_SOON_MS = 90 * 86_400_000
NAMED = 3
"""How many sequences or marks a line names."""
RING = 0
"""In place of an offset: it is about all databases."""

Said = Iterator[tuple[int, Finding]]
wrong, note = partial(Finding, Severity.WRONG), partial(Finding, Severity.NOTE)
"""Make a finding of a subject and a text: that something is wrong, or what is no fault."""


def databases(case: Case) -> Said:
    """Yield the findings of each database, and how its settings and its connection differ from the list."""
    machines: dict[str, Examined] = {}
    for each, found in case.found:
        yield from ((each.offset, finding) for finding in found.findings)
        if found.seconds > case.timeout:
            took = f"it took {found.seconds:.2f} s to connect, and servers give up after {case.timeout:g} s"
            yield each.offset, wrong("connection", f"{took}: raise TICKETS_DATABASE_TIMEOUT, or find out what is slow")
        expected = case.expected_increment, each.offset
        if found.numbering is not None and found.numbering != expected and each.offset <= expected[0]:
            settings = "auto_increment_increment={}, auto_increment_offset={}"
            text = f"it has {settings.format(*found.numbering)}, and here belong {settings.format(*expected)}"
            yield each.offset, wrong("settings", f"{text}: set them in its configuration, or restore the list's order")
        if (first := machines.setdefault(found.machine, each)) is not each:
            text = f"it is on the same server as {first.name}: both are lost, or go back, together"
            yield each.offset, wrong("server", text)
    if len(case.databases) == 1:
        text = "nothing takes over when it fails, and nothing keeps its high-water marks when it goes back"
        yield 1, note("list", f"it is the only ticket database: {text}")


def ring(case: Case) -> Said:
    """What the ring's records say against the list and the settings."""
    agreement = case.agreement
    for each in case.databases:
        standing, reason = agreement.verdicts[each.offset]
        if standing in {Standing.DOWN, Standing.QUARANTINED}:
            yield each.offset, wrong("ring" if each.entry().row else "database", reason)
        elif standing is not Standing.IN:
            yield each.offset, note("ring", f"it is in none yet: {reason}" if standing is Standing.WAITS else reason)
    record = agreement.record
    for offset in record.offsets if record is not None else ():
        if offset > len(case.databases):
            yield RING, wrong("list", f"TICKETS_DATABASES lacks the database of offset {offset}, which is in use")
    if record is not None and record.state is State.CHANGING:
        yield RING, wrong("growth", "nobody draws until it ends: run `ticketd grow` again, or start a ticket server")


def clocks(case: Case) -> Said:
    """Clocks that are certainly apart from this machine's."""
    for each, found in case.found:
        doubt = (found.ended - found.began) / 2
        ahead = found.now - found.began - doubt
        if abs(ahead) - doubt > CLOCK_SECONDS:
            where = f"{abs(ahead):.2f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
            yield each.offset, wrong("clock", f"its clock is {where}: let NTP set both")


def sequences(case: Case) -> Said:
    """Sequences that cannot be served, differ between databases, or come to their end."""
    lacking: dict[int, list[str]] = {}
    rows = {each.offset: found.notes.get(Book.DEFINITIONS, {}) for each, found in case.read}
    for key in sorted({key for each, found in case.read for key in found.counters.keys() | rows[each.offset]}):
        found_by = {each.offset: found.counters.get(key) for each, found in case.read}
        views = {offset: seen_of(key, found, rows[offset].get(key), 0.0) for offset, found in found_by.items()}
        counters = {offset: found for offset, found in found_by.items() if isinstance(found, Counter)}
        settled = settle(key, views)
        yield from ((offset, wrong(settled.name, why)) for offset, why in settled.reasons.items())
        for offset, counter in counters.items():
            yield from ((offset, wrong(settled.name, warning)) for warning in counter.warnings)
        yield from ((RING, finding) for finding in _of_all(settled, list(counters.values()), case.now_ms))
        for offset, found in found_by.items():
            if counters and found is None and offset not in settled.reasons:
                lacking.setdefault(offset, []).append(settled.name)
    for offset, names in lacking.items():
        yield offset, note("sequences", f"it lacks {_listed(names)}, which others have: the ticket servers make them")


def _of_all(settled: Settled, counters: list[Counter], now_ms: int) -> Iterator[Finding]:
    """What holds for a sequence on all databases."""
    definition, name = settled.definition, settled.name
    if definition is None:
        return
    ceilings = sorted({counter.ceiling for counter in counters})
    if len(ceilings) > 1:
        yield wrong(name, f"it ends at {ceilings[0]} here and at {ceilings[-1]} there: let all its columns be as wide")
    if not definition.is_known:
        yield wrong(name, f"it is of {definition}, which this release cannot serve: install a later one")
    elif definition.kind != TICKET:
        end = KINDS[definition.kind].ends_at(definition.parameters)
        if end is not None and end - now_ms < ENDS_SOON_MS:
            yield wrong(name, f"its ids end at {time_text(end)}: use another sequence, with a later epoch")
    elif counters:
        position, ceiling = max(counter.position for counter in counters), ceilings[0]
        if position > NEARLY_USED_UP * ceiling:
            used = f"{min(100 * position // ceiling, 100)} % of its ids are used up, {position} of {ceiling}"
            yield wrong(name, f"{used}: widen its columns on every ticket database, or use another sequence")


def marks(case: Case) -> Said:
    """Marks that a database of the ring lacks, and counters that stand below the marks of what was issued."""
    is_served = any(before.notes[Book.HEARTBEATS] != found.notes[Book.HEARTBEATS] for _, before, found in case.inside)
    for each, _, found in case.inside:
        mine = found.notes[Book.MARKS]
        others = [before.notes[Book.MARKS] for other, before, _ in case.inside if other.offset != each.offset]
        lacking = {
            name for rows in others for name, row in rows.items() if name not in mine or mine[name].high < row.high
        }
        if lacking:
            until = "until the ticket servers have copied them, no other database may go back"
            text = f"it lacks the newest high-water marks {_listed(sorted(lacking))}: {until}"
            yield each.offset, (wrong if is_served else note)("marks", text)
        for key, counter in found.counters.items():
            issued = max((rows[name].issued for rows in others if (name := f"{key}/{each.offset}") in rows), default=0)
            if isinstance(counter, Counter) and counter.position < min(issued, counter.ceiling):
                text = f"it stands at {counter.position}, though {issued} was issued: the ticket servers raise it"
                yield each.offset, note(counter.name, text)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
