"""The word of a life, and the events that change it."""

import asyncio

import pytest

from app.databases.address import Address
from app.databases.life import find_life
from app.databases.record import Body, Record, State
from app.databases.session import Book, Note
from app.errors import DatabaseFailed, DatabaseRefused
from tests.fakes.server import FakeServer
from tests.fakes.session import Wait, fake_connect, no_wait


async def life_of(server: FakeServer, wait: Wait = no_wait) -> str:
    """The life that a new connection finds."""
    return await find_life(await fake_connect(server, wait=wait)(Address("db", 3306, "u", "d"), None, 1.0))


def put_record(server: FakeServer, number: int, *bodies: Body) -> None:
    record = Record("ring", number, "writer", 2, State.DRAWN, bodies)
    server.data.ring = server.data.ring._replace(stamp=record.stamp, text=record.dump())


async def test_all_connections_agree_on_the_word_of_a_life() -> None:
    server = FakeServer(like_mysql=True)  # the start that it tells is a second off, by turns
    lives = {*await asyncio.gather(*(life_of(server) for _ in range(5))), await life_of(server)}
    assert len(lives) == 1
    row = server.data.notes[Book.LIVES][server.machine]
    server.data.notes[Book.LIVES][server.machine] = row._replace(tenure=None)  # a row without a word is no life
    life = await life_of(server)
    assert life == server.data.notes[Book.LIVES][server.machine].tenure
    assert len(life) == 16


@pytest.mark.parametrize("what", ["restart", "restore", "wipe", "read_back", "move"])
async def test_the_life_changes_with_every_event_that_may_take_the_data_back(what: str) -> None:
    server = FakeServer()
    before, snapshot = await life_of(server), server.data.copy()
    assert await life_of(server.copy()) != before == await life_of(server)
    getattr(server, what)(*([snapshot] if what in ("restore", "read_back") else []))
    assert await life_of(server) not in (before, "")


async def test_the_life_changes_when_the_body_is_taken_in() -> None:
    server = FakeServer()
    body, lives = server.data.ring.body, [await life_of(server)]
    for number, taken_in in ((3, Body(1, "other", 1)), (4, Body(1, body, 4)), (5, Body(1, body, 4))):
        put_record(server, number, taken_in)
        lives.append(await life_of(server))
    assert lives[0] == lives[1] != lives[2] == lives[3]
    for text in ("{", "[]", '{"bodies": 1}'):
        server.data.ring = server.data.ring._replace(text=text)
        with pytest.raises(DatabaseRefused, match="ring record is damaged"):
            await life_of(server)


async def test_what_others_change_while_the_life_is_written_is_read_again() -> None:
    server = FakeServer()
    body = server.data.ring.body

    async def take_in(_client: str, _server: FakeServer, what: str) -> None:
        if what == "write" and not server.data.ring.text:
            put_record(server, 4, Body(1, body, 4))
            await life_of(server)

    async def rewrite(_client: str, _server: FakeServer, what: str) -> None:
        if what == "write":
            server.data.notes[Book.LIVES][server.machine] = Note(tenure=server.words())

    assert await life_of(server, take_in) == await life_of(server)
    server.restart()
    with pytest.raises(DatabaseFailed, match="changed by other servers"):
        await life_of(server, rewrite)
