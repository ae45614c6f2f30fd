"""TicketDefault on real databases, with sync and async sessions: one request serves an INSERT of many rows."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, ForeignKey, String, create_engine, event, insert, literal, select
from sqlalchemy.exc import CompileError, InvalidRequestError, StatementError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from lying_server import Honest, Serve, until
from ticketd_client import AsyncTickets, Tickets, TicketsUnavailable
from ticketd_client.sqlalchemy import TicketDefault

DRIVERS = {
    "sqlite": ("sqlite", "sqlite+aiosqlite"),
    "mysql": ("mysql+pymysql", "mysql+asyncmy"),
    "postgresql": ("postgresql+psycopg", "postgresql+asyncpg"),
}
current: dict[str, Any] = {}
"""The client of the test that runs, as `tickets`."""


class Base(DeclarativeBase):
    pass


class Album(Base):
    __tablename__ = "albums"
    id = mapped_column(BigInteger, default=TicketDefault(lambda: current["tickets"], "groups"), primary_key=True)
    title: Mapped[str] = mapped_column(String(100))
    photos = relationship("Photo")


class Photo(Base):
    __tablename__ = "photos"
    id = mapped_column(BigInteger, default=TicketDefault(lambda: current["tickets"], "photos"), primary_key=True)
    title: Mapped[str] = mapped_column(String(100))
    kind: Mapped[str] = mapped_column(String(20), default="photo")
    album_id = mapped_column(ForeignKey("albums.id"))
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "photo"}  # noqa: RUF012


class Panorama(Photo):
    __tablename__ = "panoramas"
    id = mapped_column(ForeignKey("photos.id"), primary_key=True)
    degrees: Mapped[int]
    __mapper_args__ = {"polymorphic_identity": "panorama"}  # noqa: RUF012


@pytest.fixture(scope="module", params=DRIVERS)
def place(request: Any, empty_database: Any, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The URLs of an empty database, for a sync engine and for an async one."""
    found = empty_database(request.param, tmp_path_factory.mktemp("application"))
    return [f"{driver}://{found}" for driver in DRIVERS[request.param]]


@pytest.fixture
def honest() -> Honest:
    """The ticket server."""
    return Honest()


