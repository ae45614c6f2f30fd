"""How many worker numbers a server uses up: what it leaves without a word is nobody's for two minutes."""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial

import pytest

from app.common.errors import TicketDatabaseBusy, TicketDatabaseError, TicketDatabaseUnavailable
from app.common.sequences import number_leased
from app.databases.protocol import Mark
from app.tickets.sources.instance_number import Instance
from app.tickets.sources.rights import NotYet
from app.tickets.sources.worker_lease import LEASE_MS, RETRY_SECONDS, Lease
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time


async def leased(server: FakeTicketServer) -> Lease:
    """What it holds and may use."""
    server.lease.need()
    for _ in range(1_000):
        try:
            return server.lease.right()
        except NotYet:
            await asyncio.sleep(0.01)
    raise AssertionError("it has none")


def used(site: Site) -> set[int | None]:
    """The numbers that any database has a row of."""
    return {number_leased(sequence) for server in site.servers for sequence, _, _ in server.state.marks} - {None}


@virtual_time
async def test_a_database_that_comes_and_goes_uses_up_no_numbers() -> None:
    """Whatever number is held, its database is the next to go."""
    async with Site(2) as site:
        server = await site.ticket_server()
        for _ in range(8):
            database = site.servers[(await leased(server)).member.database.offset - 1]
            database.down = True
            await asyncio.sleep(3)
            await leased(server)
            database.down = False
            await asyncio.sleep(3)
        assert used(site) == {1}


@virtual_time
async def test_another_number_is_leased_in_time_where_its_database_stays_away() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        first = await leased(server)
        site.servers[0].down = True
        await asyncio.sleep(LEASE_MS * 0.75 / 1000)
        assert (await leased(server)).number != first.number


@virtual_time
async def test_one_that_is_not_confirmed_waits_for_no_database_that_is_away() -> None:
    """Nothing is stamped until then."""
    async with Site(2) as site:
        server = await site.ticket_server()
        first = await leased(server)
        site.servers[0].down = True
        await asyncio.sleep(2)
        site.servers[1].restart()  # comes up, and may not know of the lease
        await asyncio.sleep(3)
        assert (await leased(server)).number != first.number


@pytest.mark.parametrize("error", [TicketDatabaseBusy, TicketDatabaseUnavailable])
def test_trying_again_and_again_uses_up_no_numbers(error: type[TicketDatabaseError]) -> None:
    """The database that the number belongs to takes the lease, and the other one fails each time."""

    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            server = await site.ticket_server()
            witness = server.databases[1]
            reserve = witness.keep
            tries = 0

            async def failing(marks: Iterable[Mark], ring: int) -> Mapping[tuple[str, int], Mark]:
                nonlocal tries
                asked = list(marks)
                if any(number_leased(mark.sequence) is not None for mark in asked):
                    tries += 1
                    raise error("failed once more")
                return await reserve(asked, ring)

            witness.keep = failing  # type: ignore[method-assign]
            server.lease.need()
            await asyncio.sleep(40 * RETRY_SECONDS)
            assert tries > 8
            assert len(used(site)) <= 2
            witness.keep = reserve  # type: ignore[method-assign]
            other = await site.ticket_server()
            assert (await leased(server)).number != (await leased(other)).number
            assert len(used(site)) <= 3

    scenario()


@pytest.mark.parametrize("kind", ["snowflake", "flake", "objectid"])
def test_a_smaller_number_is_used_from_the_next_moment_on(kind: str) -> None:
    """In the moment of the last id it would make smaller ones."""

    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            server = await site.ticket_server()
            await server.admin.make("likes", kind, {})
            holder = server.lease if kind == "snowflake" else server.instance
            seen: list[int] = []
            for number in (5, 3, 4, 2):
                holder.right = partial(Instance, number)  # type: ignore[method-assign]
                seen += [int(str(id_), 10 if kind == "snowflake" else 16) for id_ in await server.desk.take("likes", 3)]
            assert seen == sorted(set(seen))

    scenario()
