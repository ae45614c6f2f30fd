"""docs/databases/variables.md has a row for every variable of the running server."""

import fnmatch

from tests.harness.pair import MySQLPair
from tests.harness.variables import rows_of_page

LEAST_LETTERS = 3
"""A pattern has so many letters at the least."""


def test_every_variable_of_the_server_has_a_row(mysql_pair: MySQLPair) -> None:
    listed = {
        str(row[0]).lower()
        for scope in ("SESSION", "GLOBAL")
        for row in mysql_pair.odd.execute(f"SHOW {scope} VARIABLES", database=None)
    }
    assert len(listed) > 500
    missing = [name for name in sorted(listed) if not any(fnmatch.fnmatchcase(name, row) for row in rows_of_page())]
    assert not missing, missing


def test_no_pattern_covers_everything_and_no_name_stands_twice() -> None:
    found = rows_of_page()
    assert all(len(row.replace("*", "")) >= LEAST_LETTERS for row in found)
    assert len(found) == len(set(found)), [row for row in found if found.count(row) > 1]
