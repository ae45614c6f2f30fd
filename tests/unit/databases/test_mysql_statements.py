"""The statements that are made from numbers."""

import re

import pytest

from app.databases.mysql import sequence_sql


def offset_after(statement: str, drawn: int) -> tuple[int, int]:
    """The increment and offset of the session once it has drawn this id: the IFs, worked out as the server does."""
    found = re.findall(r"IF\(LAST_INSERT_ID\(\) BETWEEN (\d+) AND (\d+), ([^,]+), (\d+)\)", statement)
    assert len(found) == 2

    def worked_out(expression: str) -> int:
        return int(eval(expression.replace("LAST_INSERT_ID()", str(drawn)).replace("MOD", "%")))

    increment, offset = (
        worked_out(wide if int(least) <= drawn <= int(limit) else plain) for least, limit, wide, plain in found
    )
    return increment, offset


@pytest.mark.parametrize(("increment", "offset"), [(2, 1), (2, 2), (3, 3), (5, 2)])
@pytest.mark.parametrize("size", [2, 7, 1000])
def test_a_block_begins_right_after_the_id_drawn_before_it(size: int, increment: int, offset: int) -> None:
    for drawn in [*range(offset, offset + 40 * increment, increment), 10**9 * increment + offset]:
        for statement, wide in (
            (sequence_sql.draw_block("photos", size, (drawn - 1, drawn), increment, offset), size * increment),
            (sequence_sql.draw_ends("photos", size, (drawn - 1, drawn), increment, offset), (size - 1) * increment),
        ):
            step, start = offset_after(statement, drawn)
            assert step == wide
            assert 1 <= start <= wide
            assert drawn + 1 + (start - drawn - 1) % wide == drawn + increment


@pytest.mark.parametrize("after", [7, 8, 1000])
def test_a_table_that_has_gone_back_is_not_moved_in_among_what_others_have_issued(after: int) -> None:
    for statement in (
        sequence_sql.draw_block("photos", 500, (after, 10**9), 2, 1),
        sequence_sql.draw_ends("photos", 500, (after, 10**9), 2, 1),
    ):
        assert offset_after(statement, 7) == (2, 1)


@pytest.mark.parametrize("limit", [3, 5])
def test_a_counter_that_is_close_to_the_end_is_not_moved_by_a_block(limit: int) -> None:
    for statement in (
        sequence_sql.draw_block("photos", 500, (0, limit), 2, 1),
        sequence_sql.draw_ends("photos", 500, (0, limit), 2, 1),
    ):
        assert offset_after(statement, 7) == (2, 1)