@pytest.fixture(params=[(Tickets, False), (Tickets, True), (AsyncTickets, True)], ids=["sync", "mixed", "async"])
def run(request: Any, place: list[str], serve: Serve, honest: Honest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Does something in a session."""
    kind, is_async = request.param
    monkeypatch.setitem(current, "tickets", tickets := kind(serve(honest).url, prefetch=0, timeout=60))
    engine = create_engine(place[0])
    Base.metadata.create_all(engine)

    def run(do: Callable[[Session], Any]) -> None:
        async def run() -> None:
            engine = create_async_engine(place[1])
            async with AsyncSession(engine, expire_on_commit=False) as session:
                await session.run_sync(do)
            await engine.dispose()

        if is_async:
            asyncio.run(run())
            return
        with Session(engine, expire_on_commit=False) as session:
            do(session)

    yield run
    Base.metadata.drop_all(engine)
    engine.dispose()
    closed = tickets.close()
    if closed is not None:
        asyncio.run(closed)


def keys(session: Session, model: Any) -> list[int]:
    return list(session.scalars(select(model.__table__.c.id)))


def test_a_flush_takes_the_tickets_of_each_class_at_once(run: Any, honest: Honest) -> None:
    """The rows go together as well, also where a database has no RETURNING."""
    photos, statements = [Photo(title=str(number)) for number in range(1_000)], []
    album = Album(title="a", photos=[*photos[:3], Panorama(title="b", degrees=90)])

    def do(session: Session) -> None:
        event.listen(session.get_bind(), "before_cursor_execute", lambda *given: statements.append(given[2]))
        session.add_all([*photos, album, Photo(id=10**15, title="given")])
        session.flush()
        assert len(honest.calls) == 3
        assert all(photo.album_id == album.id for photo in album.photos)
        session.commit()
        assert sorted(keys(session, Photo)) == sorted([*(photo.id for photo in {*photos, *album.photos}), 10**15])
        assert len(set(keys(session, Photo))) == 1_002
        found = session.get(Panorama, album.photos[3].id)
        assert found is not None
        assert found.degrees == 90
        assert sum("INSERT" in statement for statement in statements) <= 20

    run(do)


def test_an_insert_of_rows_takes_its_tickets_at_once(run: Any, honest: Honest) -> None:
    rows, table = [{"title": str(number)} for number in range(500)], Album.metadata.tables["albums"]

    def do(session: Session) -> None:
        connection = session.connection()
        inserts: list[Callable[[], Any]] = [
            lambda: connection.execute(table.insert(), rows),
            lambda: connection.execute(table.insert().values(rows)),
            lambda: session.execute(insert(Album), rows),
            lambda: session.bulk_save_objects([Album(**row) for row in rows]),
        ]
        for number, each in enumerate(inserts, 1):
            each()
            assert len(honest.calls) == number
            assert len(set(keys(session, Album))) == 500 * number
        if connection.dialect.insert_executemany_returning_sort_by_parameter_order:
            statement = insert(Album).returning(Album.id, Album.title, sort_by_parameter_order=True)
            assert [title for _, title in session.execute(statement, rows)] == [row["title"] for row in rows]
        asked = len(honest.calls)
        connection.execute(table.insert(), [{"id": 10**15 + n, "title": "b"} for n in range(3)])
        assert len(honest.calls) == asked
        targets: list[Any] = [table, Album]
        for target in targets:  # all its rows would get one ticket
            with pytest.raises(StatementError, match="FROM SELECT") as raised:
                session.execute(insert(target).from_select(["title"], select(literal("a"))))
            assert isinstance(raised.value.orig, CompileError)
        session.rollback()

    run(do)


def test_without_a_server_the_clients_own_exception(run: Any, nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a flush and a statement alike; the session goes on after a rollback."""

    def do(session: Session) -> None:
        session.add(Album(title="a"))
        with pytest.raises(TicketsUnavailable, match=nobody):
            session.flush()
        session.rollback()
        with pytest.raises(TicketsUnavailable):
            session.execute(insert(Album), [{"title": "a"}, {"title": "b"}])
        session.add(Album(id=5, title="given"))
        session.flush()
        assert keys(session, Album) == [5]

    monkeypatch.setitem(current, "tickets", type(current["tickets"])(f"http://{nobody}", timeout=0.2))
    run(do)


def test_async_tickets_are_refused_on_a_sync_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(current, "tickets", AsyncTickets("http://127.0.0.1:9"))
    with Session(create_engine("sqlite://")) as session, pytest.raises(StatementError, match="AsyncTickets") as raised:
        session.execute(insert(Album), [{"title": "a"}])
    assert isinstance(raised.value.orig, InvalidRequestError)


@pytest.mark.parametrize("kind", [Tickets, AsyncTickets])
def test_a_loop_goes_on_while_a_flush_waits_for_tickets(
    serve: Serve, honest: Honest, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    async def flush() -> None:
        engine = create_async_engine("sqlite+aiosqlite://")
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        honest.go_on.clear()
        async with AsyncSession(engine) as session:
            session.add(Album(title="a"))
            flush = asyncio.create_task(session.flush())
            await asyncio.to_thread(until, lambda: honest.calls)
            assert not flush.done()
            honest.go_on.set()
            await flush
        await engine.dispose()

    monkeypatch.setitem(current, "tickets", kind(serve(honest).url, prefetch=0, timeout=60))
    asyncio.run(flush())


EXAMPLE = """
from alembic.config import main as alembic
from sqlalchemy import create_engine, inspect
import photobook
alembic(["upgrade", "head"])
alembic(["check"])
photobook.main()
engine = create_engine(photobook.DATABASE_URL)
key = next(each for each in inspect(engine).get_columns("photos") if each["name"] == "id")
assert not key.get("autoincrement"), "the database numbers as well"
engine.dispose()
alembic(["downgrade", "base"])
"""


def test_the_example_does_what_its_readme_says(place: list[str], serve: Serve) -> None:
    client = Path(__file__).resolve().parents[1]
    example, path = client / "examples/sqlalchemy_photos", os.pathsep.join(map(str, (client, ".")))
    env = {**os.environ, "PYTHONPATH": path, "ID_SERVERS": serve(Honest()).url, "DATABASE_URL": place[0]}
    command = [sys.executable, "-c", EXAMPLE]
    done = subprocess.run(command, cwd=example, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No new upgrade operations" in done.stdout
    assert "\n2000 photos in the database\n" in done.stdout
