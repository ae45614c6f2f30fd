"""The lease of a worker number: which number a server gets, how long it holds it, and when another server has it."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from app.common.errors import NoTicketDatabase, TicketError
from app.tickets.sources.rights import NotYet
from app.tickets.sources.worker_lease import LEASE_MS, MARGIN_MS, RENEW_SECONDS, WORKERS
from tests.fakes.ticket_server import Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.sources.leases import leased, made, passed, put, row, worker_and_time
from tests.unit.tickets.sources.stamping import EPOCH, HOUR, Wall, take, true_ms

# --- which number ----------------------------------------------------------------------------------------------------


@virtual_time
async def test_nobody_leases_a_number_that_no_sequence_needs() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await asyncio.sleep(60)
        assert server.lease.lease is None
        assert not any(key[0].startswith("_worker") for database in site.servers for key in database.state.marks)
        assert server.lease.reason is None


@pytest.mark.parametrize("databases", [1, 2, 3])
def test_the_smallest_free_number_of_a_databases_residue(databases: int) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(databases) as site:
            leases = [await leased(await site.ticket_server()) for _ in range(4)]
            assert [lease.number for lease in leases] == [1 % databases + databases * each for each in range(4)]
            site.servers[0].down = True
            if databases > 1:
                await asyncio.sleep(2)
                number = (await leased(await site.ticket_server())).number
                assert number % databases == 2 % databases

    scenario()


@pytest.mark.parametrize("databases", [2, 3])
def test_a_number_belongs_to_one_database_and_is_known_to_all(databases: int) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(databases) as site:
            for _ in range(4):
                lease = await leased(await site.ticket_server())
                database = lease.member.database
                assert lease.number % databases == database.offset % databases
                rows = [row(each, lease) for each in site.servers]
                assert {(each.token, each.mark) for each in rows if each is not None} == {(lease.token, lease.until_ms)}
                assert None not in rows

    scenario()


@virtual_time
async def test_many_servers_that_begin_at_once_have_a_number_each() -> None:
    async with Site(2) as site:
        servers = [await site.ticket_server() for _ in range(20)]
        leases = await asyncio.gather(*(leased(server, 20.0) for server in servers))
        assert max(Counter(lease.number for lease in leases).values()) == 1


@virtual_time
async def test_the_1025th_server_is_told_so() -> None:
    async with Site(2) as site:
        for number in range(WORKERS - 1):
            put(site.servers, number, true_ms() + LEASE_MS)
        last, too_many = await site.ticket_server(), await site.ticket_server()
        await made(last)
        assert (await leased(last)).number == WORKERS - 1
        with pytest.raises(NoTicketDatabase, match="1,024 at most"):
            await take(too_many)
        assert any("1,024 at most" in warning["reason"] for warning in too_many.admin.health()["warnings"])


@virtual_time
async def test_with_half_of_the_databases_away_nobody_says_that_all_numbers_are_leased() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server)
        await site.stop(server)
        for number in range(1, WORKERS, 2):
            put(site.servers, number, true_ms() + LEASE_MS)
        site.servers[1].down = True
        server = await site.ticket_server()
        with pytest.raises(NoTicketDatabase, match="that are up"):
            await take(server)


# --- its way through time --------------------------------------------------------------------------------------------


@virtual_time
async def test_it_is_renewed_long_before_it_ends() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        first = await leased(server)
        for _ in range(30):
            await asyncio.sleep(RENEW_SECONDS + 0.1)
            lease = await leased(server)
            assert (lease.number, lease.token, lease.after_ms) == (first.number, first.token, first.after_ms)
            assert LEASE_MS - RENEW_SECONDS * 1000 - 1000 < lease.until_ms - true_ms() <= LEASE_MS
            assert [each and each.mark for each in (row(database, lease) for database in site.servers)] == [
                lease.until_ms
            ] * 2


@virtual_time
async def test_a_restart_has_the_number_again_as_soon_as_the_last_id_is_past() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server)
        (before,) = await take(server)
        await asyncio.sleep(MARGIN_MS / 1000 + 0.1)
        server = await site.restart(server)
        (after,) = await take(server)
        assert worker_and_time(server, before)[0] == worker_and_time(server, after)[0] == 1
        assert before < after


@virtual_time
async def test_a_restart_at_once_takes_the_next() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server)
        (before,) = await take(server)
        server = await site.restart(server)
        (after,) = await take(server)
        assert (worker_and_time(server, before)[0], worker_and_time(server, after)[0]) == (1, 3)


@virtual_time
async def test_who_leaves_no_word_keeps_the_number_up_to_the_end_of_the_lease() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        lease = await leased(server)
        server.cut_off()
        other = await site.ticket_server()
        assert (await leased(other)).number == 3
        await asyncio.sleep((lease.until_ms - true_ms() + MARGIN_MS) / 1000 + 0.1)
        third = await leased(await site.ticket_server())
        assert third.number == lease.number
        assert third.after_ms == lease.until_ms


@virtual_time
async def test_one_that_was_taken_over_is_lost_and_its_times_are_nobody_elses() -> None:
    async with Site(2) as site:
        late, wall = await site.ticket_server(), Wall()
        await made(late)
        lease = await leased(late)
        late.cut_off()
        await asyncio.sleep(LEASE_MS / 1000 + 3)
        other = await site.ticket_server(wall=wall)
        taken = await leased(other)
        assert taken.number == lease.number
        wall.off = -MARGIN_MS / 1000 - 1  # it has the right to no time of the other's, whatever its clock says
        assert worker_and_time(other, (await take(other))[0])[1] > lease.until_ms
        late.reconnect()
        await asyncio.sleep(3)
        assert (await leased(late)).number == 3
        assert late.lease.lease is not None
        (id_,) = await take(late)
        assert worker_and_time(late, id_)[0] == 3


@virtual_time
async def test_nothing_is_stamped_beyond_its_end_and_it_is_renewed_for_whoever_asks() -> None:
    """Its clock was behind, and is put right: the lease is over at once, and the next renewal is far."""
    async with Site(2) as site:
        wall = Wall(-HOUR)
        server = await site.ticket_server(wall=wall)
        await made(server)
        await take(server)
        wall.off = 0
        (id_,) = await take(server)
        assert abs(worker_and_time(server, id_)[1] - true_ms()) < 1000
        lease = server.lease.lease
        assert lease is not None
        assert lease.until_ms > true_ms() + 100_000


@virtual_time
async def test_the_end_of_a_lease_is_told_at_once_where_nobody_can_renew_it() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server)
        await take(server)
        for database in site.servers:
            database.down = True
        await asyncio.sleep(110)
        await take(server)
        await asyncio.sleep(20)
        began = true_ms()
        with pytest.raises(NoTicketDatabase, match="run out"):
            await take(server)
        assert true_ms() - began < 100
        for database in site.servers:
            database.down = False
        await asyncio.sleep(2)
        await take(server)


# --- the same number again -------------------------------------------------------------------------------------------


@virtual_time
async def test_a_number_that_another_held_meanwhile_stamps_above_what_that_one_stamped() -> None:
    """This server leases it again, with its clock behind the other's; another sequence has stamped nothing since."""
    async with Site(2) as site:
        wall = Wall()
        server = await site.ticket_server(wall=wall)
        await made(server)
        seen = await take(server)
        server.cut_off()
        await asyncio.sleep(LEASE_MS / 1000 + 3)
        other = await site.ticket_server()
        assert (await leased(other)).number == 1
        seen += await take(other, 3)
        await asyncio.sleep(3)
        put(site.servers, 3, true_ms() + LEASE_MS)
        await site.stop(other)
        await asyncio.sleep(3)
        server.reconnect()
        await asyncio.sleep(3)
        assert (await leased(server)).number == 1
        last = max(worker_and_time(server, id_)[1] for id_ in seen)
        wall.off = (last - true_ms()) / 1000
        for step in range(40):
            wall.off += 0.0005 * step
            try:
                seen += await take(server)
            except TicketError:
                await asyncio.sleep(0.1)
        assert len(set(seen)) == len(seen)
        assert sorted(worker_and_time(server, id_)[1] for id_ in seen)[-1] > last


