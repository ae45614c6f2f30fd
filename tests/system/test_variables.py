"""Ticket databases whose variables an operator has set as they are found in the field: tickets as ever, none twice."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.harness.engine import Engine
from tests.harness.notebook import Notebook
from tests.harness.pair import MySQLPair, Schema
from tests.harness.ticketd import PATIENT, TicketServer, begin_ring
from tests.harness.variables import worst

NAMES = ("photos", "accounts", "groups", "offline_tasks", "Tickets32", "Tickets64")
SETTINGS = PATIENT | {"TICKETS_PROBE_INTERVAL": 0.2}
AFTER_A_BLOCK = 40
"""Single tickets."""


@pytest.fixture(scope="module")
def worst_pair(engine: Engine) -> Iterator[MySQLPair]:
    """Two databases with the worst of the variables that an operator can set for every session."""
    with MySQLPair(engine, variables=worst(engine)) as pair:
        yield pair


def test_every_request_is_served_with_the_worst_variables(worst_pair: MySQLPair) -> None:
    with TicketServer(worst_pair.urls, settings=SETTINGS) as server:
        health = server.wait_health()
        assert [each["status"] for each in health["databases"]] == ["up", "up"]
        listed = [each["sequence"] for each in server.get("/sequence").json()["sequences"]]
        assert set(NAMES) <= set(listed)
        notebook = Notebook()
        notebook.take_all_kinds(server, rounds=3)
        with ThreadPoolExecutor(8) as clients:
            answers = list(clients.map(lambda _: notebook.ask(server), range(100)))
        assert [each.status for each in answers] == [200] * 100
        above = max(notebook.highest(offset) for offset in (1, 2)) + 1_000
        bumped = server.post("/sequence/photos/bump", json={"above": above})
        assert bumped.status == 200, bumped.text
        assert notebook.take(server)[0] > above
        assert server.put("/sequence/of_the_worst", json={"kind": "instagram"}).status == 201
        assert server.get("/ticket/of_the_worst").status == 200
        notebook.check()
        assert server.get("/healthz").json()["status"] == "pass"


@pytest.mark.parametrize("completion", ["CHAIN", "RELEASE"])
@pytest.mark.parametrize("by", ["global", "init_connect"])
def test_single_tickets_after_a_block_survive_a_kill(engine: Engine, completion: str, by: str) -> None:
    with MySQLPair(engine) as pair:
        for database in pair:
            if by == "global":
                database.execute(f"SET GLOBAL completion_type = '{completion}'")
            else:
                database.execute(f"SET GLOBAL init_connect = \"SET completion_type = '{completion}'\"")
        notebook = Notebook()
        with TicketServer(pair.urls, settings=SETTINGS) as server:
            server.wait_health()
            for _ in range(4):
                notebook.take(server, "block", 100)
            for _ in range(AFTER_A_BLOCK):
                notebook.take(server)
            pair.kill()
        pair.start()
        with TicketServer(pair.urls, settings=SETTINGS) as server:
            server.wait_health()
            for _ in range(AFTER_A_BLOCK):
                notebook.take(server)
        notebook.check()


@pytest.mark.parametrize(
    "statement",
    [
        "SET autocommit = 0",
        "BEGIN",
        "SET sql_notes = 1 /*M! , max_session_mem_used = 8192 */",
        "SET character_set_results = ucs2, character_set_connection = ucs2",
        "SET collation_connection = utf16_bin",
        "SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,NO_AUTO_VALUE_ON_ZERO'",
    ],
)
def test_what_init_connect_sets_is_set_back(fragile: Schema, statement: str, new_name: Callable[[], str]) -> None:
    try:
        for database in fragile.pair:
            database.execute("SET GLOBAL init_connect = %s", [statement])
        with TicketServer(fragile.urls, settings=SETTINGS) as server:
            server.wait_health()
            notebook = Notebook()
            notebook.take_all_kinds(server, rounds=2)
            for _ in range(10):
                notebook.take(server)
            assert fragile.pair.odd.largest_id("photos", fragile.name) >= notebook.highest(1)
            notebook.check()
            assert server.put(f"/sequence/{new_name()}", json={"kind": "snowflake"}).status == 201
    finally:
        for database in fragile.pair:
            database.execute("SET GLOBAL init_connect = ''")


def test_an_init_connect_that_leads_to_another_database_leads_nowhere(
    fragile: Schema, new_name: Callable[[], str]
) -> None:
    """There the same tables hold tickets that were issued already."""
    other = fragile.pair.make_schema(new_name())
    begin_ring(other.urls)
    before = other.pair.all_largest_ids("photos", other.name)
    notebook = Notebook()
    with TicketServer(fragile.urls, settings=SETTINGS) as server:
        server.wait_health()
        notebook.take_all_kinds(server, rounds=2)
        server.terminate()
    try:
        for database in fragile.pair:
            database.execute("SET GLOBAL init_connect = %s", [f"USE {other.name}"])
        with TicketServer(fragile.urls, settings=SETTINGS) as server:
            server.wait_health()
            notebook.take_all_kinds(server, rounds=2)
        notebook.check()
        assert other.pair.all_largest_ids("photos", other.name) == before
    finally:
        for database in fragile.pair:
            database.execute("SET GLOBAL init_connect = ''")


def test_an_init_connect_that_chooses_the_next_id_is_refused_by_name(fragile: Schema) -> None:
    """Two sessions would draw the same id."""
    begin_ring(fragile.urls)
    odd = fragile.pair.odd
    odd.execute("SET GLOBAL init_connect = 'SET insert_id = 777'")
    try:
        with TicketServer(fragile.urls, settings=SETTINGS) as server:
            server.wait_health("warn")
            found = server.wait_database(odd.name, "quarantined")
            assert found["last_error"].startswith("has insert_id=777 in a session that was prepared otherwise")
            assert server.ticket("photos") % 2 == 0
            odd.execute("SET GLOBAL init_connect = ''")
            server.wait_database(odd.name, "up")
            server.wait_health()
    finally:
        odd.execute("SET GLOBAL init_connect = ''")
