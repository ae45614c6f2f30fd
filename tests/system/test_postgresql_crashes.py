"""PostgreSQL is killed with all its processes, and no issued ticket comes again."""

from collections.abc import Iterator

import pytest

from tests.harness.load import Load, Want
from tests.harness.postgresql import PostgreSQL
from tests.harness.postgresql_clients import Draws
from tests.harness.ticketd import PATIENT, TicketServer

pytestmark = pytest.mark.any_engine

USER = "server"
UPDATERS = 4


@pytest.fixture
def pair() -> Iterator[list[PostgreSQL]]:
    """Two PostgreSQL servers of this test's own."""
    with PostgreSQL(listens=True) as odd, PostgreSQL(listens=True) as even:
        for each in (odd, even):
            each.make_user(USER)
            each.rows("CREATE TABLE busy AS SELECT g AS id, 0 AS n FROM generate_series(1, 8) g;")
        yield [odd, even]


@pytest.mark.parametrize("kills", [4, pytest.param(70, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_kills_under_32_writers_beside_others_that_update_rows(pair: list[PostgreSQL], kills: int) -> None:
    urls = " ".join(each.url_of(USER) for each in pair)
    settings = PATIENT | {"TICKETS_PROBE_INTERVAL": 0.2}
    with TicketServer(urls, settings=settings) as one, TicketServer(urls, settings=settings) as other:
        for server in (one, other):
            server.wait_health()
        assert one.put("/sequence/photos").status == 201
        mix: list[Want | str] = ["photos", Want("photos", "count", 7), Want("photos", "block", 150)]
        with Load([one.address, other.address], mix=mix, clients=32) as load:
            for number in range(kills):
                victim = pair[number % 2]
                updates = "UPDATE busy SET n = n + 1 WHERE id = 1 + (random() * 7)::int RETURNING n;"
                updating = Draws(victim, UPDATERS, updates, 100_000)
                load.run_until_tickets(200)
                victim.kill()
                updating.wait()
                load.run_until_tickets(100)
                victim.start()
                for server in (one, other):
                    server.wait_health()
            load.run_until_tickets(200)
        assert load.result.duplicates() == []
        assert load.result.failures() == []