@pytest.mark.parametrize("kind", ["snowflake", "flake", "objectid"])
def test_a_change_of_the_ring_begins_nothing_anew(kind: str) -> None:
    """The sequences are looked up anew in another ring; what was stamped under the same number is past all the same."""

    @virtual_time
    async def scenario() -> None:
        async with Site(2, increment=3) as site:
            wall = Wall()
            server = await site.ticket_server(wall=wall)
            await server.admin.make("likes", kind, {"epoch": EPOCH} if kind == "snowflake" else {})
            seen = await take(server, 50)
            for database in site.servers:
                assert database.state.ring is not None
                database.state.ring = replace(database.state.ring, number=9, since=9)
            took_at = true_ms()
            await passed(lambda: server.ring.number == 9 and "likes" in server.catalog.entries, 0.05)
            wall.off = (took_at - true_ms()) / 1000 - 0.005
            for _ in range(200):
                await asyncio.sleep(0.0005)
                try:
                    seen += await take(server, 5)
                except TicketError:
                    continue
            assert server.ring.number == 9
            assert len(seen) > 100
            assert len(set(seen)) == len(seen)
            assert seen == sorted(seen)

    scenario()


# --- giving it back --------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_request_that_waits_while_the_number_is_given_back_stamps_nothing() -> None:
    """Its clock went back, so the request waits; what is given back is free above the last time that was stamped."""
    async with Site(2) as site:
        wall = Wall()
        server = await site.ticket_server(wall=wall)
        await made(server)
        await take(server)
        wall.off = -0.05
        waiting = [asyncio.create_task(take(server)) for _ in range(3)]
        await asyncio.sleep(0.04)
        wall.off = 0.5
        lease = await leased(server)
        last_ms = server.sources.last_ms
        stop = asyncio.create_task(server.lease.stop(last_ms))
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        await stop
        marks = [row(database, lease) for database in site.servers]
        given = [worker_and_time(server, ids[0])[1] for ids in answers if isinstance(ids, list)]
        assert all(mark is not None and mark.mark >= max([last_ms, *given]) for mark in marks)
        assert all(mark is not None and mark.token.endswith(":free") for mark in marks)
        with pytest.raises(NotYet):
            server.lease.right()


@pytest.mark.parametrize("moment", [0.0, 0.001, 0.002, 0.003, 0.005, 0.008])
def test_it_is_given_back_though_a_renewal_is_under_way(moment: float) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            server = await site.ticket_server()
            await leased(server)
            await asyncio.sleep(1)
            held = await leased(server)
            other = server.ring.members[1]
            server.ring.mark_down(other, "a test says so")
            await passed(lambda: other.up, 0.0005)  # then it is renewed at once
            await asyncio.sleep(moment)
            await site.stop(server)
            await asyncio.sleep(MARGIN_MS / 1000 + 0.1)
            assert (await leased(await site.ticket_server())).number == held.number

    scenario()


@virtual_time
async def test_two_sequences_of_one_server_share_the_number() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server, "likes", "loves")
        (one,), (other,) = await take(server), await take(server, 1, "loves")
        assert worker_and_time(server, one)[0] == worker_and_time(server, other)[0] == 1
