"""What each command of the Redis protocol is answered with, by itself, in a transaction, and on a whole server."""

import asyncio

import pytest

from app.clients.connections import Connections
from app.clients.denials import Denials
from app.clients.tokens import Tokens
from app.clients.turns import Turns
from app.common.errors import (
    InvalidRequest,
    NotForThisKind,
    NoTicketDatabase,
    OutOfTime,
    SequenceExhausted,
    TicketDatabaseBusy,
    TicketError,
    UnknownError,
    UnknownSequence,
)
from app.redis.door import RedisDoor
from app.redis.reply_queue import OWED_BYTES
from app.redis.session import MOST_QUEUED
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.redis.redis_bench import INCR, PING, TIMEOUT, Bench, Client, Ending, WorkClock, command


def door_of(server: FakeTicketServer) -> RedisDoor:
    """A Redis port of this server's. Its turns of the event loop have time for everything."""
    connections = Connections(Ending(), server.metrics, 10, Turns(WorkClock()))
    tokens, denials = Tokens([], []), Denials(server.metrics)
    return RedisDoor(server.desk, server.catalog, tokens, denials, connections, timeout=TIMEOUT)


def over(server: FakeTicketServer) -> Client:
    """A client of this server's."""
    return Client(door_of(server).make_connection())


async def answer(client: Client, data: bytes, seconds: float = 5) -> bytes:
    client.send(data)
    await asyncio.sleep(seconds)
    return client.take()


