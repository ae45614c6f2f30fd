"""What a pool and a probe do where no new connection can be had: keep those that work, and tell why."""

import asyncio
import socket
import time
from typing import Any

import pymysql.err
import pytest

from app.common.errors import NoFurtherConnection, TicketDatabaseError, TicketDatabaseUnavailable
from app.databases.mysql import pool as mysql_pool
from app.databases.mysql.connection import MySQLConnection
from app.databases.mysql.database import MySQLDatabase
from app.databases.mysql.driver import Rows, translate
from app.databases.mysql.pool import IDLE_SECONDS, MySQLPool
from app.databases.mysql.url import DatabaseURL
from tests.unit.databases.mysql_driver import URL, connection_that_answers, facts_that_fit

TOO_MANY, TOO_MANY_OF_THIS_USER, LIMIT_REACHED, REFUSED, HUNG_UP, DENIED = 1040, 1203, 1226, 2003, 2013, 1045


OF_A_NEW_ONE: tuple[Rows, ...] = (((1,),), ())
"""What it is asked first: the version of the own tables, and whether all are there."""
OF_AN_OLD_ONE: tuple[Rows, ...] = (*facts_that_fit(), (), (), *facts_that_fit())
"""A look (the facts, a write, the ring record), and the facts again."""


class Server:
    """Stands for `opened`: gives connections, or the error of this code."""

    def __init__(self) -> None:
        self.code = 0
        self.asked: list[list[str]] = []

    async def __call__(self, *_: object, addresses: list[str], anybody: bool) -> MySQLConnection:
        self.asked.append(addresses)
        if self.code:
            cause = pymysql.err.OperationalError(self.code, "no")
            raise translate(cause) from cause
        return await connection(*OF_A_NEW_ONE)


async def connection(*answers: Rows) -> MySQLConnection:
    """One that has been opened, and answers the next statements with these."""
    made = connection_that_answers(*facts_that_fit(), *answers)
    made.facts = await made.check()
    return made


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(mysql_pool, "opened", server)
    return server


async def pool_with(idle: int, url: DatabaseURL = URL) -> MySQLPool:
    pool = MySQLPool(url, 1, 2, 0.2)
    for _ in range(idle):
        made = await connection(*OF_AN_OLD_ONE)
        assert made.facts is not None
        pool.incarnation = made.facts.incarnation
        pool._connections.add(made)
        pool.give_back(made)
    return pool


# -- no further connection


async def test_whoever_wants_one_gets_the_next_that_is_given_back(server: Server) -> None:
    pool = await pool_with(1)
    server.code = TOO_MANY
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
    pool = await pool_with(1)
    server.code = TOO_MANY
    held = await pool.connection()
    waiting = asyncio.ensure_future(pool.connection())
    await asyncio.sleep(0)
    pool.give_back(held)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert pool.take_idle() is held


async def test_nobody_waits_where_there_is_none_or_for_ever(server: Server) -> None:
    server.code = TOO_MANY
    pool = await pool_with(0)
    with pytest.raises(NoFurtherConnection, match="too many connections"):
        await pool.connection()
    pool = await pool_with(1)
    await pool.connection()
    with pytest.raises(NoFurtherConnection, match="too many connections"):
        await pool.connection()


async def test_the_last_idle_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = await pool_with(3)
    later = time.monotonic() + IDLE_SECONDS + 1

    async def say_goodbye(self: MySQLConnection) -> None:
        self.drop()

    monkeypatch.setattr(MySQLConnection, "say_goodbye", say_goodbye)
    monkeypatch.setattr(time, "monotonic", lambda: later)
    await pool.close_unused()
    assert pool.open == 1
    assert pool.take_idle() is not None


# -- the probe


async def database(server: Server) -> MySQLDatabase:
    """One with a probe's connection that is to be replaced, and an idle one."""
    made = MySQLDatabase(URL, 1, 2, 1.0)
    made._pool = await pool_with(1)
    made._probe = await connection(*OF_AN_OLD_ONE)
    made._pool._connections.add(made._probe)
    return made


@pytest.mark.parametrize("code", [TOO_MANY, TOO_MANY_OF_THIS_USER, LIMIT_REACHED])
async def test_a_server_that_has_no_further_connection_to_give_is_well(server: Server, code: int) -> None:
    found = await database(server)
    probe, server.code = found._probe, code
    look = await found.probe()
    assert found._probe is probe
    assert [warning for warning in look.warnings if warning.startswith("new connections fail: has ")]
    await found._probe_connection()
    assert len(server.asked) == 1  # not with each probe
    server.code, found._renew_at = 0, 0.0
    await found._probe_connection()
    assert found._probe is not probe
    assert not found._pool.warnings


@pytest.mark.parametrize("code", [REFUSED, HUNG_UP, DENIED])
async def test_anything_else_may_mean_that_the_old_one_leads_elsewhere(server: Server, code: int) -> None:
    found = await database(server)
    server.code = code
    with pytest.raises(TicketDatabaseUnavailable):
        await found.probe()
    assert found._probe is None


async def test_a_probe_whose_connection_was_cut_looks_on_a_new_one(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut connection says nothing about the database, which answers the next one."""
    found = await database(server)
    cut, looked_on = found._probe, list[MySQLConnection | None]()

    async def look() -> str:
        looked_on.append(found._probe)
        if found._probe is cut:
            raise TicketDatabaseUnavailable("lost the connection")
        return "what it says"

    monkeypatch.setattr(found, "_look", look)
    assert str(await found.probe()) == "what it says"
    assert looked_on == [cut, None]


async def test_a_probe_that_has_lost_its_connection_uses_an_idle_one(server: Server) -> None:
    found = await database(server)
    found._drop_probe()
    server.code = TOO_MANY
    await found.probe()
    assert len(server.asked) == 1
    assert found.connections == 1
    assert found._pool.take_idle() is not None  # the only one there is: draws have it between two looks


async def test_no_connection_is_forgotten_before_there_is_a_new_one(server: Server) -> None:
    found = await database(server)
    server.code = TOO_MANY
    found.forget_connections()
    await found._probe_connection()
    assert found.connections == 2
    server.code, found._renew_at = 0, 0.0
    await found._probe_connection()
    assert found.connections == 1
    assert found._pool.take_idle() is None


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
    pool = await pool_with(0, NAMED)
    await pool.connect(anybody=True)
    setattr(names, how, True)
    await pool.connect(anybody=True)
    assert server.asked == [["192.0.2.1"]] * 2
    assert "its name does not resolve" in pool.warnings[0]


async def test_a_name_that_has_moved(server: Server, names: NameService) -> None:
    pool = await pool_with(0, NAMED)
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
    pool = await pool_with(0, NAMED)
    with pytest.raises(TicketDatabaseError, match="has a name that does not resolve"):
        await pool.connect(anybody=True)
    assert not server.asked
