"""Two bodies of data for one offset: ticket servers that are led to different databases, by a list or a name."""

import asyncio
import random
import re

import pytest

from app.common.errors import TicketError
from app.databases.protocol import OLDER_SECONDS, ProbeResult, RingRecord, ServerEntry, TicketDatabase
from app.tickets.lanes.marks import SMALLEST_STEP
from app.tickets.ring.ring import Status
from tests.fakes.ticket_database import FakeServer, FakeTicketDatabase
from tests.fakes.ticket_server import PROBE_INTERVAL, FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.ledgers import probed, take


def another(site: Site, at: int, *, copied: bool = False) -> FakeServer:
    """A database for this offset beside the one that the site has: empty, or a copy of its data."""
    original = site.servers[at - 1]
    made = FakeServer(at, original.increment, (), original.clock)
    made.name = f"other{at}:3306"
    if copied:
        made.restore(original.snapshot())
    return made


async def drawn_by(servers: list[FakeTicketServer], seconds: float) -> list[int]:
    """Tickets of all of these for so long, one after the other."""
    tickets: list[int] = []
    until = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until:
        for server in servers:
            tickets += await take(server, 2)
        await asyncio.sleep(0.05)
    return tickets


@pytest.mark.parametrize("copied", [False, True], ids=["an empty one", "a copy"])
@virtual_time
async def test_two_servers_with_different_bodies_do_not_fight_over_an_offset(copied: bool) -> None:
    async with Site(2) as site:
        first = await site.ticket_server()
        tickets = await drawn_by([first], 1)
        other = another(site, 1, copied=copied)
        second = await site.ticket_server(servers=[other, site.servers[1]])
        tickets += await drawn_by([first, second], 60)
        assert len(set(tickets)) == len(tickets)
        assert max(tickets) < 20_000


@virtual_time
async def test_health_warns_while_a_server_of_an_earlier_release_is_seen() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        assert server.admin.health()["status"] == "pass"
        older = ServerEntry("0ef", "0.2.0", ("ticket",), PROBE_INTERVAL, uses=None)
        site.servers[1].probes(older, asyncio.get_running_loop().time())
        await probed()
        health = server.admin.health()
        assert health["status"] == "warn"
        (warning,) = health["warnings"]
        assert warning["database"] == server.databases[1].name
        assert "release 0.2.0 uses it" in warning["reason"]
        await asyncio.sleep(OLDER_SECONDS + PROBE_INTERVAL)
        assert server.admin.health()["status"] == "pass"


@virtual_time
async def test_a_restart_of_a_database_quarantines_it_on_no_server() -> None:
    """A server may look after another has recorded the body's new word on one database, and not yet on the other."""
    async with Site(2) as site:
        servers = [await site.ticket_server() for _ in range(3)]
        for _ in range(20):
            site.servers[0].restart()
            until = asyncio.get_running_loop().time() + 2 * PROBE_INTERVAL
            while asyncio.get_running_loop().time() < until:
                assert not [refusal(each, 1) for each in servers if each.ring.members[0].status is Status.QUARANTINED]
                await asyncio.sleep(0.001)
            assert all(server.ring.members[0].up for server in servers)


def led_to(server: FakeTicketServer, offset: int, database: FakeServer) -> None:
    """Have the name in this server's list lead to another machine, for all connections from now on."""
    client = server.databases[offset - 1]
    assert isinstance(client, FakeTicketDatabase)
    client.server = database


def refusal(server: FakeTicketServer, offset: int) -> str:
    """Why the server does not draw from the database of this offset; empty where it does."""
    member = server.ring.members[offset - 1]
    return "" if member.up else str(member.last_error)


@virtual_time
async def test_health_names_the_server_and_the_database_within_two_probe_intervals() -> None:
    async with Site(2) as site:
        first = await site.ticket_server()
        await take(first, 10)
        other = another(site, 1)
        second = await site.ticket_server(servers=[other, site.servers[1]])
        await asyncio.sleep(2 * PROBE_INTERVAL)
        assert re.search(r"host[0-9a-f]+:8000 draws from fake1:3306$", refusal(second, 1))
        assert second.admin.health()["status"] == "warn"
        await site.stop(first)
        await asyncio.sleep(2 * PROBE_INTERVAL)
        assert refusal(second, 1) == ""


