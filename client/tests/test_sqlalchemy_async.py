"""TicketDefault on async engines, with AsyncTickets and with Tickets."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, insert, select
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from tests.servers_processes import free_port
from tests.ticketd import TicketServer

from orm_models import Models, make_models
from orm_servers import KINDS, Database, database, requests, ticket_server
from ticketd_client import AsyncTickets, Tickets, TicketsUnavailable


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TicketServer]:
    with ticket_server(tmp_path_factory.mktemp("tickets")) as server:
        yield server


@pytest.fixture(scope="module", params=KINDS)
def application(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with database(request.param, tmp_path_factory.mktemp("application")) as found:
        yield found


@contextlib.asynccontextmanager
async def tables(url: str, models: Models) -> AsyncIterator[AsyncEngine]:
    """The models' tables, on this URL."""
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(models.Base.metadata.create_all)
    try:
        yield engine
    finally:
        async with engine.begin() as connection:
            await connection.run_sync(models.Base.metadata.drop_all)
        await engine.dispose()


@pytest.mark.parametrize("many", [1_000, 10_000])
@pytest.mark.parametrize("kind", [Tickets, AsyncTickets])
async def test_async_sessions_and_connections(
    application: Database, server: TicketServer, kind: type[Tickets | AsyncTickets], many: int
) -> None:
    """Thousands of objects at a time with each driver there is, then rows, one request each; without RETURNING too."""
    tickets = kind([server.url], prefetch=0, timeout=30)
    for url in application.async_urls:
        models = make_models(tickets)
        async with tables(url, models) as engine, AsyncSession(engine) as session:
            before = requests(server)
            photos = [models.Photo(title=str(number)) for number in range(many)]
            session.add_all(photos)
            await session.commit()
            assert requests(server) - before == 1
            await session.execute(insert(models.Photo), [{"title": str(number)} for number in range(500)])
            assert requests(server) - before == 2
            await (await session.connection()).execute(models.Photo.__table__.insert(), {"title": "x"})
            assert requests(server) - before == 3
            keys = list(await session.scalars(select(models.Photo.__table__.c.id)))
            assert len(set(keys)) == len(keys) == many + 501
            await session.rollback()
    closed = tickets.close()
    if closed is not None:
        await closed


async def test_many_sessions_at_once_share_no_ticket(application: Database, server: TicketServer) -> None:
    async with AsyncTickets([server.url], prefetch=100, timeout=30) as tickets:
        models = make_models(tickets)
        async with tables(application.async_urls[0], models) as engine:

            async def add(number: int) -> None:
                async with AsyncSession(engine) as session:
                    session.add_all([models.Album(title=str(number)) for _ in range(20)])
                    await session.commit()

            await asyncio.gather(*(add(number) for number in range(20)))
            async with AsyncSession(engine) as session:
                keys = list(await session.scalars(select(models.Album.id)))
            assert len(set(keys)) == len(keys) == 400


class SlowTickets(Tickets):
    """Answers when it is let."""

    def __init__(self) -> None:
        super().__init__([f"http://127.0.0.1:{free_port()}"])
        self.asked, self.let = threading.Event(), threading.Event()

    def take_many(self, sequence: str, n: int, key: Any = None) -> list[Any]:
        self.asked.set()
        assert self.let.wait(30)
        return list(range(1, n + 1))


async def test_tickets_of_the_sync_kind_do_not_stop_the_loop(application: Database) -> None:
    tickets = SlowTickets()
    models = make_models(tickets)
    async with tables(application.async_urls[0], models) as engine, AsyncSession(engine) as session:
        session.add(models.Album(title="a"))
        flush = asyncio.create_task(session.flush())
        assert await asyncio.to_thread(tickets.asked.wait, 30)
        assert not flush.done()  # we run, while it waits for its ticket
        tickets.let.set()
        await flush


async def test_without_a_server_the_clients_own_exception(application: Database) -> None:
    async with AsyncTickets([f"http://127.0.0.1:{free_port()}"], timeout=0.5) as tickets:
        models = make_models(tickets)
        async with tables(application.async_urls[0], models) as engine, AsyncSession(engine) as session:
            session.add(models.Album(title="a"))
            with pytest.raises(TicketsUnavailable):
                await session.flush()
            await session.rollback()
            with pytest.raises(TicketsUnavailable):
                await session.execute(insert(models.Album), [{"title": "a"}])


def test_async_tickets_are_refused_on_a_sync_engine(application: Database, server: TicketServer) -> None:
    models = make_models(AsyncTickets([server.url]))
    engine = create_engine(application.url)
    models.Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(models.Album(title="a"))
        with pytest.raises(InvalidRequestError, match="give it Tickets"):
            session.flush()
    models.Base.metadata.drop_all(engine)
    engine.dispose()
