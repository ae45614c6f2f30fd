"""TicketDefault on real databases, with sync and async sessions: one request serves an INSERT of many rows."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, ForeignKey, MetaData, String, create_engine, event, insert, inspect, literal, select
from sqlalchemy.exc import CompileError, InvalidRequestError, StatementError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from tests.servers_shared import SharedServers

from lying_server import Honest, Serve, until
from orm_servers import KINDS, empty_database
from ticketd_client import AsyncTickets, Tickets, TicketsUnavailable
from ticketd_client.sqlalchemy import TicketDefault

DRIVERS = {
    "sqlite": ("sqlite", "sqlite+aiosqlite"),
    "mysql": ("mysql+pymysql", "mysql+asyncmy"),
    "postgresql": ("postgresql+psycopg", "postgresql+asyncpg"),
}


class Application:
    """The models, for these Tickets, and their tables in a database."""

    def __init__(self, tickets: Any, kind: str, place: str, is_async: bool) -> None:
        self.tickets, self.is_async = tickets, is_async
        self.url, self.async_url = (f"{driver}://{place}" for driver in DRIVERS[kind])
        self.statements: list[str] = []

        class Base(DeclarativeBase):
            pass

        class Album(Base):
            __tablename__ = "albums"
            id = mapped_column(BigInteger, default=TicketDefault(tickets, "groups"), primary_key=True)
            title: Mapped[str] = mapped_column(String(100))
            photos = relationship("Photo")

        class Photo(Base):
            __tablename__ = "photos"
            id = mapped_column(BigInteger, default=TicketDefault(lambda: tickets, "photos"), primary_key=True)
            title: Mapped[str] = mapped_column(String(100))
            kind: Mapped[str] = mapped_column(String(20), default="photo")
            album_id = mapped_column(ForeignKey("albums.id"))
            __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "photo"}  # noqa: RUF012

        class Panorama(Photo):
            __tablename__ = "panoramas"
            id = mapped_column(ForeignKey("photos.id"), primary_key=True)
            degrees: Mapped[int]
            __mapper_args__ = {"polymorphic_identity": "panorama"}  # noqa: RUF012

        self.metadata: MetaData = Base.metadata
        self.Album, self.Photo, self.Panorama = Album, Photo, Panorama

    def run(self, do: Callable[[Session], Any]) -> None:
        """Do it in a session, of an async engine where `is_async` says so."""
        if not self.is_async:
            engine = create_engine(self.url)
            event.listen(engine, "before_cursor_execute", lambda *given: self.statements.append(given[2]))
            try:
                with Session(engine, expire_on_commit=False) as session:
                    do(session)
            finally:
                engine.dispose()
            return

        async def run() -> None:
            engine = create_async_engine(self.async_url)
            async with AsyncSession(engine, expire_on_commit=False) as session:
                await session.run_sync(do)
            await engine.dispose()

        asyncio.run(run())

    def keys(self, session: Session, model: Any) -> list[int]:
        return list(session.scalars(select(model.__table__.c.id)))


@pytest.fixture(scope="module", params=KINDS)
def place(
    request: pytest.FixtureRequest, shared_servers: SharedServers, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str]:
    """A kind of database, and where one is."""
    return request.param, empty_database(request.param, shared_servers, tmp_path_factory.mktemp("application"))


@pytest.fixture
def honest() -> Honest:
    """The ticket server of the application. Without prefetch each call is a request, and can be counted."""
    return Honest()


@pytest.fixture(params=[(Tickets, False), (Tickets, True), (AsyncTickets, True)], ids=["sync", "mixed", "async"])
def application(
    request: pytest.FixtureRequest, place: tuple[str, str], serve: Serve, honest: Honest
) -> Iterator[Application]:
    kind, is_async = request.param
    made = Application(kind(serve(honest).url, prefetch=0, timeout=60), *place, is_async)
    engine = create_engine(made.url)
    made.metadata.create_all(engine)
    yield made
    made.metadata.drop_all(engine)
    engine.dispose()
    closed = made.tickets.close()
    if closed is not None:
        asyncio.run(closed)


def test_a_flush_takes_the_tickets_of_each_class_at_once(application: Application, honest: Honest) -> None:
    """The rows go together as well, also where a database has no RETURNING."""
    photos = [application.Photo(title=str(number)) for number in range(1_000)]
    album = application.Album(title="a", photos=[*photos[:3], application.Panorama(title="b", degrees=90)])

    def do(session: Session) -> None:
        session.add_all([*photos, album, application.Photo(id=10**15, title="given")])
        session.flush()
        assert len(honest.calls) == 3
        assert all(photo.album_id == album.id for photo in album.photos)
        session.commit()
        keys = application.keys(session, application.Photo)
        assert sorted(keys) == sorted([*(photo.id for photo in {*photos, *album.photos}), 10**15])
        assert len(set(keys)) == 1_002
        found = session.get(application.Panorama, album.photos[3].id)
        assert found is not None
        assert found.degrees == 90

    application.run(do)
    assert sum("INSERT" in statement for statement in application.statements) <= 20


def test_an_insert_of_rows_takes_its_tickets_at_once(application: Application, honest: Honest) -> None:
    album, rows = application.Album, [{"title": str(number)} for number in range(500)]
    table: Any = album.__table__

    def do(session: Session) -> None:
        connection = session.connection()
        inserts: list[Callable[[], Any]] = [
            lambda: connection.execute(table.insert(), rows),
            lambda: connection.execute(table.insert().values(rows)),
            lambda: session.execute(insert(album), rows),
            lambda: session.bulk_save_objects([album(**row) for row in rows]),
        ]
        for number, each in enumerate(inserts, 1):
            each()
            assert len(honest.calls) == number
            assert len(set(application.keys(session, album))) == 500 * number
        if connection.dialect.insert_executemany_returning_sort_by_parameter_order:
            statement = insert(album).returning(album.id, album.title, sort_by_parameter_order=True)
            assert [title for _, title in session.execute(statement, rows)] == [row["title"] for row in rows]
        asked = len(honest.calls)
        connection.execute(table.insert(), [{"id": 10**15 + n, "title": "b"} for n in range(3)])
        assert len(honest.calls) == asked
        for target in (table, album):  # all its rows would get one ticket
            with pytest.raises(StatementError, match="FROM SELECT") as raised:
                session.execute(insert(target).from_select(["title"], select(literal("a"))))
            assert isinstance(raised.value.orig, CompileError)
        session.rollback()

    application.run(do)


def test_without_a_server_the_clients_own_exception(
    application: Application, place: tuple[str, str], nobody: str
) -> None:
    """From a flush and a statement alike; it can be pickled, and the session goes on after a rollback."""
    tickets = type(application.tickets)(f"http://{nobody}", timeout=0.2)
    alone = Application(tickets, *place, application.is_async)

    def do(session: Session) -> None:
        session.add(alone.Album(title="a"))
        with pytest.raises(TicketsUnavailable, match=nobody):
            session.flush()
        session.rollback()
        with pytest.raises(TicketsUnavailable) as raised:
            session.execute(insert(alone.Album), [{"title": "a"}, {"title": "b"}])
        again = pickle.loads(pickle.dumps(raised.value))
        assert (type(again), str(again)) == (TicketsUnavailable, str(raised.value))
        session.add(alone.Album(id=5, title="given"))
        session.flush()
        assert alone.keys(session, alone.Album) == [5]

    alone.run(do)


def test_async_tickets_are_refused_on_a_sync_engine(place: tuple[str, str]) -> None:
    application = Application(AsyncTickets("http://127.0.0.1:9"), *place, is_async=False)
    with pytest.raises(StatementError, match="AsyncTickets") as raised:
        application.run(lambda session: session.execute(insert(application.Album), [{"title": "a"}]))
    assert isinstance(raised.value.orig, InvalidRequestError)


def test_a_loop_goes_on_while_a_flush_waits_for_tickets(application: Application, honest: Honest) -> None:
    if not application.is_async:
        return

    async def run() -> None:
        engine = create_async_engine(application.async_url)
        honest.go_on.clear()
        async with AsyncSession(engine) as session:
            session.add(application.Album(title="a"))
            flush = asyncio.create_task(session.flush())
            await asyncio.to_thread(until, lambda: honest.calls)
            assert not flush.done()
            honest.go_on.set()
            await flush
        await engine.dispose()

    asyncio.run(run())


def test_the_example_does_what_its_readme_says(place: tuple[str, str], serve: Serve) -> None:
    client = Path(__file__).resolve().parents[1]
    url = f"{DRIVERS[place[0]][0]}://{place[1]}"
    env = {**os.environ, "PYTHONPATH": str(client), "ID_SERVERS": serve(Honest()).url, "DATABASE_URL": url}

    def run(*command: str) -> str:
        command = (sys.executable, *command)
        folder = client / "examples" / "sqlalchemy_photos"
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("-m", "alembic", "upgrade", "head")
    assert "No new upgrade operations" in run("-m", "alembic", "check")
    assert run("photobook.py").endswith("2000 photos in the database\n")
    engine = create_engine(url)
    key = next(each for each in inspect(engine).get_columns("photos") if each["name"] == "id")
    assert not key.get("autoincrement"), "the database numbers as well"
    engine.dispose()
    run("-m", "alembic", "downgrade", "base")