@virtual_time
@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (command("INCR", "photos"), b":1\r\n"),
        (command("incr", "photos"), b":1\r\n"),
        (command("INCRBY", "photos", "1"), b":1\r\n"),
        (command("ticket.take", "photos"), b"*1\r\n$1\r\n1\r\n"),
        (command("TICKET.TAKE", "photos", "count", "3"), b"*3\r\n$1\r\n1\r\n$1\r\n3\r\n$1\r\n5\r\n"),
        (command("TICKET.BLOCK", "photos", "10"), b"*3\r\n:1\r\n:2\r\n:10\r\n"),
        (command("INCRBY", "photos", "0"), b"-ERR tickets are handed out, and never taken back: INCRBY takes 1 alone"),
        (command("INCRBY", "photos", "-1"), b"-ERR tickets are handed out, and never taken back"),
        (command("INCRBY", "photos", "5"), b"TICKET.BLOCK photos 5 gives as many"),
        (command("INCRBY", "photos", "01"), b"-ERR value is not an integer or out of range\r\n"),
        (command("INCRBY", "photos", " 1"), b"-ERR value is not an integer or out of range\r\n"),
        (command("INCRBY", "photos", str(2**63)), b"-ERR value is not an integer or out of range\r\n"),
        (command("TICKET.TAKE", "photos", "COUNT"), b"-ERR syntax error\r\n"),
        (command("TICKET.TAKE", "photos", "LIMIT", "1"), b"-ERR syntax error\r\n"),
        (command("TICKET.TAKE", "photos", "COUNT", "1", "COUNT", "2"), b"-ERR syntax error\r\n"),
        (command("TICKET.TAKE", "photos", "COUNT", "0"), b"-ERR COUNT has to be a whole number from 1 to 1000\r\n"),
        (command("TICKET.TAKE", "photos", "COUNT", "1001"), b"-ERR COUNT has to be a whole number from 1 to 1000\r\n"),
        (command("TICKET.TAKE", "photos", "KEY", "x"), b"-ERR KEY has to be a whole number from 0 to"),
        (command("TICKET.BLOCK", "photos", "0"), b"-ERR a block's size has to be a whole number from 1 to 10000\r\n"),
        (command("TICKET.BLOCK", "photos", "10001"), b"-ERR a block's size has to be"),
        (command("INCR"), b"-ERR wrong number of arguments for 'incr' command\r\n"),
        (command("INCR", "a", "b"), b"-ERR wrong number of arguments for 'incr' command\r\n"),
        (command("TICKET.TAKE"), b"-ERR wrong number of arguments for 'ticket.take' command\r\n"),
        (command("GET", "photos"), b"-ERR unknown command 'GET', with args beginning with: 'photos'\r\n"),
        (command("CLUSTER", "INFO"), b"-ERR unknown command 'CLUSTER'"),
        (command("PING"), b"+PONG\r\n"),
        (command("PING", "a"), b"$1\r\na\r\n"),
        (command("ECHO", "a\r\n"), b"$3\r\na\r\n\r\n"),
        (command("SELECT", "0"), b"+OK\r\n"),
        (command("SELECT", "1"), b"-ERR DB index is out of range\r\n"),
        (command("SELECT", "x"), b"-ERR value is not an integer or out of range\r\n"),
        (command("AUTH", "any", "token"), b"+OK\r\n"),
        (command("AUTH", "a", "b", "c"), b"-ERR syntax error\r\n"),
        (command("CLIENT", "SETNAME", "me") + command("CLIENT", "GETNAME"), b"+OK\r\n$2\r\nme\r\n"),
        (command("CLIENT", "SETNAME", "a b"), b"-ERR Client names cannot contain spaces"),
        (command("CLIENT", "SETNAME", "x" * 257), b"-ERR Client names"),
        (command("CLIENT", "GETNAME"), b"$-1\r\n"),
        (command("CLIENT", "setinfo", "LIB-NAME", "x"), b"+OK\r\n"),
        (command("CLIENT", "ID"), b":1\r\n"),
        (command("CLIENT", "KILL"), b"-ERR unknown subcommand or wrong number of arguments"),
        (command("CONFIG", "GET", "save"), b"*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        (command("CONFIG", "GET", "APPEND*"), b"*2\r\n$10\r\nappendonly\r\n$3\r\nyes\r\n"),
        (command("CONFIG", "GET", "nothing"), b"*0\r\n"),
        (command("CONFIG", "SET", "save", ""), b"-ERR unknown subcommand"),
        (command("COMMAND", "COUNT"), b":19\r\n"),
        (command("COMMAND", "DOCS", "incr"), b"*0\r\n"),
        (command("COMMAND", "INFO", "incr"), b"*1\r\n*6\r\n$4\r\nincr\r\n:2\r\n*1\r\n+write\r\n:1\r\n:1\r\n:1\r\n"),
        (command("COMMAND", "INFO", "nothing"), b"*1\r\n$-1\r\n"),
        (command("COMMAND", "INFO", *["incr"] * 513), b"-ERR COMMAND INFO takes 512 names at the most\r\n"),
        (command("EXEC"), b"-ERR EXEC without MULTI\r\n"),
        (command("DISCARD"), b"-ERR DISCARD without MULTI\r\n"),
        (command("RESET"), b"+RESET\r\n"),
        (command("HELLO", "x"), b"-ERR Protocol version is not an integer or out of range\r\n"),
        (command("HELLO", "4"), b"-NOPROTO unsupported protocol version\r\n"),
        (command("HELLO", "3", "WHAT"), b"-ERR Syntax error in HELLO option 'WHAT'\r\n"),
        (command("HELLO", "3", "SETNAME", "a b"), b"-ERR Client names"),
    ],
)
async def test_a_command_and_its_answer(sent: bytes, expected: bytes) -> None:
    bench = Bench()
    bench.answers_at_once()
    given = await bench.connect().ask(sent)
    assert given == expected if expected.endswith(b"\r\n") else expected in given
    assert given.startswith((b"-", b":", b"+", b"*", b"$"))


@virtual_time
async def test_hello_speaks_of_the_version_that_was_asked_for() -> None:
    client = Bench().connect()
    two = await client.ask(command("HELLO"))
    assert two.startswith(b"*14\r\n$6\r\nserver\r\n$7\r\nticketd\r\n")
    three = await client.ask(command("hello", "3", "AUTH", "default", "x", "SETNAME", "me"))
    assert three.startswith(b"%7\r\n$6\r\nserver\r\n$7\r\nticketd\r\n")
    assert b"$5\r\nproto\r\n:3\r\n" in three
    assert await client.ask(command("CLIENT", "GETNAME")) == b"$2\r\nme\r\n"
    assert await client.ask(command("RESET") + command("CLIENT", "GETNAME")) == b"+RESET\r\n$-1\r\n"
    client.send(command("HELLO", "3"))
    client.take()
    assert await client.ask(command("CLIENT", "GETNAME") + command("CONFIG", "GET", "save")) == (
        b"_\r\n%1\r\n$4\r\nsave\r\n$0\r\n\r\n"
    )


@virtual_time
async def test_info_says_that_it_is_ready() -> None:
    text = await Bench().connect().ask(command("INFO", "server"))
    assert b"\r\nloading:0\r\n" in text
    assert b"redis_version:" in text


