"""What a pool and a probe do where no new connection can be had: keep those that work, and tell why."""

import asyncio
import socket
import time
from typing import Any

import pytest

from app.common.errors import NoFurtherConnection, TicketDatabaseError, TicketDatabaseUnavailable
from app.databases.mysql.database import PROBE_CONNECTION_SECONDS, MySQLDatabase
from app.databases.mysql.line.pool import IDLE_SECONDS, REFUSED_SECONDS, MySQLPool
from app.databases.mysql.line.url import DatabaseURL
from app.databases.protocol import ServerEntry
from tests.unit.databases.mysql_driver import LOST, URL, Driver, Server

TOO_MANY, TOO_MANY_OF_THIS_USER, LIMIT_REACHED, REFUSED, DENIED = 1040, 1203, 1226, 2003, 1045


class Clock:
    """Time as it passes, and more where a test says so."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._monotonic = time.monotonic

    def monotonic(self) -> float:
        return self._monotonic() + self.ahead

    def advance(self, seconds: float) -> None:
        self.ahead += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    return clock


async def pool_with(server: Server, idle: int) -> MySQLPool:
    """One with so many idle connections, and nothing has been asked of the server since."""
    pool = MySQLPool(URL, 1, 2, 0.2)
    refuses, server.refuses = server.refuses, 0
    made = [await pool.connect(anybody=True) for _ in range(idle)]
    for each in made:
        assert each.facts is not None
        pool.incarnation = each.facts.incarnation
        pool.give_back(each)
    server.refuses = refuses
    server.asked.clear()
    return pool


# -- no further connection


async def test_whoever_wants_one_gets_the_next_that_is_given_back(server: Server) -> None:
    pool = await pool_with(server, 1)
    server.refuses = TOO_MANY
    held = await pool.connection()
    waiting = [asyncio.ensure_future(pool.connection()) for _ in range(2)]
    await asyncio.sleep(0)
    pool.give_back(held)
    assert await waiting[0] is held
    pool.give_back(held)
    assert await waiting[1] is held
    assert len(server.asked) == 1  # nobody asked again at once
    assert pool.warnings == ("new connections fail: has too many connections",)


async def test_one_that_is_given_to_somebody_who_has_left_is_not_lost(server: Server) -> None:
    pool = await pool_with(server, 1)
    server.refuses = TOO_MANY
    held = await pool.connection()
    waiting = asyncio.ensure_future(pool.connection())
    await asyncio.sleep(0)
    pool.give_back(held)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert pool.take_idle() is held


async def test_nobody_waits_where_there_is_none_or_for_ever(server: Server) -> None:
    server.refuses = TOO_MANY
    patient = MySQLPool(URL, 1, 2, 3600.0)
    with pytest.raises(NoFurtherConnection, match="too many connections"):
        await patient.connection()
    pool = await pool_with(server, 1)
    await pool.connection()
    with pytest.raises(NoFurtherConnection, match="too many connections"):
        await pool.connection()


async def test_the_last_idle_one_stays(server: Server, clock: Clock) -> None:
    pool = await pool_with(server, 3)
    clock.advance(IDLE_SECONDS + 1)
    await pool.close_unused()
    assert pool.open == 1
    assert [driver.usable for driver in server.drivers].count(True) == 1
    assert pool.take_idle() is not None


# -- the probe


async def database(server: Server) -> tuple[MySQLDatabase, Driver]:
    """One with an idle connection, and its probe's; nothing has been asked of the server since."""
    made = MySQLDatabase(URL, 1, 2, 1.0)
    await made.probe()
    await made.names()
    assert made.connections == 2
    (probe,) = server.looked_on
    server.asked.clear()
    server.looked_on.clear()
    return made, probe


@pytest.mark.parametrize("code", [TOO_MANY, TOO_MANY_OF_THIS_USER, LIMIT_REACHED])
async def test_a_server_that_has_no_further_connection_to_give_is_well(server: Server, clock: Clock, code: int) -> None:
    found, probe = await database(server)
    clock.advance(PROBE_CONNECTION_SECONDS)
    server.refuses = code
    look = await found.probe()
    assert [warning for warning in look.warnings if warning.startswith("new connections fail: has ")]
    await found.probe()
    assert server.looked_on == [probe, probe]
    assert len(server.asked) == 1  # not with each probe
    clock.advance(REFUSED_SECONDS)
    server.refuses = 0
    look = await found.probe()
    assert server.looked_on[2:] == server.drivers[2:]
    assert not probe.usable
    assert not look.warnings


@pytest.mark.parametrize("code", [REFUSED, LOST, DENIED])
async def test_anything_else_may_mean_that_the_old_one_leads_elsewhere(server: Server, clock: Clock, code: int) -> None:
    found, probe = await database(server)
    clock.advance(PROBE_CONNECTION_SECONDS)
    server.refuses = code
    with pytest.raises(TicketDatabaseUnavailable):
        await found.probe()
    assert not server.looked_on
    assert not probe.usable
    assert found.connections == 1


