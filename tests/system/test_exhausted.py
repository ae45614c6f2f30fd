"""The end of a sequence: every ticket up to it and none twice, 410 for that sequence alone."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.harness.notebook import Notebook
from tests.harness.pair import MySQLPair, Schema
from tests.harness.proxy import FaultyProxy
from tests.harness.ticketd import PATIENT, TicketServer

ODD, EVEN = 1, 2
LEFT = 12
"""How many ids each sequence has before its end."""


class Column(NamedTuple):
    """A type of id column: the largest ticket, and whether the column gives its largest id again and again."""

    definition: str
    ceiling: int
    repeats: bool

    def tickets(self, schema: Schema) -> list[int]:
        """Those that are left. The largest id, which may have been given before, is never handed out; MySQL refuses the
        one before it as well, which leaves no room for the increment."""
        lost = 0 if not self.repeats else 1 if schema.pair.odd.engine.is_mariadb else 2
        return list(range(self.ceiling - LEFT + 1, self.ceiling - lost + 1))


COLUMNS = {
    "int_unsigned": Column("INT UNSIGNED", 2**32 - 1, True),
    "int_signed": Column("INT", 2**31 - 1, True),
    "bigint_unsigned": Column("BIGINT UNSIGNED", 2**63 - 1, False),
    "bigint_signed": Column("BIGINT", 2**63 - 1, True),
}


@pytest.fixture(scope="module")
def schema(new_schema: Callable[[], Schema]) -> Schema:
    return new_schema()


@pytest.fixture(scope="module")
def links(mysql_pair: MySQLPair) -> Iterator[tuple[FaultyProxy, FaultyProxy]]:
    with FaultyProxy(mysql_pair.odd.port) as odd, FaultyProxy(mysql_pair.even.port) as even:
        yield odd, even


@pytest.fixture(scope="module")
def server(schema: Schema, links: tuple[FaultyProxy, FaultyProxy]) -> Iterator[TicketServer]:
    """One ticket server, whose databases can be taken away by their proxies."""
    urls = [database.url_of(schema.name, link.port) for database, link in zip(schema.pair, links, strict=True)]
    with TicketServer(" ".join(urls), settings=PATIENT | {"TICKETS_PROBE_INTERVAL": 0.2}) as server:
        server.wait_health()
        yield server


@pytest.fixture(params=COLUMNS)
def column(request: pytest.FixtureRequest) -> Column:
    return COLUMNS[request.param]


def make_nearly_full(schema: Schema, server: TicketServer, name: str, column: Column, left: int = LEFT) -> None:
    """A sequence with so many ids left on both databases together, made as a DBA would make it.

    The server stands still meanwhile: it makes by itself what it finds on one of them alone.
    """
    server.freeze()
    for index in (0, 1):
        schema.execute(
            index,
            f"CREATE TABLE `{name}` (id {column.definition} NOT NULL AUTO_INCREMENT, "
            "stub CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '', "
            f"PRIMARY KEY (stub), KEY id (id)) ENGINE=InnoDB AUTO_INCREMENT={column.ceiling - left + 1}",
        )
    server.thaw()


def take_all(notebook: Notebook, server: TicketServer) -> list[int]:
    """Single tickets until there are no more."""
    taken: list[int] = []
    while (answer := notebook.ask(server)).status == 200:
        taken += answer.ids
        assert len(taken) <= LEFT, taken
    assert answer.status == 410, (answer, server.log_text()[-3000:])
    assert "exhausted" in answer.error
    return taken


def test_every_ticket_up_to_the_end_and_then_410_for_this_sequence_alone(
    schema: Schema, server: TicketServer, column: Column, new_name: Callable[[], str]
) -> None:
    name = new_name()
    make_nearly_full(schema, server, name, column)
    notebook = Notebook(name)
    taken = take_all(notebook, server)
    assert sorted(taken) == column.tickets(schema)
    for _ in range(4):
        assert notebook.ask(server).status == 410
        assert notebook.ask(server, "count", 3).status == 410
        assert notebook.ask(server, "block", 10).status == 410
        server.ticket("photos")
    notebook.check()
    found = server.get(f"/sequence/{name}").json()
    assert found["exhausted"] is True
    assert found["ceiling"] == column.ceiling
    assert [each["headroom"] for each in found["databases"]] == [0, 0]
    with TicketServer(schema.urls, settings=PATIENT) as another:
        another.wait_health("warn")
        assert notebook.ask(another).status == 410
        another.ticket("photos")
    notebook.check()


def test_the_last_tickets_come_one_at_a_time_when_several_do_not_fit(
    schema: Schema, server: TicketServer, column: Column, new_name: Callable[[], str]
) -> None:
    """More than there are left in a count or a block is refused and uses up none of them."""
    name = new_name()
    make_nearly_full(schema, server, name, column)
    notebook = Notebook(name)
    first = notebook.take(server, "count", 2)
    for kind, size in (("block", 500), ("block", 10_000), ("count", 100)):
        answer = notebook.ask(server, kind, size)  # type: ignore[arg-type]
        assert answer.status == 410, answer
    rest = take_all(notebook, server)
    assert sorted([*first, *rest]) == column.tickets(schema)
    notebook.check()


def test_503_while_a_database_that_may_have_some_left_is_away(
    schema: Schema,
    server: TicketServer,
    links: tuple[FaultyProxy, FaultyProxy],
    column: Column,
    new_name: Callable[[], str],
) -> None:
    name = new_name()
    make_nearly_full(schema, server, name, column)
    notebook = Notebook(name)
    notebook.take(server)
    notebook.take(server)
    links[1].refuse()
    server.wait_database(links[1].name, "down")
    taken: list[int] = []
    while (answer := notebook.ask(server)).status == 200:
        taken += answer.ids
    assert {ticket % 2 for ticket in taken} == {1}
    assert answer.status == 503
    reply = server.get(f"/ticket/{name}")
    assert reply.status == 503
    assert int(reply.headers["retry-after"]) >= 1
    server.ticket("photos")
    links[1].restore()
    server.wait_database(links[1].name, "up")
    assert {ticket % 2 for ticket in take_all(notebook, server)} <= {0}
    notebook.check()
