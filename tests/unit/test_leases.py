"""The worker number of `snowflake`: a lane whose limit is a time (rules 2 to 4)."""

import asyncio
from random import Random
from typing import Self

import pytest

from app.databases.session import Book, Note
from app.errors import Unverified
from app.tickets.everywhere import lives_in_sight
from app.tickets.level import make_level
from app.tickets.rights import LEASE_MS, RENEWAL, WORKERS, Lease, Right, WorkerNumber
from tests.unit.lane_bench import Bench, make_bench
from tests.unit.test_stamps import NOW, Time

pytestmark = pytest.mark.looptime


class Server:
    """One server with its worker number. What the test does to it has its effect before the test goes on."""

    def __init__(self, bench: Bench, *, refuses: bool = False) -> None:
        self.bench, self.time = bench, Time()
        self.worker = WorkerNumber(bench.opener, self.time.server, Random(1), refuses=refuses)
        self.running = asyncio.create_task(self.worker.run())

    @classmethod
    async def with_one_in_sight(cls, *, refuses: bool = False) -> Self:
        bench = await make_bench(seen=False)
        bench.members[1].looked = bench.clock()
        await bench.see(bench.members[0])
        return cls(bench, refuses=refuses)

    async def another(self) -> "Server":
        """Another server on the same databases."""
        bench = self.bench.another()
        await bench.see()
        return Server(bench)

    async def right(self) -> Right:
        """The right that it has after a while."""
        self.worker.needed.set()
        await asyncio.sleep(1)
        right = self.worker.right()
        assert right is not None, self.worker.trouble
        return right

    async def trouble(self) -> str:
        """What it has in place of a lease or a renewal, after a while."""
        self.worker.needed.set()
        await asyncio.sleep(1)
        return str(self.worker.trouble)

    @property
    def lease(self) -> Lease:
        assert self.worker.lease is not None
        return self.worker.lease

    def highs(self) -> list[int]:
        """The limits of the lease's row on each database."""
        return [server.data.notes[Book.MARKS][self.lease.lane.row].high for server in self.bench.servers]

    def pass_by(self, seconds: float) -> None:
        """Let all clocks go on, with looks at the databases in sight."""
        self.time.pass_by(int(seconds * 1000))
        self.bench.clock.now += seconds
        self.look()

    def look(self) -> None:
        """Look at the databases again."""
        for member in self.bench.members:
            member.looked = self.bench.clock()
        self.bench.sight.move()


@pytest.fixture
async def server() -> Server:
    return Server(await make_bench())


async def test_a_lease_stands_on_every_database_and_is_renewed(server: Server) -> None:
    right = await server.right()
    assert server.highs() == 2 * [right.until_ms] == 2 * [NOW + LEASE_MS]
    assert server.lease.lane.row == f"#worker{right.number}/{right.number % 2 + 1}"
    assert server.lease.lane.member.offset == right.number % 2 + 1
    assert not server.worker.is_unprotected
    server.time.ms += 500  # a clock that is ahead makes no longer lease
    server.pass_by(RENEWAL)
    assert await server.right() == right._replace(until_ms=NOW + LEASE_MS + 20_000)
    assert server.highs() == 2 * [NOW + LEASE_MS + 20_000]
    assert server.worker.trouble is None


async def test_no_other_server_has_a_number_before_its_time_is_past_and_then_only_later_times(server: Server) -> None:
    right = await server.right()
    server.running.cancel()
    for row in range(WORKERS):  # all other numbers are taken for an hour
        if row != right.number:
            name = f"#worker{row}/{row % 2 + 1}"
            server.bench.servers[0].data.notes[Book.MARKS][name] = Note(NOW + 3_600_000)
    other = await server.another()
    assert "worker number that is free" in await other.trouble()
    other.time.ms, other.time.steady = NOW + LEASE_MS + 1_001, 100.0 + LEASE_MS / 1000 + 1.001
    other.bench.sight.move()
    taken = await other.right()
    assert (taken.number, taken.after_ms) == (right.number, right.until_ms)
    # a renewal of the earlier holder is refused
    server.running = asyncio.create_task(server.worker.run())
    server.pass_by(LEASE_MS / 1000 + 2)
    await asyncio.sleep(1)
    assert server.worker.right() is None or server.lease.right.number != right.number


