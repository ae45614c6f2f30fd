"""The doctor's checks on a ticket database: one function per check.

Each compares one database with the others and yields what would break a guarantee or slow the server down, and how to
fix it. None queries a database: the facts are in the inspections.
"""

from collections.abc import Callable, Iterator

from app.databases.protocol import RingState
from app.doctor import kind_findings as of_kinds
from app.doctor.case import Case, Finding
from app.tickets.agreement.record import UNFINISHED, contradiction

NEARLY_USED_UP = 0.9
CLOCK_SECONDS = 0.5
"""How far apart two clocks may be."""


def unreachable(case: Case) -> Iterator[Finding]:
    """Not there, wrong password, too old, no TLS where it is required, no ticket database."""
    if case.database.trouble is not None:
        yield Finding(case.database.trouble, case.database.advice)


def slow_to_connect(case: Case) -> Iterator[Finding]:
    seconds = case.database.connect_seconds
    if seconds > case.timeout:
        yield Finding(
            f"took {seconds:.2f} s to connect, and the server gives up after {case.timeout:g} s",
            "find out what is slow (name resolution, load, distance), or raise TICKETS_DATABASE_TIMEOUT",
        )


def one_server_twice(case: Case) -> Iterator[Finding]:
    for other in case.earlier:
        if other.seen and other.identity == case.database.identity:
            yield Finding(
                f"is the same {'file' if other.made_for else 'server'} as {other.name}: if one is lost, both are lost",
                "remove the link under its name; `ticketd serve` creates the file again"
                if other.made_for
                else "name another server in TICKETS_DATABASES",
            )


def wrong_increment(case: Case) -> Iterator[Finding]:
    found = case.database
    name = found.setting_names[0]
    if found.set_increment is None or found.set_increment == found.increment:
        return
    if found.made_for:
        if found.record is None:
            yield Finding(
                f"was made for increment {found.set_increment}, expected {found.increment}",
                f"set TICKETS_INCREMENT={found.set_increment}",
            )
    else:
        yield Finding(
            f"has {name}={found.set_increment}, expected {found.increment}",
            f"set {name} = {found.increment} in its configuration and restart it "
            "(or set TICKETS_INCREMENT to the value that all of them have)",
        )


def wrong_offset(case: Case) -> Iterator[Finding]:
    found = case.database
    name = found.setting_names[1]
    if found.set_offset is None or found.set_offset == found.offset:
        return
    shared = [each.name for each in case.others if each.seen and each.set_offset == found.set_offset]
    beside = f", which {shared[0]} has too: both would issue the same ids" if shared else ""
    if found.made_for:
        yield Finding(f"was made for offset {found.set_offset}, expected {found.offset}{beside}", found.made_for)
        return
    yield Finding(
        f"has {name}={found.set_offset}, expected {found.offset}{beside}",
        f"set {name} = {found.offset} in its configuration and restart it, or put the URLs into offset order",
    )


def folds_names_alone(case: Case) -> Iterator[Finding]:
    plain = [each.name for each in case.others if each.seen and not each.folded_by]
    setting = case.database.folded_by
    if setting and plain:
        yield Finding(
            f"folds table names to lower case ({setting} is not 0), and {plain[0]} does not: "
            "ticket servers do not draw from it",
            f"replace it by a server that was initialized with the other's {setting}",
        )


def contradicts_ring(case: Case) -> Iterator[Finding]:
    """The ring record against the settings; a server draws nothing while they contradict each other."""
    found = case.database
    record = found.record
    if record is None:
        return
    if record.state is RingState.GROWING:
        yield Finding(UNFINISHED, "run it with the environment of the new ticket servers; no server draws until then")
    elif reason := contradiction(record, case.increment, len(case.everyone)):
        yield Finding(reason, "ticket servers with these settings draw nothing; see docs/operations/grow-offline.md")
    if record.own != found.offset:
        yield Finding(
            f"was drawn at offset {record.own}, and TICKETS_DATABASES lists it at {found.offset}",
            "restore the original order of the URLs",
        )


def flaws(case: Case) -> Iterator[Finding]:
    """The engine's own findings about its settings, the account and the server's own tables."""
    for flaw in case.database.flaws:
        yield Finding(*flaw)


def flaws_of_tables(case: Case) -> Iterator[Finding]:
    for name, found in case.database.table_flaws.items():
        for flaw in found:
            yield Finding(f"{case.called(name)}: {flaw.wrong}", flaw.fix)


