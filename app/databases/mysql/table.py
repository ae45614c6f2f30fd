"""A sequence's table on MySQL or MariaDB, with all that matters for draws from it."""

from dataclasses import dataclass

from app.databases.protocol import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class MySQLTable(Table):
    """`column_end`: the largest number that its column holds. A column gives that one again and again, without an
    error, so it is never certain to be the first time. `rows_per_statement`: how many tickets one plain statement
    draws. `counts_rows`: its counter stands right behind its largest row, whatever the increment was.
    """

    column_end: int
    rows_per_statement: int
    counts_rows: bool = False

    @property
    def last(self) -> int:
        """See Table.last."""
        return self.ceiling if self.ceiling < self.column_end else self.column_end - 1