async def test_two_servers_that_want_one_number_do_not_both_get_it(server: Server) -> None:
    other = await server.another()  # it chooses the same number
    other.worker.needed.set()
    assert (await server.right()).number != (await other.right()).number


async def test_a_database_that_comes_into_sight_ends_the_right_until_it_has_the_lease_too(server: Server) -> None:
    right, second = await server.right(), server.bench.members[1]
    life = second.life or ""
    server.bench.lose(second)
    assert server.worker.right() == right
    server.bench.servers[1].freeze()
    server.bench.sight.enter(second, life)
    assert server.worker.right() is None
    await asyncio.sleep(1)
    assert server.worker.right() is None
    server.bench.servers[1].thaw()
    assert (await server.right()).number == right.number


async def test_a_lease_goes_on_to_its_end_while_no_database_can_be_asked(server: Server) -> None:
    right = await server.right()
    server.bench.lose(*server.bench.members)
    server.pass_by(RENEWAL + 1)
    assert "in sight" in await server.trouble()
    assert server.worker.right() == right


async def test_another_number_is_leased_where_the_database_of_the_number_stays_away(server: Server) -> None:
    right, own = await server.right(), server.lease.lane.member
    server.bench.lose(own)
    assert await server.right() == right
    server.pass_by(RENEWAL + 1)
    another = await server.right()
    assert another.number != right.number
    assert server.lease.lane.member.offset == 3 - own.offset == another.number % 2 + 1
    assert server.worker.is_unprotected


async def test_another_life_or_ring_number_ends_the_lease(server: Server) -> None:
    right, member = await server.right(), server.lease.lane.member
    server.bench.servers[member.offset - 1].restart()
    server.bench.lose(member)
    await server.bench.see(member)
    second = await server.right()
    record = server.bench.sight.record
    assert record is not None
    following = record.next(2)
    for each in server.bench.servers:
        each.data.ring = each.data.ring._replace(stamp=following.stamp, text=following.dump())
    server.bench.sight.go_by(following)
    assert server.worker.right() is None
    assert len({right.number, second.number, (await server.right()).number}) == 3


async def test_a_level_that_took_the_tenure_ends_the_lease(server: Server) -> None:
    right, sight = await server.right(), server.bench.sight
    del server.bench.servers[0].data.notes[Book.MARKS][server.lease.lane.row]
    assert sight.stamp is not None
    assert await make_level(sight, lives_in_sight(sight))
    assert server.highs() == 2 * [right.until_ms]
    server.pass_by(RENEWAL)
    another = await server.right()
    assert (another.number != right.number, another.until_ms > right.until_ms) == (True, True)


async def test_a_floor_of_a_number_counts_as_its_limit() -> None:
    server = Server(await make_bench(seen=False))
    for number in range(WORKERS):
        server.bench.servers[1].data.notes[Book.FLOORS][f"#worker{number}"] = Note(NOW + 1)
    server.bench.servers[1].data.notes[Book.FLOORS]["#worker8"] = Note(NOW - 1_001)
    await server.bench.see()
    assert await server.right() == Right(8, NOW - 1_001, NOW + LEASE_MS)


async def test_a_lease_that_was_taken_without_all_databases_ends_once_they_are_in_sight() -> None:
    server = await Server.with_one_in_sight()
    right = await server.right()
    assert server.worker.is_unprotected
    await server.bench.see()
    assert (await server.right()).number != right.number
    assert not server.worker.is_unprotected


async def test_a_server_that_refuses_takes_no_unprotected_lease_and_renews_none() -> None:
    server = await Server.with_one_in_sight(refuses=True)
    assert await server.trouble() == str(Unverified())
    await server.bench.see()
    right = await server.right()
    server.bench.lose(server.bench.members[2 - server.lease.lane.member.offset])
    server.pass_by(RENEWAL)
    assert await server.trouble() == str(Unverified())
    assert server.worker.right() == right


async def test_nothing_is_leased_while_the_clock_is_ahead_or_looks_are_old(server: Server) -> None:
    await server.right()
    server.bench.clock.now += 60
    assert server.worker.right() is None
    server.time.ms += 5_000
    server.look()
    assert "ahead of the ticket databases" in await server.trouble()
