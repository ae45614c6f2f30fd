"""What a write does to a note that is kept already, which every engine of rows goes by."""

from dataclasses import replace

import pytest

from app.databases.notebook import NotebookDatabase, Write, after
from app.databases.protocol import Mark, RingRecord
from app.kinds.definition import Definition

MARK = Mark("photos", 1, 2, mark=100, issued=50, token="life:1")
RING = RingRecord(3, 2, 1, (1, 2), own=1)
CLAIM = Definition("photos", "ticket", {"bits": 64}, decided=False, by="a1")


def test_a_mark_that_nothing_is_kept_of_is_kept() -> None:
    assert after(None, Write(MARK)) == MARK
    assert after(None, Write(MARK, MARK)) is None, "the row that it was to replace is gone"


@pytest.mark.parametrize(("mark", "issued", "then"), [(200, 10, (200, 50)), (10, 200, (100, 200)), (10, 10, (100, 50))])
def test_under_its_own_token_a_mark_only_rises(mark: int, issued: int, then: tuple[int, int]) -> None:
    kept = after(MARK, Write(replace(MARK, mark=mark, issued=issued)))
    assert kept == replace(MARK, mark=then[0], issued=then[1])


def test_under_another_token_a_mark_changes_nothing() -> None:
    assert after(MARK, Write(replace(MARK, mark=900, issued=900, token="life:2"))) == MARK


@pytest.mark.parametrize(
    ("kept", "replaces"),
    [
        (MARK, True),
        (replace(MARK, mark=99), True),
        (replace(MARK, issued=70), True),
        (replace(MARK, mark=101), False),  # a server has kept a higher one meanwhile
        (replace(MARK, token="life:3"), False),
    ],
)
def test_a_token_is_superseded_unless_the_row_has_changed(kept: Mark, replaces: bool) -> None:
    new = replace(MARK, mark=80, issued=60, token="life:2")
    expected = replace(new, issued=max(60, kept.issued)) if replaces else kept
    assert after(kept, Write(new, MARK)) == expected


def test_the_ring_record_replaces_what_it_was_made_from_and_nothing_else() -> None:
    new = replace(RING, number=4)
    assert after(None, Write(new)) == new
    assert after(RING, Write(new, RING)) == new
    assert after(RING, Write(new)) == RING
    assert after(replace(RING, body="ab"), Write(new, RING)) == replace(RING, body="ab")
    assert after(None, Write(new, RING)) is None


def test_a_definition_that_is_decided_stays() -> None:
    decided = replace(CLAIM, decided=True)
    assert after(None, Write(CLAIM)) == CLAIM
    assert after(CLAIM, Write(decided, CLAIM)) == decided
    assert after(CLAIM, Write(replace(decided, by="b2"), replace(CLAIM, by="b2"))) == CLAIM
    assert after(decided, Write(CLAIM, decided)) == decided
    assert after(decided, Write(None, CLAIM)) == decided
    assert after(CLAIM, Write(None, CLAIM)) is None


def test_an_engine_of_rows_writes_ten_methods() -> None:
    """And its name for traces, how many connections it has, and where it is."""
    written = NotebookDatabase.__abstractmethods__ | {"start_draw", "make", "advance", "forget_connections", "close"}
    assert len(written) == 10
