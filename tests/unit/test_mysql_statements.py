"""The statements that are made from numbers."""

import re

import pytest

from app.databases import mysql_statements as sql


def first_offset(statement: str) -> int:
    found = re.search(r"auto_increment_offset = (\d+)", statement)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize(("increment", "offset"), [(2, 1), (2, 2), (3, 3), (5, 2)])
@pytest.mark.parametrize("size", [2, 7, 1000])
def test_a_block_begins_right_after_the_last_id_on_its_databases_own_ids(
    size: int, increment: int, offset: int
) -> None:
    """Whatever number is known last: an id, a bump's number, a counter. An id of its own continues without a gap."""
    for after in [*range(60), 10**9, 2**63 - 10]:
        for statement, wide in (
            (sql.draw_block("photos", size, after, increment, offset), size * increment),
            (sql.draw_ends("photos", size, after, increment, offset), (size - 1) * increment),
        ):
            start = first_offset(statement)
            assert 1 <= start <= wide
            assert start % increment == offset % increment
            following = after + 1 + (start - after - 1) % wide
            assert after < following <= after + increment
