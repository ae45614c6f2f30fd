"""The lease of a worker number: who gets which, up to when, and what becomes of it when anything fails."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from app.common.errors import NoTicketDatabase, TicketError
from app.databases.protocol import Mark
from app.tickets.ring.ring import Member
from app.tickets.sources.rights import NotYet
from app.tickets.sources.worker_lease import LEASE_MS, MARGIN_MS, RENEW_SECONDS, WORKERS, Lease
from tests.fakes.awaited import AwaitedRequest
from tests.fakes.ticket_database import TRUE_TIME, FakeServer
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time

EPOCH = int(TRUE_TIME * 1000) - 1_000_000_000
HOUR = 3600.0


class Wall:
    """A server's clock. `off`: seconds that it is ahead of the true time."""

    def __init__(self, off: float = 0.0) -> None:
        self.off = off

    def __call__(self) -> float:
        return TRUE_TIME + asyncio.get_running_loop().time() + self.off


def true_ms() -> int:
    return int((TRUE_TIME + asyncio.get_running_loop().time()) * 1000)


async def leased(server: FakeTicketServer, within: float = 5.0) -> Lease:
    """What it holds and may use."""
    server.lease.need()
    until = asyncio.get_running_loop().time() + within
    while True:
        try:
            return server.lease.right()
        except NotYet:
            assert asyncio.get_running_loop().time() < until, server.lease
            await asyncio.sleep(0.01)


async def passed(condition: Callable[[], bool], seconds: float) -> None:
    """Look so often whether it holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(seconds)
    raise AssertionError("it never held")


def holds(server: FakeTicketServer) -> bool:
    """Whether it may stamp."""
    try:
        server.lease.right()
    except NotYet:
        return False
    return True


async def take(server: FakeTicketServer, count: int = 1, sequence: str = "likes") -> list[int]:
    request = AwaitedRequest(sequence, count, whole=False)
    server.desk.accept(request)
    return list(await request.future)


async def made(server: FakeTicketServer, *sequences: str) -> None:
    for sequence in sequences or ("likes",):
        await server.admin.make(sequence, "snowflake", {"epoch": EPOCH})


def read(server: FakeTicketServer, id_: int) -> tuple[int, int]:
    """The worker and the time of an id."""
    entry = server.catalog.entries["likes"]
    said = entry.kind.decode(entry.parameters, str(id_))
    return said["datacenter"] << 5 | said["worker"], said["time_ms"]


def row(database: FakeServer, lease: Lease) -> Mark | None:
    held = lease.mark(0, 0)
    return database.state.marks.get((held.sequence, held.offset, held.increment))


def put(databases: list[FakeServer], number: int, until_ms: int, token: str = "other:1") -> None:
    """Somebody has leased this number up to then."""
    increment = databases[0].increment
    authority = next(each for each in databases if each.offset % increment == number % increment)
    for database in databases:
        mark = Mark(f"_worker_{number}", authority.offset, increment, until_ms, 0, token)
        database.state.marks[mark.sequence, mark.offset, mark.increment] = mark
        database.state.changed[mark.sequence, mark.offset, mark.increment] = database.clock()


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
        assert read(server, before)[0] == read(server, after)[0] == 1
        assert before < after


@virtual_time
async def test_a_restart_at_once_takes_the_next() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await made(server)
        (before,) = await take(server)
        server = await site.restart(server)
        (after,) = await take(server)
        assert (read(server, before)[0], read(server, after)[0]) == (1, 3)


@virtual_time
async def test_who_leaves_no_word_keeps_the_number_up_to_the_end_of_the_lease() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        lease = await leased(server)
        for database in server.databases:
            database.cut = True  # type: ignore[attr-defined]
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
        for database in late.databases:
            database.cut = True  # type: ignore[attr-defined]
        await asyncio.sleep(LEASE_MS / 1000 + 3)
        other = await site.ticket_server(wall=wall)
        taken = await leased(other)
        assert taken.number == lease.number
        wall.off = -MARGIN_MS / 1000 - 1  # it has the right to no time of the other's, whatever its clock says
        assert read(other, (await take(other))[0])[1] > lease.until_ms
        for database in late.databases:
            database.cut = False  # type: ignore[attr-defined]
        await asyncio.sleep(3)
        assert (await leased(late)).number == 3
        assert late.lease.lease is not None
        (id_,) = await take(late)
        assert read(late, id_)[0] == 3


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
        assert abs(read(server, id_)[1] - true_ms()) < 1000
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
        for database in server.databases:
            database.cut = True  # type: ignore[attr-defined]
        await asyncio.sleep(LEASE_MS / 1000 + 3)
        other = await site.ticket_server()
        assert (await leased(other)).number == 1
        seen += await take(other, 3)
        await asyncio.sleep(3)
        put(site.servers, 3, true_ms() + LEASE_MS)
        await site.stop(other)
        await asyncio.sleep(3)
        for database in server.databases:
            database.cut = False  # type: ignore[attr-defined]
        await asyncio.sleep(3)
        assert (await leased(server)).number == 1
        last = max(read(server, id_)[1] for id_ in seen)
        wall.off = (last - true_ms()) / 1000
        for step in range(40):
            wall.off += 0.0005 * step
            try:
                seen += await take(server)
            except TicketError:
                await asyncio.sleep(0.1)
        assert len(set(seen)) == len(seen)
        assert sorted(read(server, id_)[1] for id_ in seen)[-1] > last


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
        given = [read(server, ids[0])[1] for ids in answers if isinstance(ids, list)]
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
        (one,), (other,) = await take(server), await take(server, sequence="loves")
        assert read(server, one)[0] == read(server, other)[0] == 1


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
        assert {read(server, id_)[0] for id_ in seen} == {1}


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
            for database in holder.databases:
                database.cut = True  # type: ignore[attr-defined]
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
            assert read(fresh, id_)[0] != 1
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
