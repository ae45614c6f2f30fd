"""64 connections on one sequence, on tables of InnoDB and MyISAM, with Flickr's keys and without."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.harness.load import Load, Want
from tests.harness.pair import Schema
from tests.harness.ticketd import PATIENT, TicketServer
from tests.system.failover import addresses, drawn_by


@pytest.fixture(scope="module")
def four_servers(new_schema: Callable[[], Schema]) -> Iterator[tuple[Schema, list[TicketServer]]]:
    schema = new_schema()
    schema.make_flickrs_table("Flickrs")
    schema.make_flickrs_table("FlickrsOwn", engine="MyISAM")
    with ExitStack() as stack:
        servers = [TicketServer(schema.urls, settings=PATIENT) for _ in range(4)]
        for server in servers:
            stack.callback(server.close)
            server.start()
        for server in servers:
            server.wait_ready()
        yield schema, servers


@pytest.mark.parametrize("sequence", ["photos", "Flickrs", "FlickrsOwn"])
def test_64_connections_through_four_servers_meet_no_error_and_no_ticket_twice(
    sequence: str, four_servers: tuple[Schema, list[TicketServer]]
) -> None:
    """New tables; Flickr's keys, which deadlock on InnoDB; and Flickr's own, on MyISAM."""
    schema, servers = four_servers
    with Load(addresses(servers), clients=64, mix=[sequence]) as load:
        load.run_until_tickets(1_000)
    assert load.result.failures() == []
    load.result.check()
    assert drawn_by(load.result, 0, sequence)
    assert drawn_by(load.result, 1, sequence)
    # not MAX(id): of two ids drawn at once the lower may be the one that stays in the row
    tables = [str(schema.execute(index, f"SHOW CREATE TABLE `{sequence}`")[0][1]) for index in (0, 1)]
    counters = [int(table.partition("AUTO_INCREMENT=")[2].split()[0]) for table in tables]
    assert max(a.ids[0] for a in load.result.answers) < max(counters)


def test_blocks_from_a_table_that_is_not_innodbs(four_servers: tuple[Schema, list[TicketServer]]) -> None:
    """Its counter stands behind its largest row, and so a block has to have its last id in one."""
    _, servers = four_servers
    mix = [Want("FlickrsOwn"), Want("FlickrsOwn", "count", 100), Want("FlickrsOwn", "block", 1_000)]
    with Load(addresses(servers), clients=16, mix=mix) as load:
        load.run_until_tickets(4_000)
    assert load.result.failures() == []
    load.result.check()
    for server in servers:
        assert {each["status"] for each in server.wait_health("warn")["databases"]} == {"up"}
