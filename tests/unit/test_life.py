"""The word of a life, and the events that change it."""

import asyncio

import pytest

from app.databases.address import Address
from app.databases.life import find_life
from app.databases.record import Body, Record, State
from app.databases.session import Book, Note
from app.errors import DatabaseFailed, DatabaseRefused
from tests.fakes.server import MYSQL, FakeServer
from tests.fakes.session import Wait, fake_connect, no_wait

HERE = Address("db", 3306, "u", "d", "secret")


async def life_of(server: FakeServer, wait: Wait = no_wait) -> str:
    """The life that a new connection finds."""
    session = await fake_connect(server, wait=wait)(HERE, None, 1.0)
    return await find_life(session)


def record(number: int, *bodies: Body) -> str:
    return Record("ring", number, "writer", 2, State.DRAWN, bodies).dump()


async def test_every_connection_finds_the_same_life() -> None:
    server = FakeServer(traits=MYSQL)  # the start that it tells is a second off, by turns
    assert len({await life_of(server) for _ in range(4)}) == 1


async def test_connections_that_find_a_new_life_together_agree_on_its_word() -> None:
    server = FakeServer()
    assert len(set(await asyncio.gather(*(life_of(server) for _ in range(5))))) == 1


@pytest.mark.parametrize("what", ["restart", "restore", "wipe", "read_back", "move"])
async def test_the_life_changes_with_every_event_that_may_take_the_data_back(what: str) -> None:
    server = FakeServer()
    before = await life_of(server)
    snapshot = server.snapshot()
    getattr(server, what)(*([snapshot] if what in ("restore", "read_back") else []))
    assert await life_of(server) not in (before, "")


async def test_a_copy_of_the_data_lives_a_life_of_its_own() -> None:
    server = FakeServer()
    before = await life_of(server)
    assert await life_of(server.copy()) != before
    assert await life_of(server) == before


async def test_the_life_changes_when_the_body_is_taken_in() -> None:
    server = FakeServer()
    body, lives = server.data.ring.body, []
    for text in ("", record(3, Body(1, "other", 1)), record(4, Body(1, body, 4)), record(5, Body(1, body, 4))):
        server.data.ring = server.data.ring._replace(text=text)
        lives.append(await life_of(server))
    assert lives[0] == lives[1] != lives[2] == lives[3]


@pytest.mark.parametrize("text", ["{", "[]", '{"bodies": 1}'])
async def test_a_damaged_ring_record_is_refused(text: str) -> None:
    server = FakeServer()
    server.data.ring = server.data.ring._replace(text=text)
    with pytest.raises(DatabaseRefused, match="ring record is damaged"):
        await life_of(server)


async def test_a_row_without_a_word_is_no_life() -> None:
    server = FakeServer()
    await life_of(server)
    row = server.data.notes[Book.LIVES][server.machine]
    server.data.notes[Book.LIVES][server.machine] = row._replace(tenure=None)
    life = await life_of(server)
    assert life == server.data.notes[Book.LIVES][server.machine].tenure
    assert len(life) == 16


async def test_a_ring_that_changes_while_the_life_is_written_is_read_again() -> None:
    server = FakeServer()
    body = server.data.ring.body

    async def change(_client: str, _server: FakeServer, what: str) -> None:
        if what == "write" and not server.data.ring.text:
            server.data.ring = server.data.ring._replace(text=record(4, Body(1, body, 4)))
            await life_of(server)

    life = await life_of(server, change)
    assert await life_of(server) == life


async def test_a_row_that_other_servers_keep_changing_is_a_failure() -> None:
    server = FakeServer()

    async def rewrite(_client: str, _server: FakeServer, what: str) -> None:
        if what == "write":
            server.data.notes[Book.LIVES][server.machine] = Note(tenure=server.words())

    with pytest.raises(DatabaseFailed, match="changed by other servers"):
        await life_of(server, rewrite)
