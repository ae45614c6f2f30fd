"""mysql_init/ on real servers: it may be run again, and what it makes is served as it is."""

import re

import pytest

from tests.deploy.files import ROOT
from tests.servers import Engine, engines
from tests.servers_shared import FreshDatabase, SharedServers
from tests.ticketd import TicketServer

SEQUENCES = ["accounts", "groups", "offline_tasks", "photos", "Tickets32", "Tickets64"]


@pytest.mark.parametrize("engine", engines("mariadb", "mysql"))
def test_the_first_tables_are_made_once_and_served(
    engine: Engine, fresh_database: FreshDatabase, shared_servers: SharedServers
) -> None:
    url = fresh_database(engine, offset=1, increment=1)
    server, database = shared_servers.server(engine, offset=1, increment=1), url.rpartition("/")[2]
    (script,) = (ROOT / "mysql_init").glob("*.sql")
    statements = re.sub(r"--.*", "", script.read_text(encoding="utf-8")).split(";")
    for _ in range(2):
        for statement in filter(str.strip, statements):
            server.execute(statement, database)
        server.execute("REPLACE INTO photos (stub) VALUES ('a')", database)
    with TicketServer([url]) as served:
        assert [each["sequence"] for each in served.get("/sequence").json()["sequences"]] == SEQUENCES
        assert served.take("photos") > [2]
        assert [*served.take("groups"), *served.take("Tickets32")] == [1, 1]
        assert [each for each in served.health()["warnings"] if each["sequence"]] == []