@virtual_time
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UnknownSequence(), b"-ERR no such sequence photos; PUT /sequence/photos over HTTP makes it\r\n"),
        (NoTicketDatabase("no ticket database can draw for photos now"), b"-TRYAGAIN no ticket database can draw for "),
        (OutOfTime(), b"-TRYAGAIN The request ran out of time.\r\n"),
        (SequenceExhausted("photos is exhausted"), b"-EXHAUSTED photos is exhausted\r\n"),
        (NotForThisKind("photos has no blocks"), b"-ERR photos has no blocks\r\n"),
        (InvalidRequest("no\r\n+OK\r\nname"), b"-ERR no??+OK??name\r\n"),
        (UnknownError(), b"-ERR The server met an error that it does not know; its log says more.\r\n"),
        (TicketDatabaseBusy("a driver's words"), b"-TRYAGAIN the ticket databases cannot do it now\r\n"),
        (InvalidRequest("x" * 9_000), b"-ERR " + b"x" * 500 + b"\r\n"),
    ],
)
async def test_each_refusal_has_its_own_word_in_one_line(error: TicketError, expected: bytes) -> None:
    bench = Bench()
    client = bench.connect()
    client.send(INCR)
    await settled()
    bench.issuer.refuse(error)
    assert client.take().startswith(expected)


@virtual_time
async def test_what_a_client_has_sent_makes_no_second_line_in_an_error() -> None:
    client = Bench().connect()
    given = await client.ask(command("x\r\n+OK", "y\r\n:1") + command("CLIENT", "a\nb") + command("HELLO", "3", "\r\n"))
    assert given.count(b"\n") == 3
    assert len(await client.ask(command("x" * 60_000, *["y" * 10_000] * 4))) < 600


# --- several commands ------------------------------------------------------------------------------------------------


@virtual_time
async def test_exec_answers_what_was_queued_and_what_was_drawn_stays_drawn() -> None:
    bench = Bench()
    client = bench.connect()
    client.send(command("MULTI") + INCR + INCR + command("TICKET.BLOCK", "photos", "2") + PING)
    assert client.take() == b"+OK\r\n" + b"+QUEUED\r\n" * 4
    assert bench.issuer.asked == []
    client.send(command("EXEC") + PING)
    await settled()
    bench.issuer.answer()  # what was gathered before the block is asked for before it
    bench.issuer.refuse(NoTicketDatabase("none"))
    assert await client.ask() == b"*4\r\n:1\r\n:3\r\n-TRYAGAIN none\r\n+PONG\r\n+PONG\r\n"


@virtual_time
async def test_a_refused_command_discards_what_was_queued() -> None:
    bench = Bench()
    client = bench.connect()
    assert (await client.ask(command("MULTI") + INCR + command("INCR"))).startswith(b"+OK\r\n+QUEUED\r\n-ERR wrong")
    assert await client.ask(command("EXEC")) == b"-EXECABORT Transaction discarded because of previous errors.\r\n"
    assert await client.ask(command("MULTI") + INCR + command("DISCARD")) == b"+OK\r\n+QUEUED\r\n+OK\r\n"
    assert await client.ask(command("MULTI") + command("MULTI")) == b"+OK\r\n-ERR MULTI calls can not be nested\r\n"
    assert await client.ask(command("AUTH", "x")) == b"-ERR Command not allowed inside a transaction\r\n"
    assert (await client.ask(command("EXEC"))).startswith(b"-EXECABORT")
    assert await client.ask(command("MULTI") + command("RESET") + command("EXEC")) == (
        b"+OK\r\n+RESET\r\n-ERR EXEC without MULTI\r\n"
    )
    assert bench.issuer.asked == []


@virtual_time
async def test_what_is_queued_is_bounded() -> None:
    bench = Bench()
    client = bench.connect()
    given = await client.ask(command("MULTI") + PING * (MOST_QUEUED + 1) + command("EXEC"))
    assert given.count(b"+QUEUED\r\n") == MOST_QUEUED
    assert given.endswith(b"-EXECABORT Transaction discarded because of previous errors.\r\n")
    given = await client.ask(command("MULTI") + command("ECHO", "x" * 60_000) * 5)
    assert given == b"+OK\r\n" + b"+QUEUED\r\n" * 4 + b"-ERR too many commands since MULTI\r\n"