async def test_a_probe_whose_connection_was_cut_looks_on_a_new_one(server: Server) -> None:
    """A cut connection says nothing about the database, which answers the next one."""
    found, probe = await database(server)
    probe.cut = True
    await found.probe()
    assert len(server.asked) == 1
    assert server.looked_on == server.drivers[2:]
    assert not probe.usable


async def test_a_probe_that_has_lost_its_connection_uses_an_idle_one(server: Server) -> None:
    found, probe = await database(server)
    probe.usable = False
    server.refuses = TOO_MANY
    await found.probe()
    assert len(server.asked) == 1
    assert found.connections == 1
    await found.names()  # on the only one there is: draws have it between two looks
    assert len(server.asked) == 1


async def test_no_connection_is_forgotten_before_there_is_a_new_one(server: Server, clock: Clock) -> None:
    found, _ = await database(server)
    server.refuses = TOO_MANY
    found.forget_connections()
    await found.probe()
    assert found.connections == 2
    clock.advance(REFUSED_SECONDS)
    server.refuses = 0
    await found.probe()
    assert found.connections == 1
    assert [driver.usable for driver in server.drivers] == [False, False, True]


# -- the name service


class NameService:
    """Stands for the event loop's look-ups."""

    def __init__(self) -> None:
        self.addresses = ["192.0.2.1"]
        self.away = self.silent = False

    async def __call__(self, *_: object, **__: object) -> list[Any]:
        if self.silent:
            await asyncio.Event().wait()
        if self.away:
            raise socket.gaierror(socket.EAI_AGAIN, "no")
        return [(None, None, None, "", (address, 3306)) for address in self.addresses]


@pytest.fixture
async def names(monkeypatch: pytest.MonkeyPatch) -> NameService:
    service = NameService()
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", service)
    return service


NAMED = DatabaseURL.parse("mysql://u@odd.example/d")


@pytest.mark.parametrize("how", ["away", "silent"])
async def test_a_name_service_that_is_away(server: Server, names: NameService, how: str) -> None:
    pool = MySQLPool(NAMED, 1, 2, 0.2)
    await pool.connect(anybody=True)
    setattr(names, how, True)
    await pool.connect(anybody=True)
    assert server.asked == [["192.0.2.1"]] * 2
    assert "its name does not resolve" in pool.warnings[0]


async def test_a_name_that_has_moved(server: Server, names: NameService) -> None:
    pool = MySQLPool(NAMED, 1, 2, 0.2)
    await pool.connect(anybody=True)
    names.away = True
    await pool.connect(anybody=True)
    names.away, names.addresses = False, ["192.0.2.2", "192.0.2.3", "192.0.2.2"]
    await pool.connect(anybody=True)
    assert server.asked[2] == ["192.0.2.2", "192.0.2.3"]
    assert not pool.warnings


@pytest.mark.parametrize("how", ["away", "silent"])
async def test_a_name_that_never_was(server: Server, names: NameService, how: str) -> None:
    setattr(names, how, True)
    pool = MySQLPool(NAMED, 1, 2, 0.2)
    with pytest.raises(TicketDatabaseError, match="has a name that does not resolve"):
        await pool.connect(anybody=True)
    assert not server.asked


async def test_one_that_was_being_opened_when_connections_were_forgotten_is_used_once_and_not_kept(
    server: Server,
) -> None:
    """What was wrong with the others may be wrong with it, too."""
    pool = await pool_with(server, 1)
    kept = await pool.connection()
    opening = asyncio.ensure_future(pool.connect())
    await asyncio.sleep(0)
    pool.begin_era()
    fresh = await pool.connect()
    late = await opening
    pool.give_back(kept)
    assert await pool.connection() is kept  # until there is another one
    pool.drop_older()
    for each in (late, kept):
        assert each.usable
        pool.give_back(each)
        assert not each.usable
    pool.give_back(fresh)
    assert pool.take_idle() is fresh
    assert pool.open == 1


@pytest.mark.parametrize("lost", [False, True])
async def test_a_server_that_announced_itself_says_at_the_end_that_it_is_gone_if_it_can(
    server: Server, lost: bool
) -> None:
    made = MySQLDatabase(URL, 1, 2, 1.0)
    entry = ServerEntry("ab12", "1.0", ("ticket",), 0.5)
    made.announce(lambda: entry)
    await made.probe()
    (probe,) = server.drivers
    assert server.looked_on == []  # it writes no row of those who are no servers
    probe.cut = lost
    await made.close()
    assert made.connections == 0
    assert not probe.usable
