"""The form of a draw: a REPLACE of up to eight rows, whose ids lie further apart where more ids than rows are wanted.

All ids from the first row's to the last row's belong to the draw, because both are on disk, and so is the counter
behind them.
"""

from collections.abc import Sequence

from app.databases.mysql.login import Line, Result, quoted
from app.databases.session import EMPTIED, Drawn, Residue, Want
from app.errors import DatabaseFailed, DatabaseRefused, SequenceError, SequenceExhausted, SequenceMissing

RAISE_STUB = "!"
"""The stub of raises, which no draw uses."""
_STUBS = "abcdefgh"
"""All statements name their stubs in this order: two that name them in different orders deadlock."""
_VALUES = [",".join(f"('{stub}')" for stub in _STUBS[:rows]) for rows in range(len(_STUBS) + 1)]
_MOST_STEPS = 65_535
"""The largest increment that a session can have; the servers clip a larger one without an error."""
_NEAR = 8
"""A draw of several ids looks where the counter stands if fewer than this many draws like it are left."""
_COLUMN_ENDS = ((1 << 31) - 1, (1 << 32) - 1)
"""The largest ids of the columns INT and INT UNSIGNED. MySQL gives them again and again, without an error, so that no
server can know whether another one has had the id. On MySQL they are never issued: a draw from above them shows whether
the column ends there."""


def raising(line: Line, table: str, above: int, *, again: bool = False) -> str:
    """Return the statement that moves a counter above a number; a lower number is harmless.

    Without the strict mode, a number that the column cannot hold becomes the largest one, which exhausts the sequence.

    again: only where the table has the row of an earlier raise. A table that was emptied has none. With its next word
    it gets the row with the id 0, and a higher id when a server has raised it above all that is known of the sequence.
    """
    name, row = quoted(table), f"{above}, '{RAISE_STUB}'"
    source = f"VALUES ({row})"
    if again:
        source = f"SELECT {row} FROM {name} WHERE stub = '{RAISE_STUB}' AND id > 0 FOR UPDATE"  # noqa: S608
    return line.with_settings("REPLACE", f"INTO {name} (id, stub) {source}", sql_mode="'NO_AUTO_VALUE_ON_ZERO'")


class Draw:
    """One want, and how it is drawn.

    rows: of the statement. wide: the distance of two rows' ids. further: how far the last row's id lies above the first
    one's. known: where the counter should stand. instead: what to draw in place of an id that may end its column.
    """

    instead: Want | None = None

    def __init__(self, line: Line, want: Want, residue: Residue) -> None:
        self.want = want
        self.rows = min(want.count, len(_STUBS))
        self.wide = residue.increment * (1 if self.rows == want.count else -(-(want.count - 1) // (self.rows - 1)))
        self.further = self.wide * (self.rows - 1)
        self.known = max(want.last, want.above)
        self._residue = residue
        self._offset = residue.offset
        self._line = line

    @property
    def has_to_look(self) -> bool:
        """Whether a draw of several ids might pass the end. It would fail, and use up what was left."""
        return self.rows > 1 and (not self.want.last or self.want.ceiling - self.known < _NEAR * self.further)

    def statements(self) -> list[str]:
        """Return what is sent; the last statement draws, and one before it raises the counter.

        There is none if the ids would pass the ceiling.
        """
        want, (offset, increment) = self.want, self._residue
        first = self.known + 1 + (offset - self.known - 1) % increment
        # The counter stands one distance behind the last row, and MySQL moves it to the end if it is as near to that.
        if want.above >= want.ceiling or (self.rows > 1 and first + self.further + 2 * self.wide > want.ceiling):
            return []
        draw = f"INTO {quoted(want.sequence)} (stub) VALUES {_VALUES[self.rows]}"
        if self.wide == increment:
            draw = f"REPLACE {draw}"
        else:
            assert self.wide <= _MOST_STEPS, "a draw of more than `most_ids`"
            self._offset = first % self.wide or self.wide
            steps = {"auto_increment_increment": self.wide, "auto_increment_offset": self._offset}
            draw = self._line.with_settings("REPLACE", draw, **steps)
        if want.above <= (want.last if want.drawn else 0):
            return [draw]
        return [raising(self._line, want.sequence, want.above, again=want.drawn), draw]

    def result(self, results: Sequence[Result]) -> Drawn | SequenceError:
        """Return the ids, from the results of the statements.

        Raises DatabaseFailed where none was drawn, and DatabaseRefused where the first id is of another residue.
        """
        if not results:
            return SequenceExhausted()
        want, increment, (*raises, draw) = self.want, self._residue.increment, results
        # A raise of an emptied table finds no row, and a draw makes each of its rows, and replaces none.
        if want.drawn and (draw.affected == self.rows or not all(each.affected for each in raises)):
            return SequenceMissing(EMPTIED)
        first = draw.insert_id
        if not first:
            raise DatabaseFailed(f"drew nothing from {want.sequence}, and reported no error")
        fit = (want.ceiling - first) // increment + 1
        if fit < want.count or first == want.above:
            return SequenceExhausted()
        if (first - self._offset) % self.wide:
            raise DatabaseRefused(
                f"gave the id {first} of {want.sequence}, which is not {self._offset} in steps of {self.wide}: a "
                "trigger changes ids, or something between changes statements or shares sessions"
            )
        if (end := first + self.further) in _COLUMN_ENDS and not self._line.mariadb:
            self.instead = want._replace(above=end, drawn=False)
        return Drawn(first, min(fit, self.further // increment + 1))
