"""What a session sets and reads back is what docs/databases/variables.md says."""

import re

import pytest

from app.databases.mysql.line import session_sql
from tests.harness.variables import rows_of_page


@pytest.mark.parametrize("mariadb", [False, True])
def test_what_the_page_says_is_set_is_what_a_session_sets(mariadb: bool) -> None:
    said = set(rows_of_page("Set in every session, and read back"))
    prepared = session_sql.prepare(2, 1, "tickets", mariadb=mariadb)
    assignments = set(re.findall(r"(\w+) = ", prepared[1]))
    assert assignments <= said
    read_back = set(re.findall(r"@@SESSION\.(\w+)", session_sql.read_back(2, 1, mariadb=mariadb)))
    refused = set(rows_of_page("Read back, and refused by name"))
    assert read_back <= said | refused
    other = set(session_sql.settings(2, 1, mariadb=not mariadb)) | {"tx_isolation", "transaction_isolation"}
    assert said <= read_back | other | {"character_set_connection"}
