"""The matrix of what each error of a ticket database means for the ring, by what the database was asked."""

import pytest

from app.common.errors import (
    ColumnExhausted,
    MarkRefused,
    NoFurtherConnection,
    RingChanged,
    SequenceMissing,
    SequenceUnavailable,
    SequenceWentBack,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseMisconfigured,
    TicketDatabaseSetWrong,
    TicketDatabaseUnavailable,
)
from app.tickets.lanes.id_guard import WrongResidue
from app.tickets.marks.witnesses import WitnessLost
from app.tickets.ring.failures import Asked, effect_of
from app.tickets.ring.ring import Member, Ring, Status
from tests.unit.tickets.ring.test_ring import look, ring_of

MATRIX = """
                 probe        draw         admission       marks           upkeep
ring             all down     all down     all down        all down        all down
away             unreachable  down         unreachable     down            nothing
busy             unreachable  nothing      unreachable     nothing         nothing
misconfigured    quarantined  quarantined  keeps no marks  keeps no marks  keeps no marks
one table        unreachable  nothing      keeps no marks  keeps no marks  keeps no marks
"""

ERRORS: dict[str, list[TicketDatabaseError]] = {
    "ring": [RingChanged()],
    "away": [TicketDatabaseUnavailable("refuses connections"), TicketDatabaseHung()],
    "busy": [TicketDatabaseBusy(), NoFurtherConnection(), WitnessLost()],
    "misconfigured": [TicketDatabaseMisconfigured(), TicketDatabaseSetWrong(), WrongResidue()],
    "one table": [
        SequenceUnavailable(),
        SequenceMissing(),
        SequenceWentBack(),
        ColumnExhausted(),
        MarkRefused(),
        TicketDatabaseError(),
    ],
}


def rows() -> dict[str, dict[str, str]]:
    head, *lines = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in MATRIX.strip().splitlines()]
    return {row: dict(zip(head, cells, strict=True)) for row, *cells in lines}


@pytest.mark.parametrize("asked", Asked)
@pytest.mark.parametrize("row", ERRORS)
def test_each_error_has_its_effect_by_what_the_database_was_asked(asked: Asked, row: str) -> None:
    expected = rows()[row][asked]
    assert {str(effect_of(error, asked)) for error in ERRORS[row]} == {expected}


def failing(error: TicketDatabaseError, asked: Asked, *, up: bool = True, quarantined: bool = False) -> Member:
    """The first of two databases after it failed with this error."""
    ring = ring_of(2, up=up)
    member = ring.members[0]
    member.settled = True
    if quarantined:
        ring.quarantine(member, "has increment 1")
    member.wake.clear()
    ring.failed(member, error, asked)
    return member


def test_a_database_that_fails_outside_a_probe_is_probed_at_once_and_stays_quarantined() -> None:
    member = failing(TicketDatabaseUnavailable("refuses connections"), Asked.DRAW)
    assert (member.status, member.last_error) == (Status.DOWN, "refuses connections")
    assert member.wake.is_set()
    assert not member.settled
    assert failing(TicketDatabaseUnavailable(), Asked.DRAW, quarantined=True).status is Status.QUARANTINED


def test_a_failed_probe_is_enough_and_ends_a_quarantine() -> None:
    member = failing(TicketDatabaseUnavailable("refuses connections"), Asked.PROBE)
    assert (member.status, member.last_error) == (Status.DOWN, "refuses connections")
    assert not member.wake.is_set()
    assert member.settled
    assert failing(TicketDatabaseUnavailable(), Asked.PROBE, quarantined=True).status is Status.DOWN


def test_a_database_that_cannot_keep_marks_goes_on_drawing_and_its_last_reason_counts() -> None:
    told: list[Member] = []
    ring = ring_of(2)
    ring.follow(told.append)
    member = ring.members[0]
    for reason in ("has a damaged table for it", "has lost its tablespace"):
        ring.failed(member, SequenceUnavailable(reason), Asked.MARKS)
        assert member.up
        assert member.marks_error == reason
    assert told == [member]


def test_a_database_that_is_not_up_is_no_news_when_it_keeps_no_marks() -> None:
    member = failing(SequenceUnavailable("has a damaged table for it"), Asked.ADMISSION, up=False)
    assert member.marks_error == "has a damaged table for it"
    assert member.status is Status.DOWN
    assert not member.wake.is_set()


@pytest.mark.parametrize(
    ("number", "changing", "status"), [(0, False, Status.DOWN), (7, False, Status.UP), (0, True, Status.UP)]
)
def test_another_ring_takes_all_down_unless_this_server_has_changed_it(
    number: int, changing: bool, status: Status
) -> None:
    ring: Ring = ring_of(3)
    ring.is_changing = changing
    ring.failed(ring.members[0], RingChanged(), Asked.MARKS, number)
    assert {member.status for member in ring.members} == {status}


def test_an_id_of_a_wrong_residue_names_its_sequence() -> None:
    ring = ring_of(2)
    member = ring.members[0]
    ring.failed(member, WrongResidue("gave id 4"), Asked.DRAW, drawn_in="photos")
    assert (member.status, member.last_error) == (Status.QUARANTINED, "gave id 4 (sequence photos)")
    assert member.residue_of == "photos"
    ring.failed(member, TicketDatabaseUnavailable(), Asked.PROBE)
    assert member.status is Status.QUARANTINED
    ring.mark_up(member, look())
    assert member.residue_of is None