@virtual_time
async def test_a_server_whose_database_is_down_lets_go_and_waits_when_that_is_back() -> None:
    async with Site(2) as site:
        first = await site.ticket_server()
        tickets = await drawn_by([first], 1)
        other = another(site, 1)
        second = await site.ticket_server(servers=[other, site.servers[1]])
        site.servers[0].down = True
        tickets += await drawn_by([first, second], 3 * PROBE_INTERVAL)
        assert refusal(second, 1) == ""
        site.servers[0].heal()
        tickets += await drawn_by([first, second], 10 * PROBE_INTERVAL)
        assert "draws from other1:3306" in refusal(first, 1)
        assert len(set(tickets)) == len(tickets)


@virtual_time
async def test_what_a_database_announced_last_stands_while_it_cannot_be_asked() -> None:
    async with Site(2) as site:
        first = await site.ticket_server()
        tickets = await drawn_by([first], 1)
        second = await site.ticket_server(servers=[another(site, 1, copied=True), site.servers[1]])
        await asyncio.sleep(2 * PROBE_INTERVAL)
        assert refusal(first, 1)
        site.servers[1].down = True
        tickets += await drawn_by_any([first, second], 10 * PROBE_INTERVAL, 100)
        assert len(set(tickets)) == len(tickets)
        assert "draws from other1:3306" in refusal(first, 1)


@virtual_time
async def test_a_fresh_ring_with_one_of_its_databases_away_draws_nothing_yet() -> None:
    async with Site(2, recorded=False) as site:
        site.servers[1].down = True
        server = await site.ticket_server()
        await asyncio.sleep(10 * PROBE_INTERVAL)
        assert server.admin.health()["status"] == "fail"
        site.servers[1].heal()
        await probed()
        assert server.admin.health()["status"] == "pass"


@pytest.mark.parametrize("seed", range(24))
def test_whatever_the_names_lead_to_nothing_comes_twice(seed: int) -> None:
    """Names move, servers and databases are restarted, lists are changed and put back, in any order."""

    @virtual_time
    async def attack() -> None:
        chance = random.Random(seed)
        databases = chance.choice([2, 3])
        async with Site(databases) as site:
            servers = [await site.ticket_server() for _ in range(chance.choice([2, 3]))]
            tickets = await drawn_by(servers, 1)
            copied = chance.random() < 0.5
            bodies = [site.servers[0], another(site, 1, copied=copied)]
            for _ in range(20):
                server = chance.choice(servers)
                match chance.choice(["led", "led", "restarted", "down", "another", "wait"]):
                    case "led":
                        led_to(server, 1, chance.choice(bodies))
                    case "restarted":
                        chance.choice([*bodies, *site.servers[1:]]).restart()
                    case "down":
                        # while a copy can be asked and no other database, nobody can tell it from its original
                        chance.choice(bodies if copied else [*bodies, *site.servers[1:]]).down = True
                    case "another":
                        await site.stop(server)
                        servers.remove(server)
                        listed = [chance.choice(bodies), *site.servers[1:]]
                        servers.append(await site.ticket_server(servers=listed))
                    case _:
                        await asyncio.sleep(chance.choice([0.01, 0.4, 7 * PROBE_INTERVAL]))
                tickets += await drawn_by_any(servers, chance.choice([0.2, 1.0, 3.0]), chance.choice([2, 100]))
                for database in (*bodies, *site.servers[1:]):
                    if chance.random() < 0.7:
                        database.heal()
            for database in (*bodies, *site.servers[1:]):
                database.heal()
            assert len(set(tickets)) == len(tickets)
            record = site.servers[1].state.ring
            assert record is not None
            skipped = (record.number + 1) * len(servers) * SMALLEST_STEP * databases
            assert max(tickets) < 4 * len(tickets) * databases + 2 * skipped

    attack()


async def drawn_by_any(servers: list[FakeTicketServer], seconds: float, count: int = 2) -> list[int]:
    """Tickets of those that can give any, so many with each request."""
    tickets: list[int] = []
    until = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until:
        for server in servers:
            try:
                tickets += await server.desk.take("photos", count)
            except TicketError:
                continue
        await asyncio.sleep(0.05)
    return tickets


