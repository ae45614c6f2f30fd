"""The worker number of `snowflake`: a lane whose limit is a time (rules 2 to 4)."""

import asyncio
from random import Random

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
    """One server with its worker number."""

    def __init__(self, bench: Bench, *, refuses: bool = False) -> None:
        self.bench, self.sight, self.time = bench, bench.sight, Time()
        self.worker = WorkerNumber(bench.opener, self.time.server, Random(1), refuses=refuses)
        self.running = asyncio.create_task(self.worker.run())

    async def another(self) -> "Server":
        """Another server on the same databases, which will choose the same number."""
        bench = self.bench.another()
        await bench.see()
        return Server(bench)

    async def right(self) -> Right:
        """The right that it has after a while."""
        right, trouble = await self.now()
        assert right is not None, trouble
        return right

    async def now(self) -> tuple[Right | None, str]:
        """The right that it has after a while, and what keeps it from a lease or a renewal."""
        self.worker.needed.set()
        await asyncio.sleep(1)
        return self.worker.right(), str(self.worker.trouble)

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
        for member in self.bench.members:
            member.looked = self.bench.clock()
        self.sight.move()


@pytest.fixture
async def server() -> Server:
    return Server(await make_bench())


async def test_a_lease_stands_on_every_database_and_is_renewed(server: Server) -> None:
    right = await server.right()
    assert server.highs() == 2 * [right.until_ms] == 2 * [NOW + LEASE_MS]
    assert server.lease.lane.row == f"#worker{right.number}/{right.number % 2 + 1}"
    assert server.lease.lane.member.offset == right.number % 2 + 1
    assert not server.worker.is_unprotected
    server.pass_by(RENEWAL)
    assert await server.now() == (right._replace(until_ms=NOW + LEASE_MS + 20_000), "None")
    assert server.highs() == 2 * [NOW + LEASE_MS + 20_000]


async def test_no_other_server_has_a_number_before_its_time_is_past_and_then_only_later_times(server: Server) -> None:
    right, marks = await server.right(), server.bench.servers[0].data.notes[Book.MARKS]
    server.running.cancel()
    taken = {f"#worker{number}/{number % 2 + 1}": Note(NOW + 3_600_000) for number in range(WORKERS)}
    marks |= {row: note for row, note in taken.items() if row != server.lease.lane.row}
    other = await server.another()
    assert "worker number that is free" in (await other.now())[1]
    other.time.pass_by(LEASE_MS + 1_001)
    other.sight.move()
    found = await other.right()
    assert (found.number, found.after_ms) == (right.number, right.until_ms)
    # a renewal of the earlier holder is refused
    server.running = asyncio.create_task(server.worker.run())
    server.pass_by(LEASE_MS / 1000 + 2)
    await asyncio.sleep(1)
    assert server.worker.right() is None or server.lease.right.number != right.number


async def test_two_servers_that_want_one_number_do_not_both_get_it(server: Server) -> None:
    other = await server.another()
    other.worker.needed.set()
    assert (await server.right()).number != (await other.right()).number


async def test_a_database_that_comes_into_sight_ends_the_right_until_it_has_the_lease_too(server: Server) -> None:
    right, second = await server.right(), server.bench.members[1]
    life = second.life or ""
    server.bench.lose(second)
    assert server.worker.right() == right
    server.bench.servers[1].freeze()
    server.sight.enter(second, life)
    assert server.worker.right() is None
    assert (await server.now())[0] is None
    server.bench.servers[1].thaw()
    assert (await server.right()).number == right.number


async def test_a_lease_goes_on_to_its_end_where_it_cannot_be_renewed_and_another_one_is_taken(server: Server) -> None:
    right, own = await server.right(), server.lease.lane.member
    server.bench.lose(*server.bench.members)
    server.pass_by(RENEWAL + 1)
    still, trouble = await server.now()
    assert still == right
    assert "in sight" in trouble
    other = server.bench.members[2 - own.offset]
    await server.bench.see(other)
    another = await server.right()
    assert another.number != right.number
    assert server.lease.lane.member is other
    assert server.worker.is_unprotected


async def test_another_life_or_ring_number_ends_the_lease(server: Server) -> None:
    right, member = await server.right(), server.lease.lane.member
    server.bench.servers[member.offset - 1].restart()
    server.bench.lose(member)
    await server.bench.see(member)
    second, record = await server.right(), server.sight.record
    assert record is not None
    following = record.next(2)
    for each in server.bench.servers:
        each.data.ring = each.data.ring._replace(stamp=following.stamp, text=following.dump())
    server.sight.go_by(following)
    assert server.worker.right() is None
    assert len({right.number, second.number, (await server.right()).number}) == 3


async def test_a_level_that_took_the_tenure_ends_the_lease(server: Server) -> None:
    right, sight = await server.right(), server.sight
    del server.bench.servers[0].data.notes[Book.MARKS][server.lease.lane.row]
    assert await make_level(sight, lives_in_sight(sight))
    assert server.highs() == 2 * [right.until_ms]
    server.pass_by(RENEWAL)
    another = await server.right()
    assert (another.number != right.number, another.until_ms > right.until_ms) == (True, True)


async def test_a_floor_of_a_number_counts_as_its_limit(server: Server) -> None:
    floors = {f"#worker{number}": Note(NOW - 1_000) for number in range(WORKERS)}
    server.bench.servers[1].data.notes[Book.FLOORS] |= floors | {"#worker8": Note(NOW - 1_001)}
    assert await server.right() == Right(8, NOW - 1_001, NOW + LEASE_MS)


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_lease_that_was_taken_without_all_databases_ends_once_they_are_in_sight(refuses: bool) -> None:
    bench = await make_bench()
    bench.lose(bench.members[1])
    server = Server(bench, refuses=refuses)
    right, trouble = await server.now()
    assert (right is None, trouble == str(Unverified())) == (refuses, refuses)
    assert server.worker.is_unprotected is not refuses
    await bench.see()
    whole = await server.right()
    assert right is None or whole.number != right.number
    assert not server.worker.is_unprotected
    bench.lose(bench.members[2 - server.lease.lane.member.offset])
    server.pass_by(RENEWAL)
    renewed = whole._replace(until_ms=whole.until_ms + 20_000)
    assert await server.now() == ((whole, str(Unverified())) if refuses else (renewed, "None"))


async def test_nothing_is_leased_while_the_clock_is_ahead_or_looks_are_old(server: Server) -> None:
    await server.right()
    server.bench.clock.now += 60
    assert server.worker.right() is None
    server.time.ms += 5_000
    server.pass_by(0)
    assert "ahead of the ticket databases" in (await server.now())[1]
