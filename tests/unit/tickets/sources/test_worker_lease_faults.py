"""The lease of a worker number where databases fail, come back older, answer late, or come and go."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from app.common.errors import TicketError
from app.tickets.ring.ring import Member
from app.tickets.sources.rights import NotYet
from app.tickets.sources.worker_lease import LEASE_MS
from tests.fakes.ticket_database import FakeServer
from tests.fakes.ticket_server import Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.sources.leases import holds, leased, made, passed, row, worker_and_time
from tests.unit.tickets.sources.stamping import HOUR, Wall, take, true_ms

# --- databases that fail ---------------------------------------------------------------------------------------------


@virtual_time
async def test_with_both_databases_dead_it_holds_to_its_end() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server)
        seen = await take(server)
        for database in site.servers:
            database.down = True
        for _ in range(60):
            await asyncio.sleep(1)
            seen += await take(server)
        for database in site.servers:
            database.down = False
        await asyncio.sleep(3)
        seen += await take(server)
        assert seen == sorted(set(seen))
        assert {worker_and_time(server, id_)[0] for id_ in seen} == {1}


@virtual_time
async def test_where_its_database_goes_another_number_is_leased_from_the_rest() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server)
        seen = await take(server)
        site.servers[0].down = True
        for _ in range(70):
            await asyncio.sleep(1)
            seen += await take(server)
        assert (await leased(server)).number == 0
        assert seen == sorted(seen)


@pytest.mark.parametrize("how", ["ledger_fails", "read_only", "misconfigured"])
def test_one_database_that_cannot_keep_a_lease_keeps_nobody_from_the_other(how: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            server = await site.ticket_server()
            await made(server)
            await take(server)
            setattr(site.servers[0], how, True if how != "misconfigured" else "has another offset")
            for _ in range(40):
                await asyncio.sleep(10)
                await take(server)
            fresh = await site.ticket_server()
            await take(fresh)

    scenario()


@pytest.mark.parametrize("how", ["restore", "replace"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_database_that_comes_back_older_or_empty_gives_no_number_twice(how: str, which: int) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            copy = site.servers[which].snapshot()
            servers = [await site.ticket_server()]
            await made(servers[0])
            servers.append(await site.ticket_server())
            seen: list[int] = []
            for _ in range(4):
                for server in servers:
                    seen += await take(server, 5)
                if how == "restore":
                    site.servers[which].restore(copy)
                else:
                    site.servers[which].replace_by_empty()
                servers.append(await site.ticket_server())
                await asyncio.sleep(3)
                for server in servers:
                    seen += await take(server, 5)
            held = [await leased(server) for server in servers]
            assert max(Counter(lease.number for lease in held).values()) == 1
            assert len(set(seen)) == len(seen)

    scenario()


@virtual_time
async def test_a_database_that_comes_up_has_the_lease_before_it_is_used_again() -> None:
    """It was renewed on the one alone after the other had been told of it, and before that one counted as up."""
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server)
        await take(server)
        lease = await leased(server)
        other = server.ring.members[1]
        may_stamp: list[bool] = []

        def changed(_: Member) -> None:
            if other.up:
                may_stamp.append(holds(server))

        server.ring.follow(changed)
        server.ring.mark_down(other, "a test says so")
        await passed(lambda: bool(may_stamp), 0.001)
        assert may_stamp == [False]
        renewed = await leased(server)
        kept = row(site.servers[1], lease)
        assert kept is not None
        assert kept.mark == renewed.until_ms > lease.until_ms


@virtual_time
async def test_a_database_that_keeps_marks_again_has_the_lease_before_it_is_used_again() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server)
        site.servers[1].ledger_fails = True
        await asyncio.sleep(3)
        await take(server)
        lease = await leased(server)
        assert lease.unverified
        site.servers[1].ledger_fails = False
        await asyncio.sleep(3)
        again = await leased(server)
        assert not again.unverified
        kept = row(site.servers[1], again)
        assert kept is not None
        assert kept.mark == again.until_ms


@virtual_time
async def test_a_number_that_another_server_may_hold_is_given_up_even_if_no_other_can_be_leased() -> None:
    """Else /healthz would say for ever that the number is unprotected, though nothing is stamped under it."""
    async with Site(2) as site:
        wall = Wall()
        server = await site.ticket_server(wall=wall)
        await made(server)
        site.servers[1].ledger_fails = True
        await asyncio.sleep(3)
        assert (await leased(server)).unverified
        wall.off = HOUR
        await asyncio.sleep(1.5)
        site.servers[1].ledger_fails = False
        await asyncio.sleep(3)
        reasons = [warning["reason"] for warning in server.admin.health()["warnings"]]
        assert server.lease.lease is None
        assert any("ahead" in reason for reason in reasons)
        assert not any("could not be asked" in reason for reason in reasons)
        wall.off = 0
        assert not (await leased(server)).unverified


@virtual_time
async def test_a_lease_of_an_earlier_ring_is_given_up_even_if_no_other_can_be_leased() -> None:
    """A restart of a database makes another ring record."""
    async with Site(2) as site:
        wall = Wall()
        server = await site.ticket_server(wall=wall)
        await made(server)
        lease = await leased(server)
        wall.off = HOUR
        await asyncio.sleep(1.5)
        site.servers[0].restart()
        await asyncio.sleep(3)
        assert lease.ring < server.ring.number
        assert server.lease.lease is None
        wall.off = 0
        assert (await leased(server)).ring == server.ring.number


@virtual_time
async def test_one_that_refuses_neither_leases_nor_renews_what_no_other_database_keeps() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(refuse_unverified=True)
        await made(server)
        await take(server)
        lease = await leased(server)
        site.servers[1].down = True
        await asyncio.sleep(100)
        assert server.lease.lease == lease or (server.lease.lease or lease).until_ms < true_ms() + 40_000
        await take(server)
        fresh = await site.ticket_server(refuse_unverified=True)
        with pytest.raises(TicketError):
            await take(fresh)
        await asyncio.sleep(30)
        with pytest.raises(TicketError):
            await take(server)
        site.servers[1].down = False
        await asyncio.sleep(3)
        await take(server)
        await take(fresh)


@pytest.mark.parametrize("refuses", [False, True])
def test_of_three_databases_one_that_is_away_may_be_the_only_one_that_knows(refuses: bool) -> None:
    """The lease is kept by the first, which is restored from before it, and by the second, which is away. The third was
    away when it was renewed."""

    @virtual_time
    async def scenario() -> None:
        async with Site(3) as site:
            first, second, third = site.servers
            copy = first.snapshot()
            holder = await site.ticket_server(refuse_unverified=refuses)
            await made(holder)
            copy.kinds = dict(first.state.kinds)
            seen = await take(holder)
            third.down = True
            await asyncio.sleep(LEASE_MS / 1000 + 30)
            seen += await take(holder)
            assert (await leased(holder)).number == 1
            holder.cut_off()
            second.down = True
            first.restore(copy)
            third.heal()
            fresh = await site.ticket_server(refuse_unverified=refuses)
            try:
                seen += await take(fresh)
            except TicketError:
                assert refuses
            else:
                assert not refuses
                warned = [each["reason"] for each in fresh.admin.health()["warnings"] if each["database"] == first.name]
                assert any(reason.startswith("unprotected") and second.name in reason for reason in warned)
            second.heal()
            await asyncio.sleep(5)
            assert (await leased(fresh)).number != 1
            (id_,) = await take(fresh)
            assert worker_and_time(fresh, id_)[0] != 1
            assert not any(
                warning["reason"].startswith("unprotected") for warning in fresh.admin.health()["warnings"]
            ), fresh.admin.health()

    scenario()


@virtual_time
async def test_a_database_that_lost_its_ring_record_is_taken_back_with_the_leases_of_its_own_numbers() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server)
        for database in site.servers:
            await take(server)
            await server.desk.take("photos", 1)
            database.lose_ring_record()
            await asyncio.sleep(5)
            assert all(member.up for member in server.ring.members), server.admin.health()
        server = await site.restart(server)
        site.servers[0].lose_ring_record()
        await asyncio.sleep(5)
        assert all(member.up for member in server.ring.members), server.admin.health()


@virtual_time
async def test_a_renewal_under_another_ring_is_refused() -> None:
    async with Site(2, increment=3) as site:
        server = await site.ticket_server()
        lease = await leased(server)
        await asyncio.sleep(1)
        for database in site.servers:
            assert database.state.ring is not None
            database.state.ring = replace(database.state.ring, number=9, since=9)
        assert server.lease.renews_soon()  # before it knows of the other ring
        await asyncio.sleep(5)
        again = await leased(server)
        assert again.ring == 9
        assert again.number != lease.number
        assert all((row(database, lease) or lease.mark(0, 0)).mark <= lease.until_ms for database in site.servers)


@virtual_time
async def test_what_keeps_it_from_a_number_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server)
        await take(server)
        for database in site.servers:
            database.down = True
        caplog.clear()
        await asyncio.sleep(100)
        logged = [record for record in caplog.records if "no worker number" in record.getMessage()]
        assert 1 <= len([record for record in logged if record.levelname == "WARNING"]) <= 3


# --- stalls ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def answers_late(database: FakeServer, seconds: float) -> AsyncIterator[None]:
    """What reaches this database is done when it goes on."""
    database.hang()
    yield
    await asyncio.sleep(seconds)
    database.thaw()


@pytest.mark.parametrize("seconds", [0.01, 0.4, 20.0, 200.0, HOUR])
@pytest.mark.parametrize("which", [0, 1])
def test_an_answer_that_comes_late_is_no_right(which: int, seconds: float) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            servers = [await site.ticket_server() for _ in range(2)]
            await made(servers[0])
            seen: list[Any] = []
            async with answers_late(site.servers[which], seconds):
                for server in servers:
                    server.lease.need()
                await asyncio.sleep(1)
                seen += await take(servers[0])
            servers.append(await site.ticket_server())
            for server in servers:
                await asyncio.sleep(1)
                seen += await take(server, 3)
            held = [await leased(server) for server in servers]
            assert max(Counter(lease.number for lease in held).values()) == 1
            assert len(set(seen)) == len(seen)

    scenario()


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(each, marks=pytest.mark.long) for each in range(5, 20))])
def test_however_the_databases_come_and_go_no_two_hold_a_time(seed: int) -> None:
    """One of the two at a time; what each server may stamp is held against what all the others may."""

    @virtual_time
    async def scenario() -> None:
        chance = random.Random(seed)
        async with Site(2) as site:
            servers = [await site.ticket_server() for _ in range(3)]
            for server in servers:
                server.lease.need()
            rights: dict[str, tuple[int, int, int]] = {}
            for _ in range(60):
                database = chance.choice(site.servers)
                fault = chance.choice(["down", "hang", "restart", "read_only"])
                if fault == "restart":
                    database.restart()
                elif fault == "hang":
                    database.hang()
                else:
                    setattr(database, fault, True)
                await asyncio.sleep(chance.choice([0.01, 0.3, 2, 30, 130]))
                for server in servers:
                    try:
                        lease = server.lease.right()
                    except NotYet:
                        continue
                    rights[lease.token] = lease.number, lease.after_ms, lease.until_ms
                database.heal()
                await asyncio.sleep(chance.choice([0.01, 0.3, 2]))
            spans = sorted(rights.values())
            for one, other in itertools.pairwise(spans):
                assert one[0] != other[0] or one[2] <= other[1], (one, other)
            assert len(spans) > 3

    scenario()
