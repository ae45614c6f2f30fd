"""The doctor compares the ticket databases with each other, by the findings of each."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app import doctor
from app.databases.address import Address
from app.databases.examination import Examination, Severity
from app.databases.record import Body, Record, State
from app.databases.session import LARGEST_ID, Book, Counter, Note, RingRow
from app.doctor import Case, Examined
from app.errors import DatabaseError, DatabaseFailed, SequenceUnusable
from app.settings import Settings
from app.tickets.definitions import Definition

RECORD = Record("ring", 7, "w", 2, State.DRAWN, (Body(1, "body 1", 1), Body(2, "body 2", 1)))
CHANGING = replace(RECORD, number=8, state=State.CHANGING)
NOW_MS, EPOCH = 3_400_000_000_000, 3_000_000_000_000
PHOTOS = Counter("photos", 64, LARGEST_ID, 100, "b")
NARROW = PHOTOS._replace(bits=32, ceiling=(1 << 32) - 1, position=4_000_000_000, warnings=("is on MyISAM",))
MARKS = dict.fromkeys(("photos/1", "photos/2"), Note(1000, 90, "t", sure=True))
Found = Examination | DatabaseError


def found(
    offset: int,
    record: Record = RECORD,
    counter: Counter | DatabaseError = PHOTOS,
    row: Definition | None = None,
    marks: dict[str, Note] = MARKS,
    **changed: Any,
) -> Examination:
    """A database of a healthy ring of two, with one sequence; and what is otherwise."""
    rows = {} if row is None else {"photos": replace(row, name="photos", word="w").note()}
    healthy = Examination(
        *("MySQL 9.7.0", f"machine {offset}", 1000.0, 1000.05, 1000.1, 0.01, (2, offset)),
        ring=RingRow(f"body {offset}", offset, record.stamp, record.dump()),
        notes={Book.MARKS: marks, Book.DEFINITIONS: rows, Book.HEARTBEATS: {}},
        counters={"photos": counter},
    )
    return replace(healthy, **changed)


def case(*databases: Found, increment: int | None = None, later: Sequence[Found] = ()) -> Case:
    """What is examined. later: what is found the second time."""
    first, last = ([*map(Examined, (1, 2), ("d1", "d2"), some)] for some in (databases, later or databases))
    return Case(first, last, 0.5, increment, NOW_MS)


def both(**changed: Any) -> list[Found]:
    """Two databases that are otherwise in the same way."""
    return [found(offset, **changed) for offset in (1, 2)]


SNOWFLAKE = Definition("snowflake", {"epoch": NOW_MS - (1 << 41) + 1})
CASES: list[tuple[str, list[Found]]] = [
    ("", both()),
    ("", [found(1), found(2, now=1000.54)]),
    ("", both(row=Definition("instagram", {"epoch": EPOCH, "shards": 9}))),
    ("1 note: ring: it is in none yet\n2 note: ring: it is in none yet", both(ring=None, notes={})),
    ("1 wrong: connection: it took 0.90 s to connect", [found(1, seconds=0.9), found(2)]),
    ("2 wrong: server: it is on the same server as d1", [found(1), found(2, machine="machine 1")]),
    ("2 wrong: clock: its clock is 0.60 s ahead of this machine's: let NTP", [found(1), found(2, now=1000.65)]),
    ("1 wrong: clock: its clock is 0.65 s behind this machine's: let NTP", [found(1, now=999.4), found(2)]),
    ("1 note: list: it is the only\n0 wrong: list: TICKETS_DATABASES lacks the database of offset 2", [found(1)]),
    ("1 wrong: database: refuses connections", [DatabaseFailed("refuses connections"), found(2)]),
    ("2 wrong: database: may not be read", [found(1), found(2, unread="may not be read")]),
    ("restore the order\nrestore the order", [found(2, numbering=None), found(1, numbering=None)]),
    ("0 wrong: growth: nobody draws until it ends: run `ticketd grow", both(record=CHANGING)),
    ("2 note: ring: is taken into the ring", [found(1), found(2, ring=RingRow("another body"), notes={})]),
    ("1 wrong: photos: is a view", [found(1, counter=SequenceUnusable("is a view")), found(2)]),
    ("1 wrong: photos: is on MyISAM\n2 wrong: photos: is on MyISAM\n"
     "0 wrong: photos: 93 % of its ids are used up, 4000000000 of 4294967295: widen", both(counter=NARROW)),
    ("0 wrong: photos: it ends at 4294967295 here and at 9223372036854775807 there",
     [found(1), found(2, counter=NARROW._replace(warnings=(), position=100))]),
    ("1 note: sequences: it lacks photos, which others have: the ticket", [found(1, counters={}), found(2)]),
    ("2 wrong: photos: it is kind uuid4 here",
     [found(1, row=Definition("ticket", {"bits": 64, "start": 1})), found(2, row=Definition("uuid4"))]),
    ("0 wrong: photos: it is of kind riddle, which this release cannot serve", both(row=Definition("riddle"))),
    ("0 wrong: photos: its ids end at", both(row=SNOWFLAKE)),
    ("2 note: marks: it lacks the newest high-water marks photos/1, photos/2", [found(1), found(2, marks={})]),
    ("2 note: marks: it lacks the newest high-water marks photos/1: until",
     [found(1), found(2, marks={**MARKS, "photos/1": Note(999, 90, "t")})]),
    ("1 note: photos: it stands at 50, though 90 was issued: the ticket",
     [found(1, counter=PHOTOS._replace(position=50)), found(2)]),
]  # fmt: skip


def said(given: Case) -> list[str]:
    findings = [each for check in doctor.CHECKS for each in check(given)]
    return [f"{offset} {each.severity}: {each.subject}: {each.text}" for offset, each in findings]


@pytest.mark.parametrize(("expected", "databases"), CASES)
def test_the_databases_are_held_against_each_other_and_the_list(expected: str, databases: list[Found]) -> None:
    lines = said(case(*databases))
    assert len(lines) == len(expected.splitlines()), lines
    assert all(part in line for part, line in zip(expected.splitlines(), lines, strict=True)), lines


def test_a_setting_that_contradicts_the_ring_is_wrong_at_each_database() -> None:
    lines = said(case(*both(), increment=3))
    assert sum("increment of the ring is 2, and TICKETS_INCREMENT is 3" in line for line in lines) == 2


def test_marks_that_lack_are_a_fault_only_if_ticket_servers_run_that_should_have_copied_them() -> None:
    served = found(1)
    served.notes[Book.HEARTBEATS] = {"one:8000": Note(5)}
    (line,) = said(case(found(1), found(2, marks={}), later=(served, found(2, marks={}))))
    assert line.startswith("2 wrong: marks: it lacks the newest high-water marks")
    marked_meanwhile = found(1, marks={**MARKS, "photos/1": Note(2000, 1500, "t")})
    assert said(case(*both(), later=(marked_meanwhile, found(2)))) == []


def test_only_what_is_wrong_changes_the_exit_status_and_marks_that_differ_are_looked_at_once_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rest: list[Found] = []

    async def examine(_address: Address, _seconds: float) -> Examination:
        if isinstance(each := rest.pop(0), DatabaseError):
            raise each
        return each

    def said(status: int, *databases: Found) -> list[str]:
        rest[:] = databases
        both = Address("d1", 1, "", ""), Address("d2", 2, "", "")
        settings = Settings.model_construct(databases=both, database_timeout=0.5, increment=None)
        assert (doctor.run(settings), rest) == (status, [])
        return capsys.readouterr().out.splitlines()

    monkeypatch.setattr(doctor, "examine", examine)
    monkeypatch.setattr(doctor, "AGAIN", 0.0)
    odd = found(1)
    odd.add(Severity.NOTE, "connection", "it is not encrypted")
    odd.add(Severity.UNKNOWN, "triggers", "its user may not see them \x1b[2J")
    assert said(0, odd, found(2)) == [
        "ok: d1:1: MySQL 9.7.0, offset 1 of 2, 1 sequences",
        "note: d1:1: connection: it is not encrypted",
        "unknown: d1:1: triggers: its user may not see them \\x1b[2J",
        "ok: d2:2: MySQL 9.7.0, offset 2 of 2, 1 sequences",
    ]
    refused = said(1, found(1), DatabaseFailed("refuses connections"))
    assert refused[-1] == "wrong: d2:2: database: refuses connections"
    assert len(said(0, found(1), found(2, marks={}), found(1), found(2))) == 2