# --- on a whole server -----------------------------------------------------------------------------------------------


@virtual_time
async def test_exists_counts_as_redis_does() -> None:
    async with Site(2) as site:
        client = over(await site.ticket_server())
        assert await answer(client, command("EXISTS", "photos")) == b":1\r\n"
        assert await answer(client, command("EXISTS", "photos", "photos", "nosuch", "no name")) == b":2\r\n"
        assert await answer(client, command("EXISTS", "nosuch") + PING) == b":0\r\n+PONG\r\n"
        assert await answer(client, command("EXISTS", *["nosuch"] * 300)) == (
            b"-ERR EXISTS takes 256 sequences at the most\r\n"
        )
        for database in site.servers:
            database.down = True
        await asyncio.sleep(3)  # until a probe has noticed
        assert (await answer(client, command("EXISTS", "nosuch"))).startswith(b"-TRYAGAIN no ticket database can be")
        client.send(command("EXISTS", "other"))
        client.transport.lose("lost")
        await settled()


@virtual_time
async def test_names_of_many_connections_are_looked_up_together_by_one_task() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        door = door_of(server)
        clients = [Client(door.make_connection()) for _ in range(9)]
        before = len(asyncio.all_tasks())
        for number, client in enumerate(clients):
            client.send(command("EXISTS", "photos", *(f"no{number}x{name}" for name in range(250))) * 50)
        assert len(asyncio.all_tasks()) == before + 1
        assert all(client.protocol.replies.owed < 3 * OWED_BYTES for client in clients)
        last = clients.pop()
        last.transport.lose("lost")
        await asyncio.sleep(100)
        assert {client.take() for client in clients} == {b":1\r\n" * 50}
        await asyncio.sleep(1)
        assert len(asyncio.all_tasks()) == before


@virtual_time
async def test_other_kinds_are_drawn_too() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await server.admin.make("likes", "instagram", {"shards": 2000})
        await server.admin.make("keys", "uuid4", {})
        await server.admin.make("tiny", "instagram32", {})
        client = over(server)
        likes = await answer(client, command("TICKET.TAKE", "likes", "COUNT", "2", "KEY", "31341"))
        ids = [int(line) for line in likes.split(b"\r\n")[2:5:2]]
        assert [id_ >> 10 & 0x1FFF for id_ in ids] == [1341, 1341]
        assert (await answer(client, command("INCR", "likes"))).startswith(b":")
        assert (await answer(client, command("INCR", "keys") * 2)).count(b"$36\r\n") == 2
        assert (await answer(client, command("TICKET.TAKE", "photos", "SHARD", "1"))).startswith(b"-ERR photos is of ")
        assert (await answer(client, command("TICKET.BLOCK", "likes", "5"))).startswith(b"-ERR likes is of kind")
        assert (await answer(client, command("TICKET.TAKE", "tiny", "COUNT", "16"), 120)).startswith(b"*16\r\n")
        too_many = await answer(client, command("TICKET.TAKE", "tiny", "COUNT", "17"))
        assert too_many == b"-ERR tiny gives 16 ids at once at the most: count is 17\r\n"
        many = await answer(client, command("INCR", "tiny") * 40, 120)
        assert many.count(b"\r\n") == 40
        assert many.count(b":") >= 2


@virtual_time
async def test_a_sequence_that_is_not_there_is_named_in_each_reply() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        client = over(server)
        assert (await answer(client, command("INCR", "nosuch") * 2)).count(b"-ERR no such sequence nosuch; PUT") == 2
        assert server.metrics.in_flight == 0


@virtual_time
async def test_the_ticket_of_a_client_that_has_gone_is_a_gap_and_no_other_clients() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        door = door_of(server)
        stays, goes = (Client(door.make_connection()) for _ in range(2))
        await answer(stays, command("INCR", "photos") * 2)
        before = server.metrics.gaps.copy()
        stays.send(command("INCR", "photos"))
        goes.send(command("INCR", "photos") * 2)
        await settled()
        goes.transport.lose("lost")
        assert (await answer(stays, command("INCR", "photos"))).count(b":") == 2
        assert sum((server.metrics.gaps - before).values()) == 2
        assert server.metrics.in_flight == 0
        entry = server.catalog.entries["photos"]
        assert sum(lane.issued for lane in entry.rotation.lanes) == 4
