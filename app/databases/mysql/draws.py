"""The form of a draw: a REPLACE of up to eight rows, whose ids lie further apart where more ids than rows are wanted.

All ids from the first row's to the last row's belong to the draw, because both are on disk, and so is the counter
behind them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from app.databases.mysql.counters import RAISE_STUB
from app.databases.mysql.login import Result
from app.databases.mysql.sql import quoted, with_steps
from app.databases.session import EMPTIED, Drawn, Residue, Want
from app.errors import DatabaseFailed, DatabaseRefused, SequenceError, SequenceExhausted, SequenceMissing

_STUBS = "abcdefgh"
"""All statements name their stubs in this order: two that name them in different orders deadlock."""
_VALUES = ["", *(",".join(f"('{stub}')" for stub in _STUBS[: row + 1]) for row in range(len(_STUBS)))]
_MOST_STEPS = 65_535
"""The largest increment that a session can have; the servers clip a larger one without an error."""
_NEAR = 8
"""A draw of several ids looks where the counter stands if fewer than this many draws like it are left."""


class Form(NamedTuple):
    """How one want is drawn.

    wide: the distance of two rows' ids. offset: what those leave, divided by it. further: how far the last row's id
    lies above the first one's. statements: what is sent; the last one draws, and one before it raises the counter.
    """

    want: Want
    wide: int
    offset: int
    further: int
    statements: tuple[str, ...]


def raising(table: str, above: int) -> str:
    """Return the statement that moves a counter above a number; a lower number is harmless."""
    return f"REPLACE INTO {quoted(table)} (id, stub) VALUES ({above},'{RAISE_STUB}')"  # noqa: S608


def _raising_again(table: str, above: int) -> str:
    """Return the statement that raises a counter only where its table still has the row of an earlier raise.

    A table that was emptied has no such row. With its next word it gets the row with the id 0, and a higher id when a
    server has raised the counter above all that is known of the sequence.
    """
    row = f"FROM {quoted(table)} WHERE stub = '{RAISE_STUB}' AND id > 0 FOR UPDATE"
    return f"REPLACE INTO {quoted(table)} (id, stub) SELECT {above}, '{RAISE_STUB}' {row}"


def _shape(count: int, increment: int) -> tuple[int, int]:
    """Return how many rows a draw of this many ids has, and the distance of two rows' ids."""
    rows = min(count, len(_STUBS))
    return rows, increment * (1 if rows == count else -(-(count - 1) // (rows - 1)))


def has_to_look(want: Want, residue: Residue, known: int) -> bool:
    """Tell whether a draw of several ids might pass the end. known: an id that the counter has passed, 0 for none.

    A statement that passes the end of a column fails, and uses up what was left.
    """
    rows, wide = _shape(want.count, residue.increment)
    return not known or want.ceiling - max(known, want.above) < _NEAR * wide * (rows - 1)


def form_of(want: Want, residue: Residue, seen: int, *, mariadb: bool) -> Form | None:
    """Return how to draw a want; None if its ids would pass the ceiling.

    seen: the counter stands above this id for certain. It should stand right above this one or the want's last one.
    """
    if want.above >= want.ceiling:
        return None
    offset, increment = residue
    table = quoted(want.sequence)
    wide, further, statement = increment, 0, f"REPLACE INTO {table} (stub) VALUES ('{_STUBS[0]}')"  # noqa: S608
    if want.count > 1:
        rows, wide = _shape(want.count, increment)
        above, further = max(seen, want.last, want.above), wide * (rows - 1)
        first = above + 1 + (offset - above - 1) % increment
        # The counter stands one distance behind the last row, and MySQL moves it to the end if it is as near to that.
        if first + further + 2 * wide > want.ceiling:
            return None
        statement = f"REPLACE INTO {table} (stub) VALUES {_VALUES[rows]}"  # noqa: S608
        if wide > increment:
            assert wide <= _MOST_STEPS, "a draw of more than `most_ids`"
            offset = first % wide or wide
            statement = with_steps("REPLACE", statement.removeprefix("REPLACE "), wide, offset, mariadb=mariadb)
    raises = ((_raising_again if want.drawn else raising)(want.sequence, want.above),) if want.above > seen else ()
    return Form(want, wide, offset, further, (*raises, statement))


def drawn(form: Form, residue: Residue, results: Sequence[Result]) -> Drawn | SequenceError:
    """Return the ids of a draw from the results of its statements.

    Raises DatabaseFailed where it drew none, and DatabaseRefused where the first id is of another residue.
    """
    want, increment, first = form.want, residue.increment, results[-1].insert_id
    if want.drawn and _found_none(form, *results):
        return SequenceMissing(EMPTIED)
    if not first:
        raise DatabaseFailed(f"drew nothing from {want.sequence}, and reported no error")
    fit = (want.ceiling - first) // increment + 1
    if fit < want.count:
        return SequenceExhausted()
    if (first - form.offset) % form.wide:
        raise DatabaseRefused(
            f"gave the id {first} of {want.sequence}, which is not {form.offset} in steps of {form.wide}: a trigger "
            "changes ids, or something between changes statements or shares sessions"
        )
    return Drawn(first, min(fit, form.further // increment + 1))


def _found_none(form: Form, *results: Result) -> bool:
    """Tell whether a table had none of the rows of earlier draws.

    A raise then found no row. Where there was no raise, the draw made each of its rows, and replaced none.
    """
    *raises, draw = results
    return any(not each.affected for each in raises) or draw.affected == 1 + form.further // form.wide
