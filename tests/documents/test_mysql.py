"""The steps of README and docs/ on two databases: from an empty MySQL to the first ticket, and from Flickr's tables."""

import os
import re
import sys
from pathlib import Path

from tests.documents import pages
from tests.documents.pages import REPOSITORY
from tests.harness.commands import forked_ticketd
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair
from tests.harness.processes import free_port
from tests.harness.schema import LEAST_PRIVILEGES, PASSWORD, SCHEMA
from tests.harness.ticketd import PATIENT, TicketServer

SETTINGS = "auto_increment_increment", "auto_increment_offset"


def prepare(database: TicketMySQL) -> None:
    """An empty MySQL, then the statements of README."""
    database.execute(f"DROP DATABASE {SCHEMA}", database=None)
    script = pages.block("README.md", "CREATE DATABASE tickets").replace("'...'", f"'{PASSWORD}'")
    for statement in filter(str.strip, script.split(";")):
        database.execute(statement, database=None)


def test_the_steps_of_the_readme_lead_to_a_ticket(own_pair: MySQLPair, tmp_path: Path) -> None:
    for database in own_pair:
        prepare(database)
    program = tmp_path / "ticketd-env/bin/ticketd"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m app "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    (tmp_path / "password").write_text(f"{PASSWORD}\n", encoding="utf-8")
    port = free_port()
    serve = "ticketd-env/bin/ticketd serve"
    ready = f"until curl --fail --silent --output ready http://127.0.0.1:{port}/readyz; do sleep 0.2; done"
    first = pages.block("README.md", "curl --fail -X PUT").replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    said = pages.run(
        pages.block("README.md", "export TICKETS_DATABASES") + first,
        tmp_path,
        replacing={
            "db1.example": f"127.0.0.1:{own_pair.odd.port}",
            "db2.example": f"127.0.0.1:{own_pair.even.port}",
            "/path/to/password": str(tmp_path / "password"),
            serve: f"{serve} 2> log & trap 'kill %1' EXIT; {ready}",
        },
        environment={
            "TICKETS_PORT": str(port),
            "TICKETS_DRAIN_SECONDS": "0",
            "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'client'}",
            "PATH": os.environ["PATH"],
        },
    )
    assert '{"sequence":"photos","id":1,' in said
    assert said.count("ok: 127.0.0.1:") == 2


def test_the_two_settings_are_those_of_the_configuration_files() -> None:
    wanted = {}
    for name in ("odd", "even"):
        text = (REPOSITORY / f"deploy/mysql/{name}.cnf").read_text(encoding="utf-8")
        wanted[name] = [re.findall(rf"^{setting} *= (\d+)$", text, re.MULTILINE) for setting in SETTINGS]
    for page in ("README.md", "docs/databases/mysql-and-mariadb.md"):
        (block,) = [each.text for each in pages.blocks(page) if each.language == "ini"]
        shown = [re.findall(rf"{setting} *= (\d+)", block) for setting in SETTINGS]
        odd, even = ([[values[place]] for values in shown] for place in (0, 1))
        assert {"odd": odd, "even": even} == wanted


def test_the_account_has_the_least_privileges() -> None:
    granted = re.search(r"GRANT (.*) ON", pages.block("docs/databases/mysql-and-mariadb.md", "GRANT"))
    assert granted is not None
    assert set(granted[1].split(", ")) == set(LEAST_PRIVILEGES.split(", "))


def test_tables_to_flickrs_schema_are_served_above_what_they_have_given(own_pair: MySQLPair) -> None:
    statement = pages.block("docs/moving-over.md", "CREATE TABLE `Tickets64`")
    for database in own_pair:
        database.execute("DROP TABLE IF EXISTS Tickets64")
        database.execute(statement.strip().removesuffix(";"))
        for _ in range(3):
            database.execute("REPLACE INTO Tickets64 (stub) VALUES ('a')")
    before = max(own_pair.all_largest_ids("Tickets64"))
    with TicketServer(own_pair.urls, settings=PATIENT) as server:
        server.wait_ready()
        assert min(server.ticket("Tickets64") for _ in range(4)) > before
        warnings = server.wait_health("warn")["warnings"]
    reasons = " ".join(each["reason"] for each in warnings if each["sequence"] == "Tickets64")
    assert "MyISAM" in reasons
    assert "deadlock" in reasons


def test_a_sequence_moves_from_the_embedded_pair_to_mysql(own_pair: MySQLPair) -> None:
    """As docs/moving-over.md has it: the new sequence is bumped above the last ticket that `ticketd list` shows."""
    with TicketServer(settings=PATIENT) as old:
        old.wait_ready()
        before = max(old.ticket("photos") for _ in range(20))
        head, row = (line.split() for line in forked_ticketd("list", "photos", "--url", old.url).lines[:2])
    last = row[head.index("LAST")].replace(",", "")
    with TicketServer(own_pair.urls, settings=PATIENT) as new:
        new.wait_ready()
        assert forked_ticketd("create", "photos", "--url", new.url).status == 0
        assert forked_ticketd("bump", "photos", "--above", last, "--url", new.url).status == 0
        assert min(new.ticket("photos") for _ in range(4)) > before
