"""Ticket databases that fold table names to lower case, and a ring in which only some do."""

from collections.abc import Iterator

import pytest
import redis

from tests.harness.doctor import doctor, notes, wrong
from tests.harness.engine import Engine
from tests.harness.mysqld import TicketMySQL
from tests.harness.notebook import Notebook
from tests.harness.pair import MySQLPair, Schema
from tests.harness.processes import free_port
from tests.harness.ticketd import PATIENT, TicketServer, begin_ring

SETTINGS = PATIENT | {"TICKETS_PROBE_INTERVAL": 0.2}
FOLDS = "folds table names to lower case (lower_case_table_names is not 0)"


@pytest.fixture(scope="module")
def folding(engine: Engine) -> Iterator[MySQLPair]:
    with MySQLPair(engine, folds_names=True) as pair:
        yield pair


@pytest.mark.parametrize("reserve", [0, 5])
def test_every_name_that_is_given_is_folded(folding: MySQLPair, reserve: int) -> None:
    port = free_port()
    settings = SETTINGS | {"TICKETS_RESERVE_SECONDS": reserve, "TICKETS_REDIS_PORT": port}
    with TicketServer(folding.urls, settings=settings) as server, redis.Redis(port=port) as client:
        server.wait_health()
        name = f"MyPhotos{reserve}"
        small = name.lower()
        assert server.get("/ticket/Tickets64").json()["sequence"] == "tickets64"
        made = server.put(f"/sequence/{name}", json={"bits": 32})
        assert (made.status, made.json()["sequence"]) == (201, small)
        assert server.put(f"/sequence/{name.upper()}", json={"bits": 32}).status == 200
        for given in (name, small, name.upper()):
            assert server.get(f"/ticket/{given}").json()["sequence"] == small
            assert server.get(f"/ticket/{given}?count=3").json()["sequence"] == small
            assert server.get(f"/block/{given}?size=20").json()["sequence"] == small
            assert server.get(f"/sequence/{given}").json()["sequence"] == small
            assert server.get(f"/decode/{given}/7").json()["sequence"] == small
        bumped = server.post(f"/sequence/{name}/bump", json={"above": 1_000})
        assert (bumped.status, bumped.json()["sequence"]) == (200, small)
        assert server.ticket(name) > 1_000
        assert client.incr(name) > 1_000
        assert client.exists(name, small) == 2
        assert len(client.execute_command("TICKET.TAKE", name, "COUNT", "3")) == 3
        notebook = Notebook(small)
        notebook.take_all_kinds(server)
        notebook.check()
        kind = f"Likes{reserve}"
        liked = server.put(f"/sequence/{kind}", json={"kind": "instagram"})
        assert (liked.status, liked.json()["sequence"]) == (201, kind.lower())
        assert server.get(f"/ticket/{kind}").json()["sequence"] == kind.lower()
        listed = [each["sequence"] for each in server.get("/sequence").json()["sequences"]]
        assert small in listed
        assert all(each == each.lower() for each in listed)
        for database in folding:
            kept = {row[0] for row in database.execute("SELECT sequence FROM _high_water")}
            assert small in kept
            assert all(str(each) == str(each).lower() for each in kept)
    assert any(FOLDS in note for note in notes(doctor(folding.urls)))


def test_in_a_ring_in_which_only_one_folds_that_one_is_quarantined(fragile: Schema, engine: Engine) -> None:
    begin_ring(fragile.urls)
    even = fragile.pair.even
    with TicketMySQL(engine, offset=1, folds_names=True) as odd:
        urls = f"{odd.url} {even.url_of(fragile.name)}"
        with TicketServer(urls, settings=SETTINGS) as server:
            found = server.wait_database(odd.name, "quarantined")
            assert found["last_error"].startswith(FOLDS)
            assert even.name in found["last_error"]
            assert server.get("/ticket/Tickets64").json()["sequence"] == "Tickets64"
            assert server.get("/ticket/tickets64").status == 404
        (line,) = [each for each in wrong(doctor(urls)) if FOLDS in each]
        assert line.startswith(odd.name)


def test_one_that_comes_later_and_does_not_fold_ends_the_folding(folding: MySQLPair, engine: Engine) -> None:
    begin_ring(folding.urls)
    odd = folding.odd
    with TicketMySQL(engine, offset=2) as even:
        even.kill()
        with TicketServer(f"{odd.url} {even.url}", settings=SETTINGS) as server:
            server.wait_database(odd.name, "up")
            assert server.get("/ticket/Tickets64").json()["sequence"] == "tickets64"
            even.restart()
            found = server.wait_database(odd.name, "quarantined")
            assert found["last_error"].startswith(FOLDS)
            server.wait_database(even.name, "up")
            assert server.get("/ticket/Tickets64").json()["sequence"] == "Tickets64"
            assert server.get("/ticket/tickets64").status == 404
