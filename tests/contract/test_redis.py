"""The contract's table of the Redis protocol, byte by byte."""

import asyncio

import pytest
import redis.asyncio
import redis.exceptions

from app.errors import Draining, NoAnswer, OutOfTime, Unverified
from app.redis import replies
from tests.contract.redis_bench import DEADLINE, TOKEN, running


async def test_tickets_lists_and_blocks_in_the_order_of_the_commands() -> None:
    async with running() as bench:
        raw = await bench.raw()
        raw.send(b"INCR photos\r\n")
        for command in ("incr PHOTOS", "INCRBY photos 1", "PING one", "INCR nothing", "INCR photos"):
            raw.send(command)
        first, second, third, *echoed, unknown, last = await raw.lines(7)
        ids = [int(line.removeprefix(b":")) for line in (first, second, third, last)]
        assert len(set(ids)) == 4
        assert echoed == [b"$3", b"one"]
        assert unknown.startswith(b"-ERR no such sequence nothing")
        for command, count in (("TICKET.TAKE photos COUNT 3", 3), ("TICKET.TAKE photos", 1)):
            assert await raw.ask(command) == b"*%d" % count
            lines = await raw.lines(2 * count)
            assert lines[::2] == [b"$%d" % len(line) for line in lines[1::2]]
            assert lines[1::2] == sorted(set(lines[1::2]), key=int)
        assert await raw.ask("TICKET.BLOCK photos 500") == b"*3"
        assert (await raw.lines(3))[1:] == [b":2", b":500"]


async def test_pipelines_and_commands_of_many_clients_share_draws_and_each_has_its_own_tickets() -> None:
    async with running() as bench:
        raws = [await bench.raw() for _ in range(20)]
        for raw in raws:
            raw.send("TICKET.TAKE photos COUNT 3")
            raw.send(b"*2\r\n$4\r\nINCR\r\n$6\r\nphotos\r\n" * 200)  # more than one row of 128
        answers = [await raw.lines(207) for raw in raws]
        ids = [line.lstrip(b":") for lines in answers for line in (*lines[2:7:2], *lines[7:])]
        assert len(ids) == len(set(ids)) == 20 * 203
        assert len(bench.seen) == sum(bench.tally.seconds["ticket"].counts) == 20 * 201
        assert bench.tally.in_flight == 0


async def test_a_kind_that_gives_few_ids_at_once_answers_a_long_pipeline() -> None:
    async with running() as bench:
        await bench.service.catalog.create("small", "instagram32", {})
        raw = await bench.raw()
        raw.send(b"*2\r\n$4\r\nINCR\r\n$5\r\nsmall\r\n" * 50)
        raw.send("PING")
        *ids, pong = await raw.lines(51)
        assert all(line.startswith(b":") for line in ids)
        assert len(set(ids)) == 50
        assert pong == b"+PONG"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("INCR", b"-ERR wrong number of arguments for 'incr'"),
        ("INCR 1photos", b"-ERR "),
        ("INCRBY photos 5", b"-ERR INCRBY takes 1 alone, as no ids are consecutive: see TICKET.BLOCK photos 5"),
        ("INCRBY photos x", b"-ERR INCRBY takes 1 alone"),
        ("TICKET.TAKE photos COUNT 0", b"-ERR COUNT is a whole number from 1 to 1000"),
        ("TICKET.TAKE photos COUNT 1001", b"-ERR COUNT"),
        ("TICKET.TAKE photos COUNT", b"-ERR syntax error"),
        ("TICKET.TAKE photos COUNT 2 COUNT 2", b"-ERR syntax error"),
        ("TICKET.TAKE photos KEY 7", b"-ERR a sequence of kind ticket has no shards"),
        ("TICKET.BLOCK photos 10001", b"-ERR a block's size"),
        ("SELECT 1", b"-ERR DB index is out of range"),
        ("SET photos 1", b"-ERR unknown command"),
        ("CLIENT MAINT_NOTIFICATIONS ON", b"-ERR unknown subcommand"),
        ("HELLO 4", b"-NOPROTO"),
        ("EXEC", b"-ERR EXEC without MULTI"),
        ("EXISTS " + "photos " * 250, b"-ERR wrong number of arguments for 'exists'"),
    ],
)
async def test_an_error_leaves_the_connection_usable(command: str, says: bytes) -> None:
    async with running() as bench:
        raw = await bench.raw()
        assert (await raw.ask(command)).startswith(says)
        assert await raw.ask("PING") == b"+PONG"
        assert [server.data.counters["photos"].last for server in bench.servers] == [0, 0]


async def test_a_kind_with_shards_takes_a_key() -> None:
    async with running() as bench:
        await bench.service.catalog.create("likes", "instagram", {})
        raw = await bench.raw()
        for option in ("KEY 31341", "SHARD 5"):
            assert await raw.ask(f"TICKET.TAKE likes {option}") == b"*1"
            ticket = int((await raw.lines(2))[1])
            assert ticket >> 10 & 8191 == (31341 % 8192 if "KEY" in option else 5)
        assert (await raw.ask("TICKET.TAKE likes KEY 1 SHARD 1")).startswith(b"-ERR a request names its shard by key")
        assert (await raw.ask("TICKET.TAKE likes SHARD 8192")).startswith(b"-ERR shard is a whole number")


