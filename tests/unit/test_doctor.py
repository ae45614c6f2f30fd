"""The doctor compares the ticket databases with each other, by the findings of each."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from app import doctor
from app.databases.address import Address
from app.databases.examination import Examination, Finding, Severity
from app.databases.record import Body, Record, State
from app.databases.session import LARGEST_ID, Book, Counter, Note, RingRow
from app.doctor import RING, Case, Examined
from app.errors import DatabaseError, DatabaseFailed, SequenceUnusable
from app.settings import Settings
from app.tickets.definitions import Definition

RECORD = Record("ring", 7, "w", 2, State.DRAWN, (Body(1, "body 1", 1), Body(2, "body 2", 1)))
NOW_MS, EPOCH = 3_400_000_000_000, 3_000_000_000_000
PHOTOS = Counter("photos", 64, LARGEST_ID, 100, "b")
Found = Examination | DatabaseError


def found(offset: int, record: Record = RECORD, counter: Counter | DatabaseError = PHOTOS) -> Examination:
    """A database of a healthy ring of two, with one sequence."""
    marks = {f"photos/{each}": Note(1000, 90, "t", sure=True) for each in (1, 2)}
    return Examination(
        *("MySQL 9.7.0", f"machine {offset}", 1000.0, 1000.05, 1000.1, 0.01, (2, offset)),
        ring=RingRow(f"body {offset}", offset, record.stamp, record.dump()),
        notes={Book.MARKS: marks, Book.DEFINITIONS: {}, Book.HEARTBEATS: {}},
        counters={"photos": counter},
    )


def examined(*databases: Found) -> list[Examined]:
    return [Examined(offset, f"d{offset}", each) for offset, each in enumerate(databases, 1)]


def case(*databases: Found, increment: int | None = None) -> Case:
    return Case(examined(*databases), examined(*databases), 0.5, increment, NOW_MS)


def texts(said: Iterable[tuple[int, Finding]], severity: Severity = Severity.WRONG) -> list[tuple[int, str]]:
    return [(offset, f"{each.subject}: {each.text}") for offset, each in said if each.severity is severity]


def notes(said: Iterable[tuple[int, Finding]]) -> list[tuple[int, str]]:
    """The notes; nothing may be wrong."""
    said = list(said)
    assert texts(said) == []
    return texts(said, Severity.NOTE)


def everything(given: Case) -> list[tuple[int, Finding]]:
    return [each for check in doctor.CHECKS for each in check(given)]


def test_nothing_is_wrong_with_a_healthy_ring_and_with_databases_that_no_server_has_used() -> None:
    assert everything(case(found(1), found(2))) == []
    new = (replace(found(offset), ring=None, notes={}) for offset in (1, 2))
    assert [offset for offset, text in notes(everything(case(*new))) if "in none yet" in text] == [1, 2]


def test_the_settings_the_connection_and_the_machine_are_held_against_the_list() -> None:
    odd = replace(found(1), seconds=0.9)
    even = replace(found(2), numbering=(2, 1), machine=odd.machine)
    slow, settings, server = texts(doctor.databases(case(odd, even)))
    assert "0.90 s to connect" in slow[1]
    assert "has auto_increment_increment=2, auto_increment_offset=1, and here belong" in settings[1]
    assert "the same server as d1" in server[1]
    assert "the only ticket database" in notes(doctor.databases(case(found(1))))[0][1]


def test_the_rings_records_are_held_against_list_and_settings() -> None:
    changing = replace(RECORD, number=8, state=State.CHANGING)
    unread = replace(found(2), unread="its tables may not be read")
    for given, offset, said in (
        (case(DatabaseFailed("refuses connections"), found(2)), 1, "database: refuses connections"),
        (case(found(1), unread), 2, "database: its tables may not be read"),
        (case(found(1), found(2), increment=3), 1, "increment of the ring is 2, and TICKETS_INCREMENT is 3"),
        (case(found(1)), RING, "list: TICKETS_DATABASES lacks the database of offset 2, which is in use"),
        (case(found(2), found(1)), 1, "restore the order"),
        (case(found(1, changing), found(2, changing)), RING, "ticketd grow"),
    ):
        assert any(each == offset and said in text for each, text in texts(doctor.ring(given)))
    replaced = replace(found(2), ring=RingRow("another body"), notes={})
    assert notes(doctor.ring(case(found(1), replaced))) == [(2, "ring: is taken into the ring")]


def test_clocks_that_are_certainly_apart() -> None:
    for odd, even, said in (
        (1000.05, 1000.54, []),
        (1000.05, 1000.65, ["2 clock: its clock is 0.60 s ahead of this machine's"]),
        (999.4, 1000.05, ["1 clock: its clock is 0.65 s behind this machine's"]),
    ):
        lines = texts(doctor.databases(case(replace(found(1), now=odd), replace(found(2), now=even))))
        assert [f"{offset} {text.removesuffix(': let NTP set both')}" for offset, text in lines] == said


def test_sequences_that_cannot_be_served_or_come_to_their_end() -> None:
    narrow = PHOTOS._replace(bits=32, ceiling=(1 << 32) - 1, position=4_000_000_000, warnings=("is on MyISAM",))
    given = case(found(1, counter=SequenceUnusable("is a view")), found(2, counter=narrow))
    used = "photos: 93 % of its ids are used up, 4000000000 of 4294967295"
    assert [(offset, text.partition(": widen")[0]) for offset, text in texts(doctor.sequences(given))] == [
        (1, "photos: is a view"),
        (2, "photos: is on MyISAM"),
        (RING, used),
    ]
    assert "ends at 4294967295 here" in str(texts(doctor.sequences(case(found(1), found(2, counter=narrow)))))
    given.databases[0].found.counters.clear()  # type: ignore[union-attr]
    lacking = texts(doctor.sequences(given), Severity.NOTE)
    assert lacking == [(1, "sequences: it lacks photos, which others have: the ticket servers make them")]


def test_definitions() -> None:
    for odd, even, said in (
        (Definition("instagram", {"epoch": EPOCH, "shards": 9}), None, []),
        (Definition("ticket", {"bits": 64, "start": 1}), Definition("uuid4"), ["it is kind uuid4"]),
        (Definition("riddle"), None, ["this release cannot serve"]),
        (Definition("snowflake", {"epoch": NOW_MS - (1 << 41) + 1}), None, ["its ids end at"]),
    ):
        both = found(1), found(2)
        for each, definition in zip(both, (odd, even or odd), strict=True):
            each.notes[Book.DEFINITIONS] = {"photos": replace(definition, name="photos", word="w").note()}
        lines = texts(doctor.sequences(case(*both)))
        assert [part for part, (_, text) in zip(said, lines, strict=True) if part in text] == said


# --- marks ------------------------------------------------------------------------------------------------------------


def with_marks(offset: int, **marks: Note) -> Examination:
    each = found(offset)
    each.notes[Book.MARKS] = {f"photos/{name[1:]}": note for name, note in marks.items()}
    return each


def test_marks_that_lack_are_a_fault_only_if_ticket_servers_run_that_should_have_copied_them() -> None:
    given = case(found(1), with_marks(2))
    assert "photos/1, photos/2" in notes(doctor.marks(given))[0][1]
    older = with_marks(2, _1=Note(999, 90, "t"), _2=Note(1000, 90, "t"))
    assert "marks photos/1:" in notes(doctor.marks(case(found(1), older)))[0][1]
    later = found(1)
    later.notes[Book.HEARTBEATS] = {"one:8000": Note(5)}
    given = replace(given, databases=examined(later, with_marks(2)))
    assert [offset for offset, _ in texts(doctor.marks(given))] == [2]
    made_meanwhile = examined(with_marks(1, _1=Note(2000, 1500, "t"), _2=Note(1000, 90, "t")), found(2))
    assert list(doctor.marks(replace(case(found(1), found(2)), databases=made_meanwhile))) == []


def test_a_counter_that_was_set_back_is_a_note() -> None:
    text = "photos: it stands at 50, though 90 was issued: the ticket servers raise it"
    given = case(found(1, counter=PHOTOS._replace(position=50)), found(2))
    assert notes(doctor.marks(given)) == [(1, text)]


# --- the report -------------------------------------------------------------------------------------------------------


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
    assert len(said(0, found(1), with_marks(2), found(1), found(2))) == 2
