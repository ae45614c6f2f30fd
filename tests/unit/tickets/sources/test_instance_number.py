"""The number of a server's life, drawn once."""

import asyncio
from collections.abc import Callable

import pytest

from app.common.errors import SequenceUnavailable, TicketDatabaseBusy
from app.common.sequences import Width
from app.databases.protocol import Drawn, Residue, Table
from app.tickets.requests.request import TicketRequest
from app.tickets.sources.instance_number import TABLE
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time


def refuses_first_draw(server: FakeTicketServer, then: Callable[[], object]) -> None:
    """The first database does not serve the first draw of an instance number, and something happens meanwhile."""
    database = server.databases[0]
    start_draw = database.start_draw

    def busy(
        residue: Residue, table: Table, count: int, after: int, done: Callable[[Drawn], None], *, least: int = 0
    ) -> None:
        if table.sequence != TABLE:
            start_draw(residue, table, count, after, done, least=least)
            return
        database.start_draw = start_draw  # type: ignore[method-assign]
        then()
        asyncio.get_running_loop().call_soon(done, TicketDatabaseBusy("deadlocked"))

    database.start_draw = busy  # type: ignore[method-assign]


async def drawn(server: FakeTicketServer) -> int:
    """Its number, once it has one."""
    server.instance.need()
    for _ in range(1_000):
        await asyncio.sleep(0.01)
        if server.instance.number is not None:
            return server.instance.number
    raise AssertionError("it never had one")


@virtual_time
async def test_the_next_database_is_asked_where_the_first_does_not_serve() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        refuses_first_draw(server, lambda: None)
        assert await drawn(server) % 2 == 0


@pytest.mark.parametrize("what", ["down", "suspended"])
def test_no_number_comes_from_a_database_that_cannot_be_asked_any_more(what: str) -> None:
    """The turn began with both. What one that is down gives, nothing protects and nobody warns of; one that is
    suspended is being tried."""

    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            server = await site.ticket_server()
            second = server.ring.members[1]

            asked_while: list[bool] = []

            def happens() -> None:
                lane = server.lane(TABLE, 2)
                ask = lane.ask

                def noted(request: TicketRequest) -> None:
                    asked_while.append(second.up and lane.can_be_asked)
                    ask(request)

                lane.ask = noted  # type: ignore[method-assign]
                if what == "down":
                    server.ring.mark_down(second, "refuses connections")
                else:
                    lane.suspend(SequenceUnavailable("stands still"))

            refuses_first_draw(server, happens)
            assert await drawn(server) > 0
            assert all(asked_while)

    scenario()


@virtual_time
async def test_a_database_that_has_joined_gives_none_that_another_gave_in_the_ring_before() -> None:
    """Until the increment grew, 3 was the first one's. No mark tells of that, for the third has never drawn."""
    async with Site(3, increment=4) as site:
        for database in site.servers[:2]:
            database.make(TABLE, Width.BIGINT, 101)
        assert await drawn(await site.ticket_server()) > 100
        assert site.servers[2].state.tables[TABLE].counter > 100
