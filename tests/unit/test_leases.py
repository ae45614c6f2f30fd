"""The worker number of `snowflake`: a lane whose limit is a time (rules 2 to 4)."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Self

from app.databases.session import Book, Note
from app.errors import Unverified
from app.tickets.everywhere import lives_in_sight
from app.tickets.leases import LEASE_MS, RENEWAL, WORKERS, Lease, WorkerNumber
from app.tickets.level import make_level
from app.tickets.rights import Right
from app.tickets.sight import Status
from tests.unit.lane_bench import Bench, make_bench
from tests.unit.test_stamps import NOW, Time


class Server:
    """One server with its worker number."""

    def __init__(self, bench: Bench, *, refuses: bool = False, needed: bool = True) -> None:
        self.bench, self.time = bench, Time()
        self.worker = WorkerNumber(bench.sight, self.time.server, Random(1), refuses=refuses)
        if needed:
            self.worker.need()
        self.running = asyncio.create_task(self.worker.run())

    @classmethod
    async def make(cls, *, seen: bool = True, refuses: bool = False, needed: bool = True) -> Self:
        return cls(await make_bench(seen=seen), refuses=refuses, needed=needed)

    async def another(self, *, needed: bool = True) -> "Server":
        """Another server on the same databases."""
        bench = Bench(self.bench.servers, self.bench.clock)
        bench.sight.go_by(self.bench.sight.record)
        await bench.see()
        return Server(bench, needed=needed)

    async def right(self, *, not_number: int | None = None) -> Right:
        """The right, once there is one; of another number than this one."""
        found: list[Right] = []

        def has_one() -> bool:
            right = self.worker.right()
            found[:] = [right] if right is not None and right.number != not_number else []
            return bool(found)

        await until(has_one)
        return found[0]

    @property
    def lease(self) -> Lease:
        assert self.worker.lease is not None
        return self.worker.lease

    def rows(self) -> list[Note | None]:
        """The lease's row on each database."""
        return [server.data.notes[Book.MARKS].get(self.lease.row) for server in self.bench.servers]

    async def pass_by(self, seconds: float) -> None:
        """Let all clocks go on, with looks at the databases in sight."""
        self.time.pass_by(int(seconds * 1000))
        self.bench.clock.now += seconds
        for member in self.bench.members:
            member.looked = self.bench.clock()
        self.bench.sight.move()

    def lose(self, offset: int) -> None:
        self.bench.sight.leave(self.bench.members[offset - 1], Status.DOWN, "away")