async def test_exists_counts_and_draws_nothing() -> None:
    async with running() as bench:
        raw = await bench.raw()
        for name in ("photos", "nothing", "PHOTOS", "1bad", "PING"):
            raw.send(f"EXISTS {name}")
        raw.send("PING")
        assert await raw.lines(6) == [b":1", b":0", b":1", b":0", b":0", b"+PONG"]
        assert [server.data.counters["photos"].last for server in bench.servers] == [0, 0]


async def test_a_transaction_draws_in_exec_only() -> None:
    async with running() as bench:
        raw = await bench.raw()
        for text in ("MULTI", "INCR photos", "INCR photos", "PING", "EXEC"):
            raw.send(text)
        head, replies_ = (await raw.lines(5))[:4], await raw.lines(3)
        assert head == [b"+OK", *[b"+QUEUED"] * 3]
        assert replies_[0].startswith(b":")
        assert replies_[2] == b"+PONG"
        assert await raw.ask("MULTI") == b"+OK"
        assert (await raw.ask("NONSENSE")).startswith(b"-ERR unknown command")
        assert (await raw.ask("EXEC")).startswith(b"-EXECABORT")
        assert [await raw.ask(text) for text in ("MULTI", "DISCARD")] == [b"+OK", b"+OK"]


async def test_tokens() -> None:
    async with running(tokens=[TOKEN]) as bench:
        raw = await bench.raw()
        closed = "INCR photos", "INCRBY photos 1", "EXISTS photos", "INFO", "NONSENSE", "ECHO a"
        assert {await raw.ask(text) for text in closed} == {b"-NOAUTH Authentication required."}
        assert await raw.ask("PING") == b"+PONG"
        assert (await raw.ask("AUTH wrong")).startswith(b"-WRONGPASS")
        assert await raw.ask(f"AUTH anybody {TOKEN}") == b"+OK"
        assert (await raw.ask("INCR photos")).startswith(b":")
        assert await raw.ask("RESET") == b"+RESET"
        assert (await raw.ask("INCR photos")).startswith(b"-NOAUTH")
        assert await raw.ask(f"AUTH {TOKEN}") == b"+OK"
        bench.access.replace(["another"], [])
        assert (await raw.ask("INCR photos")).startswith(b"-NOAUTH")
        assert all(TOKEN not in each.what for each in bench.seen)


async def test_quit_and_what_a_web_page_sends() -> None:
    async with running() as bench:
        raw = await bench.raw()
        raw.send("QUIT")
        raw.send("INCR photos")
        assert await raw.end() == b"+OK\r\n"
        for text in (b"POST / HTTP/1.1\r\nINCR photos\r\n", b"Host: 127.0.0.1\r\nINCR photos\r\n"):
            raw = await bench.raw()
            raw.send(text)
            assert await raw.end() == b""
        assert [server.data.counters["photos"].last for server in bench.servers] == [0, 0]


def test_what_http_answers_with_503_is_tryagain() -> None:
    for error in (OutOfTime(), Draining(), Unverified(), NoAnswer("10.0.0.1 did not answer")):
        assert replies.refusal("photos", error).startswith(b"-TRYAGAIN ")
        assert b"10.0.0.1" not in replies.refusal("photos", error)


async def test_an_exhausted_sequence_gives_its_last_tickets_one_by_one() -> None:
    async with running() as bench:
        for offset, server in enumerate(bench.servers, 1):
            server.add("brief", bits=32)
            server.data.counters["brief"].last = 2**32 - 1 - 8 + offset
        raw = await bench.raw()
        raw.send(b"*2\r\n$4\r\nINCR\r\n$5\r\nbrief\r\n" * 40)
        lines = await raw.lines(40)
        tickets = [line for line in lines if line.startswith(b":")]
        assert 0 < len(tickets) == len(set(tickets)) < 40
        assert all(line.startswith(b"-EXHAUSTED") for line in lines if line not in tickets)


@pytest.mark.parametrize("protocol", [2, 3])
async def test_redis_py_connects_and_draws(protocol: int) -> None:
    async with running(tokens=[TOKEN]) as bench, asyncio.timeout(DEADLINE):
        client = redis.asyncio.Redis(port=bench.port, password=TOKEN, protocol=protocol, client_name="test")
        async with client:
            first = await client.incr("photos")
            async with client.pipeline() as pipe:
                pipe.incr("photos")
                pipe.incr("photos")
                both = await pipe.execute()
            assert len({first, *both}) == 3
            assert await client.exists("photos") == 1
            assert (await client.config_get("save"))["save"] == ""
            assert (await client.info())["redis_version"]
            with pytest.raises(redis.exceptions.ResponseError, match="no such sequence photo"):
                await client.incr("photo")


async def test_a_client_that_sends_no_more_gets_its_replies() -> None:
    async with running() as bench:
        raw = await bench.raw()
        raw.send(b"INCR photos\r\nINCR photos\r\n")
        raw.writer.write_eof()
        assert len(set((await raw.end()).split())) == 2