@virtual_time
async def test_a_body_is_announced_as_it_is_taken_in_and_not_with_the_next_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy beside its original: else each server takes its own body back in until the other one probes."""
    async with Site(2) as site:
        first = await site.ticket_server()
        tickets = await drawn_by([first], 1)
        before = number_of(site)
        other, probe = another(site, 1, copied=True), FakeTicketDatabase.probe

        async def slow_afterwards(database: FakeTicketDatabase) -> ProbeResult:
            taken = other.state.ring is not None and other.state.ring.life == other.incarnation
            if taken and database not in first.databases:
                await asyncio.sleep(3 * PROBE_INTERVAL)
            return await probe(database)

        monkeypatch.setattr(FakeTicketDatabase, "probe", slow_afterwards)
        second = await site.ticket_server(servers=[other, site.servers[1]])
        tickets += await drawn_by_any([first, second], 4 * PROBE_INTERVAL)
        assert number_of(site) == before + 1
        assert "draws from other1:3306" in refusal(first, 1)
        assert len(set(tickets)) == len(tickets)


def number_of(site: Site) -> int:
    """The number of the ring that the second database records. It rises with each body that joins the ring."""
    ring = site.servers[1].state.ring
    assert ring is not None
    return ring.number


def stall_probes(database: TicketDatabase) -> asyncio.Event:
    """Let no probe of this server reach the database until the event is set."""
    probe, resumed = database.probe, asyncio.Event()

    async def stalled() -> ProbeResult:
        await resumed.wait()
        return await probe()

    database.probe = stalled  # type: ignore[method-assign]
    return resumed


@pytest.mark.parametrize("broken", [False, True], ids=["connections are whole", "connections are broken"])
@virtual_time
async def test_a_server_that_stood_still_does_not_draw_from_its_old_body_for_want_of_a_witness(*, broken: bool) -> None:
    """By then its announcement no longer counts, and only the number of the ring shows what happened. `broken`: it also
    finds the connections broken to the database that knows of the other body, and must probe again before it draws."""
    async with Site(2) as site:
        first = await site.ticket_server()
        tickets = await drawn_by([first], 1)
        resumed = [stall_probes(database) for database in first.databases]
        second = await site.ticket_server(servers=[another(site, 1), site.servers[1]])
        await asyncio.sleep(7 * PROBE_INTERVAL)
        assert refusal(second, 1) == ""
        tickets += await drawn_by_any([second], 1, 100)
        if broken:
            first.ring.mark_down(first.ring.members[1], "broke the connection off")
        tickets += await drawn_by_any([first, second], 3 if broken else 5, 100)
        for resume in resumed:
            resume.set()
        tickets += await drawn_by_any([first, second], 5)
        assert len(set(tickets)) == len(tickets)
        assert "draws from other1:3306" in refusal(first, 1)


@virtual_time
async def test_a_database_that_cannot_be_reached_holds_up_nothing_for_longer_than_one_look() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await drawn_by([server], 1)
        site.servers[1].hang()
        for _ in range(40):
            began = asyncio.get_running_loop().time()
            await server.desk.take("photos")
            assert asyncio.get_running_loop().time() - began <= 0.6  # one attempt on the database that hangs
            await asyncio.sleep(0.3)


@virtual_time
async def test_what_a_database_says_of_another_body_counts_before_that_database_is_up() -> None:
    """It was restarted, and the server has yet to record that when it reads that its own body has been replaced."""
    async with Site(2) as site:
        first = await site.ticket_server()
        tickets = await drawn_by([first], 1)
        resumed = [stall_probes(database) for database in first.databases]
        second = await site.ticket_server(servers=[another(site, 1), site.servers[1]])
        await asyncio.sleep(7 * PROBE_INTERVAL)
        tickets += await drawn_by_any([second], 1, 100)
        site.servers[1].restart()
        database = first.databases[1]
        record_ring, recorded = database.record_ring, asyncio.Event()

        async def slow(old: RingRecord | None, new: RingRecord) -> RingRecord:
            await recorded.wait()
            return await record_ring(old, new)

        database.record_ring = slow  # type: ignore[method-assign]
        first.ring.mark_down(first.ring.members[1], "was restarted or replaced")
        for resume in resumed[1:]:
            resume.set()
        tickets += await drawn_by_any([first], 2, 100)
        recorded.set()
        resumed[0].set()
        tickets += await drawn_by_any([first, second], 5)
        assert len(set(tickets)) == len(tickets)