async def until(condition: Callable[[], bool]) -> None:
    """Return once this is true."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - a plain condition has no event
            await asyncio.sleep(0.001)


async def test_a_lease_stands_on_every_database_and_is_renewed() -> None:
    server = await Server.make()
    right = await server.right()
    own, other = server.rows()
    assert own is not None
    assert own == other
    assert own.high == right.until_ms == NOW + LEASE_MS
    assert server.lease.row == f"#worker{right.number}/{right.number % 2 + 1}"
    assert server.lease.member.offset == right.number % 2 + 1
    assert not server.worker.is_unprotected
    await server.pass_by(RENEWAL)
    await until(lambda: server.lease.right.until_ms == NOW + LEASE_MS + 20_000)
    assert server.lease.right.number == right.number
    assert [row.high for row in server.rows() if row is not None] == 2 * [NOW + LEASE_MS + 20_000]
    assert server.worker.trouble is None


async def test_no_other_server_has_a_number_before_its_time_is_past_and_then_only_later_times() -> None:
    server = await Server.make()
    right = await server.right()
    server.running.cancel()
    for row in range(WORKERS):  # all other numbers are taken for an hour
        if row != right.number:
            name = f"#worker{row}/{row % 2 + 1}"
            server.bench.servers[0].data.notes[Book.MARKS][name] = Note(NOW + 3_600_000)
    other = await server.another()
    await until(lambda: other.worker.trouble is not None)
    assert "hold all 1,024 worker numbers" in str(other.worker.trouble)
    other.time.ms, other.time.steady = NOW + LEASE_MS + 1_001, 100.0 + LEASE_MS / 1000 + 1.001
    other.bench.sight.move()
    taken = await other.right()
    assert (taken.number, taken.after_ms) == (right.number, right.until_ms)
    # a renewal of the earlier holder is refused
    server.running = asyncio.create_task(server.worker.run())
    await server.pass_by(LEASE_MS / 1000 + 2)
    await until(lambda: server.worker.lease is None or server.worker.trouble is not None)
    assert server.worker.right() is None or server.lease.right.number != right.number


async def test_two_servers_that_want_one_number_do_not_both_get_it() -> None:
    server = await Server.make(needed=False)
    other = await server.another(needed=False)  # it chooses the same number
    server.worker.need()
    other.worker.need()
    rights = await asyncio.gather(server.right(), other.right())
    assert rights[0].number != rights[1].number


async def test_a_database_that_comes_into_sight_ends_the_right_until_it_has_the_lease_too() -> None:
    server = await Server.make()
    right = await server.right()
    server.lose(2)
    assert server.worker.right() == right
    server.bench.servers[1].freeze()
    server.bench.sight.enter(server.bench.members[1], server.bench.members[1].database._life)
    assert server.worker.right() is None
    await asyncio.sleep(0.02)
    assert server.worker.right() is None
    server.bench.servers[1].thaw()
    assert (await server.right()).number == right.number


async def test_a_lease_goes_on_to_its_end_while_no_database_can_be_asked() -> None:
    server = await Server.make()
    right = await server.right()
    server.lose(1)
    server.lose(2)
    await server.pass_by(RENEWAL + 1)
    assert server.worker.right() == right
    assert not server.worker.is_coming
    await server.pass_by(80)
    await until(lambda: server.worker.trouble is not None)
    assert server.worker.right() == right
    assert "in sight" in str(server.worker.trouble)


async def test_another_number_is_leased_where_the_database_of_the_number_stays_away() -> None:
    server = await Server.make()
    right = await server.right()
    own, other = server.lease.member.offset, 3 - server.lease.member.offset
    server.lose(own)
    await server.pass_by(RENEWAL + 1)
    await asyncio.sleep(0.02)
    assert server.worker.right() == right
    await server.pass_by(50)
    another = await server.right(not_number=right.number)
    assert server.lease.member.offset == other == another.number % 2 + 1
    assert server.worker.is_unprotected


async def test_another_life_or_ring_number_ends_the_lease() -> None:
    server = await Server.make()
    right = await server.right()
    member = server.lease.member
    server.bench.servers[member.offset - 1].restart()
    server.lose(member.offset)
    await server.bench.see(member)
    second = await server.right(not_number=right.number)
    record = server.bench.sight.record
    assert record is not None
    following = record.next(2)
    for each in server.bench.servers:
        each.data.ring = each.data.ring._replace(stamp=following.stamp, text=following.dump())
    server.bench.sight.go_by(following)
    assert server.worker.right() is None
    await server.right(not_number=second.number)


async def test_a_level_that_took_the_tenure_ends_the_lease() -> None:
    server = await Server.make()
    right = await server.right()
    del server.bench.servers[0].data.notes[Book.MARKS][server.lease.row]
    sight = server.bench.sight
    assert sight.stamp is not None
    await make_level([(member.database, life, sight.stamp) for member, life in lives_in_sight(sight).items()])
    assert [row.high for row in server.rows() if row is not None] == 2 * [right.until_ms]
    await server.pass_by(RENEWAL)
    assert (await server.right(not_number=right.number)).until_ms > right.until_ms


async def test_a_floor_of_a_number_counts_as_its_limit() -> None:
    server = await Server.make(seen=False)
    for number in range(WORKERS - 1):
        server.bench.servers[1].data.notes[Book.FLOORS][f"#worker{number}"] = Note(NOW + 1)
    server.bench.servers[1].data.notes[Book.FLOORS][f"#worker{WORKERS - 1}"] = Note(NOW - 1_001)
    await server.bench.see()
    assert await server.right() == Right(WORKERS - 1, NOW - 1_001, NOW + LEASE_MS)


async def test_a_lease_that_was_taken_without_all_databases_ends_once_they_are_in_sight() -> None:
    server = await Server.make(seen=False)
    server.bench.members[1].looked = server.bench.clock()
    await server.bench.see(server.bench.members[0])
    right = await server.right()
    assert server.worker.is_unprotected
    await server.bench.see()
    assert (await server.right(not_number=right.number)).number != right.number
    assert not server.worker.is_unprotected


async def test_a_server_that_refuses_takes_no_unprotected_lease_and_renews_none() -> None:
    server = await Server.make(seen=False, refuses=True)
    server.bench.members[1].looked = server.bench.clock()
    await server.bench.see(server.bench.members[0])
    await until(lambda: isinstance(server.worker.trouble, Unverified))
    await server.bench.see()
    right = await server.right()
    server.lose(3 - server.lease.member.offset)
    await server.pass_by(RENEWAL)
    await until(lambda: isinstance(server.worker.trouble, Unverified))
    assert server.worker.right() == right


async def test_nothing_is_leased_while_the_clock_is_ahead_or_looks_are_old() -> None:
    server = await Server.make()
    await server.right()
    server.bench.clock.now += 60
    assert server.worker.right() is None
    server.time.ms += 5_000
    for member in server.bench.members:
        member.looked = server.bench.clock()
    server.bench.sight.move()
    await until(lambda: server.worker.trouble is not None)
    assert "ahead of the ticket databases" in str(server.worker.trouble)
