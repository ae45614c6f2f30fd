"""Names of sequences: somebody's, the server's own, and the counters of kinds."""

import pytest

from app.common.sequences import counter_table, is_inner_mark, is_inner_name, is_name, is_table_name

NAMES = ["a", "photos", "Photos", "PHOTOS", "p1", "p_1", "x" * 64, "Tickets64"]


def test_a_counter_has_a_name_of_its_own_that_does_not_contain_the_sequences() -> None:
    tables = [counter_table(name) for name in NAMES]
    assert len(set(tables)) == len(NAMES)
    for name, table in zip(NAMES, tables, strict=True):
        assert is_inner_name(table)
        assert not is_name(table)
        assert name not in table
        assert len(table) <= 41


def test_a_counter_has_the_same_name_for_ever() -> None:
    """It is what the ids of a sequence hang on: another one would count from the beginning."""
    assert counter_table("likes") == "_54675532800584178113382719281"


@pytest.mark.parametrize("name", ["_1", "_0", "_" + "9" * 40])
def test_a_name_of_an_inner_sequence_is_nobodys(name: str) -> None:
    assert is_inner_name(name)
    assert is_table_name(name)
    assert is_inner_mark(name)
    assert not is_name(name)


@pytest.mark.parametrize(
    "name", ["", "_", "1", "_a", "_ring", "_1a", "_1_", "__1", "_" + "9" * 41, "_1\n", "_١", " _1"]
)
def test_what_is_no_name_of_an_inner_sequence(name: str) -> None:
    assert not is_inner_name(name)
    assert not is_table_name(name)


def test_a_mark_can_be_of_a_lease_too() -> None:
    assert is_inner_mark("_worker_1023")
    assert not is_table_name("_worker_1023")
    for name in ("worker", "_", "_Worker", "_worker 1", "_worker'", "_" + "w" * 41):
        assert not is_inner_mark(name)
