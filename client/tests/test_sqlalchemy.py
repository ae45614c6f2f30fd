"""TicketDefault on real databases, with sync engines: one request serves the INSERT of many rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, func, insert, literal, select
from sqlalchemy.exc import CompileError, StatementError
from sqlalchemy.orm import Session
from tests.servers_processes import free_port
from tests.ticketd import TicketServer

from orm_models import Models, make_models
from orm_servers import KINDS, Database, database, requests, ticket_server
from ticketd_client import Tickets, TicketsUnavailable

MANY = 10_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TicketServer]:
    with ticket_server(tmp_path_factory.mktemp("tickets")) as server:
        yield server


@pytest.fixture(scope="module", params=KINDS)
def application(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with database(request.param, tmp_path_factory.mktemp("application")) as found:
        yield found


@pytest.fixture
def engine(application: Database) -> Iterator[Engine]:
    engine = create_engine(application.url)
    yield engine
    engine.dispose()


@pytest.fixture
def tickets(server: TicketServer) -> Iterator[Tickets]:
    """Without anything fetched ahead: each call is a request, and can be counted."""
    with Tickets([server.url], prefetch=0, timeout=30) as tickets:
        yield tickets


@pytest.fixture
def models(tickets: Tickets, engine: Engine) -> Iterator[Models]:
    models = make_models(tickets)
    models.Base.metadata.create_all(engine)
    yield models
    models.Base.metadata.drop_all(engine)


def statements(engine: Engine) -> list[str]:
    """The statements of this engine from now on."""
    seen: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *arguments: seen.append(arguments[2]))
    return seen


def keys(session: Session, model: Any) -> list[int]:
    """The keys in the table."""
    return list(session.scalars(select(model.__table__.c.id)))


def test_flush_of_10000_objects_takes_its_tickets_at_once(engine: Engine, server: TicketServer, models: Models) -> None:
    photos = [models.Photo(title=str(number)) for number in range(MANY)]
    before, seen = requests(server), statements(engine)
    with Session(engine, expire_on_commit=False) as session:  # or each would be read again by itself
        session.add_all(photos)
        session.commit()
        assert requests(server) - before == 1
        assert sorted(keys(session, models.Photo)) == sorted(photo.id for photo in photos)
    assert len({photo.id for photo in photos}) == MANY
    # where there is no RETURNING, too, the rows go together: 10,000 statements would be as many round trips
    assert sum("INSERT" in statement for statement in seen) <= MANY / 100


def test_flush_on_a_driver_without_returning_of_many_rows(
    application: Database, server: TicketServer, models: Models
) -> None:
    """As on MySQL: with keys that were there only after the INSERT, the rows would have to go one by one."""
    engine = create_engine(application.url, use_insertmanyvalues=False)
    before, seen = requests(server), statements(engine)
    with Session(engine) as session:
        session.add_all([models.Photo(title=str(number)) for number in range(500)])
        session.commit()
    engine.dispose()
    assert requests(server) - before == 1
    assert sum("INSERT" in statement for statement in seen) == 1


def test_flush_with_prefetch_asks_once_a_block_at_most(engine: Engine, server: TicketServer, models: Models) -> None:
    with Tickets([server.url], prefetch=1000, timeout=30) as tickets:
        mine = make_models(tickets)
        before = requests(server)
        with Session(engine) as session:
            session.add_all([mine.Photo(title=str(number)) for number in range(3_000)])
            session.commit()
            assert requests(server) - before <= 3
            assert len(set(keys(session, mine.Photo))) == 3_000


def test_objects_have_their_keys_from_the_flush_on(engine: Engine, server: TicketServer, models: Models) -> None:
    album = models.Album(title="Summer", photos=[models.Photo(title="a"), models.Panorama(title="b", degrees=90)])
    note = models.Note(text="c")
    before = requests(server)
    with Session(engine) as session:
        session.add_all([album, note, models.Photo(id=10**15, title="given")])
        session.flush()
        assert requests(server) - before == 4  # an album, a photo, a panorama, a note
        assert album.id
        assert note.id
        assert all(photo.id and photo.album_id == album.id for photo in album.photos)
        session.commit()
        (panorama,) = [photo for photo in album.photos if isinstance(photo, models.Panorama)]
        found = session.get(models.Panorama, panorama.id)
        assert found is not None
        assert found.degrees == 90
        assert 10**15 in keys(session, models.Photo)


@pytest.mark.parametrize("how", ["core", "core values", "orm", "bulk mappings", "bulk objects"])
def test_insert_of_rows_takes_its_tickets_at_once(
    engine: Engine, server: TicketServer, models: Models, how: str
) -> None:
    table, rows = models.Album.__table__, [{"title": str(number)} for number in range(500)]
    before = requests(server)
    with Session(engine) as session:
        if how == "core":
            session.connection().execute(table.insert(), rows)
        elif how == "core values":
            session.connection().execute(table.insert().values(rows))
        elif how == "orm":
            session.execute(insert(models.Album), rows)
        elif how == "bulk mappings":
            session.bulk_insert_mappings(models.Album, rows)
        else:
            session.bulk_save_objects([models.Album(**row) for row in rows])
        session.commit()
        assert requests(server) - before == 1
        assert len(set(keys(session, models.Album))) == 500


def test_returning_gives_the_keys_in_the_order_of_the_rows(
    engine: Engine, server: TicketServer, models: Models
) -> None:
    if not engine.dialect.insert_executemany_returning_sort_by_parameter_order:
        assert engine.dialect.name == "mysql", "MySQL alone has no RETURNING"
        return
    rows = [{"title": str(number)} for number in range(3000)]
    before = requests(server)
    with Session(engine) as session:
        got = session.execute(
            insert(models.Album).returning(models.Album.id, models.Album.title, sort_by_parameter_order=True), rows
        ).all()
        assert requests(server) - before == 1
        assert [title for _, title in got] == [row["title"] for row in rows]
        assert len({key for key, _ in got}) == 3000


def test_one_row_and_given_keys(engine: Engine, server: TicketServer, models: Models) -> None:
    before = requests(server)
    with engine.begin() as connection:
        result = connection.execute(models.Album.__table__.insert(), {"title": "a"})
        assert result.inserted_primary_key
        assert result.inserted_primary_key[0] > 0
        connection.execute(models.Album.__table__.insert(), [{"id": 10**15 + n, "title": "b"} for n in range(3)])
        assert requests(server) - before == 1
        assert connection.scalar(select(func.count()).select_from(models.Album.__table__)) == 4


def test_insert_from_select_is_refused(engine: Engine, server: TicketServer, models: Models) -> None:
    """All its rows would get one ticket."""
    before = requests(server)
    with Session(engine) as session:
        for target in (models.Album.__table__, models.Album):
            with pytest.raises(StatementError, match="FROM SELECT") as raised:
                session.execute(insert(target).from_select(["title"], select(literal("a"))))
            assert isinstance(raised.value.orig, CompileError)
        session.execute(insert(models.Album).from_select(["id", "title"], select(literal(1), literal("a"))))
        assert keys(session, models.Album) == [1]
    assert requests(server) == before


def test_without_a_server_the_clients_own_exception(engine: Engine, models: Models) -> None:
    """From a flush and from a statement alike; the session goes on after a rollback."""
    with Tickets([f"http://127.0.0.1:{free_port()}"], timeout=0.5) as tickets:
        mine = make_models(tickets)
        with Session(engine) as session:
            session.add(mine.Album(title="a"))
            with pytest.raises(TicketsUnavailable):
                session.flush()
            session.rollback()
            with pytest.raises(TicketsUnavailable, match=r"127\.0\.0\.1"):
                session.execute(insert(mine.Album), [{"title": "a"}, {"title": "b"}])
            session.add(mine.Album(id=5, title="given"))
            session.commit()
            assert keys(session, mine.Album) == [5]