def clock_off(case: Case) -> Iterator[Finding]:
    """Against this machine's clock; and where both are near that, against the others'."""
    found = case.database
    fix = "run an NTP client (chrony, systemd-timesyncd) on both"
    if _apart(found.clock_ahead, found.clock_doubt):
        yield Finding(f"has a clock that is {_seconds(found.clock_ahead)} this machine's", fix)
        return
    for other in case.earlier:
        if not other.seen or _apart(other.clock_ahead, other.clock_doubt):
            continue  # it has a finding of its own
        ahead = found.clock_ahead - other.clock_ahead
        if _apart(ahead, found.clock_doubt + other.clock_doubt):
            yield Finding(f"has a clock that is {_seconds(ahead)} that of {other.name}", fix)


def _apart(ahead: float, doubt: float) -> bool:
    """Whether two clocks certainly differ by more than they may."""
    return abs(ahead) - doubt > CLOCK_SECONDS


def _seconds(ahead: float) -> str:
    return f"{abs(ahead):.2f} s {'ahead of' if ahead > 0 else 'behind'}"


def newer_tables(case: Case) -> Iterator[Finding]:
    found = case.database
    if found.layout > found.known_layout:
        yield Finding(
            f"has own tables of version {found.layout}, but this version of ticketd supports {found.known_layout}",
            "use the newer ticketd that created them",
        )


def missing_sequence(case: Case) -> Iterator[Finding]:
    for other in case.others:
        for name in other.tables:
            witness = next(each.name for each in case.others if name in each.tables)
            if name not in case.database.tables and witness == other.name:
                yield Finding(
                    f"{case.called(name)}: has no table for it, but {other.name} has one",
                    "start a ticket server while both are up: it creates the table, above what the other has issued",
                )


def columns_that_differ(case: Case) -> Iterator[Finding]:
    for name, each in case.database.tables.items():
        wider = [other for other in case.others if name in other.tables and other.tables[name].ceiling > each.ceiling]
        if wider:
            yield Finding(
                f"{case.called(name)}: its id is {case.database.columns[name]} here and {wider[0].columns[name]} on "
                f"{wider[0].name}; the sequence ends where the narrower column ends",
                case.database.widen.get(name, "make the columns equal"),
            )


def below_its_mark(case: Case) -> Iterator[Finding]:
    found = case.database
    for name, position in found.positions.items():
        known = [
            (mark.issued, other.name)
            for other in case.others
            for mark in other.marks
            if (mark.sequence, mark.offset, mark.increment) == (name, found.offset, found.increment)
        ]
        issued, witness = max(known, default=(0, ""))
        if position.next_id <= issued:
            yield Finding(
                f"{case.called(name)}: is below its high-water mark: the next id would be {position.next_id}, "
                f"but {witness} records that {issued} has been issued",
                "leave it to the ticket servers, which advance it before they draw; let nothing else draw from it",
            )
        elif position.next_id <= position.largest:
            yield Finding(
                f"{case.called(name)}: its counter has gone back to {position.next_id}, but its table holds "
                f"{position.largest}",
                "leave it to the ticket servers, which advance it before they draw; let nothing else draw from it",
            )


def nearly_used_up(case: Case) -> Iterator[Finding]:
    for name, position in case.database.positions.items():
        each, widen = case.database.tables[name], case.database.widen.get(name)
        last = min(position.next_id - 1, each.ceiling)
        if last > NEARLY_USED_UP * each.ceiling:
            fix = f"{widen}, on every ticket database" if widen and each.width < 64 else ""
            yield Finding(
                f"{case.called(name)}: {int(100 * last / each.ceiling)} % of its ids are used up, {last} of "
                f"{each.ceiling}",
                fix or "use another sequence for new objects",
            )


def unreadable(case: Case) -> Iterator[Finding]:
    for name, why in case.database.unread.items():
        yield Finding(f"{case.called(name)}: {why}", case.database.fix_unread)


FINDINGS_ABOUT_ALL: tuple[Callable[[Case], Iterator[Finding]], ...] = (unreachable,)
"""Checked on every database."""

FINDINGS: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    slow_to_connect,
    one_server_twice,
    wrong_increment,
    wrong_offset,
    folds_names_alone,
    contradicts_ring,
    flaws,
    clock_off,
    newer_tables,
    flaws_of_tables,
    missing_sequence,
    columns_that_differ,
    below_its_mark,
    nearly_used_up,
    unreadable,
    of_kinds.definitions_that_differ,
    of_kinds.definitions_and_tables,
    of_kinds.definitions_unknown,
    of_kinds.kind_ends_soon,
    of_kinds.older_servers,
)
"""Checked on those whose tables could be read."""


def findings(case: Case) -> Iterator[Finding]:
    """All that is wrong with one database."""
    for find in FINDINGS_ABOUT_ALL + (FINDINGS if case.database.seen else ()):
        yield from find(case)
