"""docs/mysql-variables.md: every variable of the running server has a row, and what is said to be set is set."""

import fnmatch
import re
from pathlib import Path

import pytest

from app.databases.mysql import session_sql
from tests.harness.pair import MySQLPair

PAGE = (Path(__file__).parents[2] / "docs" / "mysql-variables.md").read_text(encoding="utf-8")
TOO_WIDE = 3
"""A pattern has so many letters at the least."""


def rows(heading: str = "") -> list[str]:
    """The names and patterns in the first columns of the tables under a heading, or of all."""
    part = PAGE.partition(f"\n## {heading}")[2].partition("\n## ")[0] if heading else PAGE
    cells = re.findall(r"^\| (`[^|]*) \|", part, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_every_variable_of_the_server_has_a_row(mysql_pair: MySQLPair) -> None:
    listed = {
        str(row[0]).lower()
        for scope in ("SESSION", "GLOBAL")
        for row in mysql_pair.odd.execute(f"SHOW {scope} VARIABLES", database=None)
    }
    assert len(listed) > 500
    missing = [name for name in sorted(listed) if not any(fnmatch.fnmatchcase(name, row) for row in rows())]
    assert not missing, missing


def test_no_pattern_covers_everything_and_no_name_stands_twice() -> None:
    found = rows()
    assert all(len(row.replace("*", "")) >= TOO_WIDE for row in found)
    assert len(found) == len(set(found)), [row for row in found if found.count(row) > 1]


@pytest.mark.parametrize("mariadb", [False, True])
def test_what_the_page_says_is_set_is_what_a_session_sets(mariadb: bool) -> None:
    said = set(rows("Set in every session, and read back"))
    prepared = session_sql.prepare(2, 1, mariadb=mariadb)
    assignments = set(re.findall(r"(\w+) = ", prepared[1]))
    assert assignments <= said
    read_back = set(re.findall(r"@@SESSION\.(\w+)", session_sql.read_back(2, 1, mariadb=mariadb)))
    refused = set(rows("Read back, and refused by name"))
    assert read_back <= said | refused
    other = set(session_sql.settings(2, 1, mariadb=not mariadb)) | {"tx_isolation", "transaction_isolation"}
    assert said <= read_back | other | {"character_set_connection"}
