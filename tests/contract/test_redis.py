"""The contract's table of the Redis protocol, byte by byte."""

import asyncio

import pytest
import redis.asyncio
import redis.exceptions

from app.errors import Draining, NoAnswer, OutOfTime, Unverified
from app.redis import replies
from tests.contract.http_bench import DEADLINE, USER, Raw, RedisBench

INCR = b"*2\r\n$4\r\nINCR\r\n$6\r\nphotos\r\n"


async def test_tickets_lists_and_blocks_in_the_order_of_the_commands(raw: Raw) -> None:
    raw.send(b"INCR photos\r\n" + INCR)
    for command in ("incr PHOTOS", "INCRBY photos 1", "PING one", "INCR nothing", "INCR photos"):
        raw.send(b"%b\r\n" % command.encode())
    *ids, length, echoed, unknown, last = await raw.lines(8)
    assert len({int(line.removeprefix(b":")) for line in (*ids, last)}) == 5
    assert (length, echoed) == (b"$3", b"one")
    assert unknown.startswith(b"-ERR no such sequence nothing")
    for command, count in (("TICKET.TAKE photos COUNT 3", 3), ("TICKET.TAKE photos", 1)):
        assert await raw.ask(command) == [b"*%d" % count]
        lines = await raw.lines(2 * count)
        assert lines[::2] == [b"$%d" % len(line) for line in lines[1::2]]
        assert lines[1::2] == sorted(set(lines[1::2]), key=int)
    assert await raw.ask("TICKET.BLOCK photos 500") == [b"*3"]
    assert (await raw.lines(3))[1:] == [b":2", b":500"]


async def test_pipelines_and_commands_of_many_clients_share_draws_and_each_has_its_own_tickets(
    bench: RedisBench,
) -> None:
    raws = [await bench.raw() for _ in range(20)]
    for raw in raws:
        raw.send(b"TICKET.TAKE photos COUNT 3\r\n" + INCR * 200)  # more than one row of 128
    answers = [await raw.lines(207) for raw in raws]
    ids = [line.lstrip(b":") for lines in answers for line in (*lines[2:7:2], *lines[7:])]
    assert len(ids) == len(set(ids)) == 20 * 203
    assert len(bench.seen) == sum(bench.tally.seconds["ticket"].counts) == 20 * 201
    assert bench.tally.in_flight == 0


async def test_a_kind_that_gives_few_ids_at_once_answers_a_long_pipeline(bench: RedisBench, raw: Raw) -> None:
    await bench.service.catalog.create("small", "instagram32", {})
    raw.send(INCR.replace(b"6\r\nphotos", b"5\r\nsmall") * 17 + b"PING\r\n")  # each database has 16 in a second
    *ids, pong = await raw.lines(18)
    assert all(line.startswith(b":") for line in ids)
    assert (len(set(ids)), pong) == (17, b"+PONG")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("INCR", b"-ERR wrong number of arguments for 'incr'"),
        ("INCR 1photos", b"-ERR "),
        ("INCRBY photos 5", b"-ERR INCRBY takes 1 alone, as no ids are consecutive: see TICKET.BLOCK photos 5"),
        ("TICKET.TAKE photos COUNT 0", b"-ERR COUNT is a whole number from 1 to 1000"),
        ("TICKET.TAKE photos COUNT 1001", b"-ERR COUNT"),
        ("TICKET.TAKE photos COUNT 2 COUNT 2", b"-ERR syntax error"),
        ("TICKET.TAKE photos KEY 7", b"-ERR a sequence of kind ticket has no shards"),
        ("TICKET.BLOCK photos 10001", b"-ERR a block's size"),
        ("SELECT 1", b"-ERR DB index is out of range"),
        ("SET photos 1", b"-ERR unknown command"),
        ("CLIENT MAINT_NOTIFICATIONS ON", b"-ERR unknown subcommand"),
        ("HELLO 4", b"-NOPROTO"),
        ("EXEC", b"-ERR EXEC without MULTI"),
        ("EXISTS " + "p " * 250, b"-ERR wrong number of arguments for 'exists'"),
    ],
)
async def test_an_error_leaves_the_connection_usable(bench: RedisBench, raw: Raw, command: str, says: bytes) -> None:
    error, pong = await raw.ask(command, "PING")
    assert error.startswith(says)
    assert (pong, bench.drawn) == (b"+PONG", [0, 0])


async def test_a_kind_with_shards_takes_a_key(bench: RedisBench, raw: Raw) -> None:
    await bench.service.catalog.create("likes", "instagram", {})
    for option in ("KEY 31341", "SHARD 5"):
        assert await raw.ask(f"TICKET.TAKE likes {option}") == [b"*1"]
        ticket = int((await raw.lines(2))[1])
        assert ticket >> 10 & 8191 == (31341 % 8192 if "KEY" in option else 5)
    two, large = await raw.ask("TICKET.TAKE likes KEY 1 SHARD 1", "TICKET.TAKE likes SHARD 8192")
    assert two.startswith(b"-ERR a request names its shard by key")
    assert large.startswith(b"-ERR shard is a whole number")


async def test_exists_counts_and_draws_nothing(bench: RedisBench, raw: Raw) -> None:
    asked = [f"EXISTS {name}" for name in ("photos", "nothing", "PHOTOS", "1bad", "PING")]
    assert await raw.ask(*asked, "PING") == [b":1", b":0", b":1", b":0", b":0", b"+PONG"]
    assert bench.drawn == [0, 0]


async def test_a_transaction_draws_in_exec_only(raw: Raw) -> None:
    asked = "MULTI", "INCR photos", "INCR photos", "PING", "EXEC"
    assert await raw.ask(*asked) == [b"+OK", *[b"+QUEUED"] * 3, b"*3"]
    assert [line[:1] for line in await raw.lines(3)] == [b":", b":", b"+"]
    _, unknown, aborted = await raw.ask("MULTI", "NONSENSE", "EXEC")
    assert unknown.startswith(b"-ERR unknown command")
    assert aborted.startswith(b"-EXECABORT")
    assert await raw.ask("MULTI", "DISCARD") == [b"+OK", b"+OK"]


async def test_tokens(bench: RedisBench, raw: Raw) -> None:
    bench.access.replace([USER], [])
    closed = "INCR photos", "INCRBY photos 1", "EXISTS photos", "INFO", "NONSENSE", "ECHO a"
    assert set(await raw.ask(*closed)) == {b"-NOAUTH Authentication required."}
    asked = "PING", "AUTH wrong", f"AUTH anybody {USER}", "INCR photos", "RESET", "INCR photos", f"AUTH {USER}"
    wanted = b"+PONG", b"-WRONGPASS", b"+OK", b":", b"+RESET", b"-NOAUTH", b"+OK"
    for command, begins in zip(asked, wanted, strict=True):
        assert (await raw.ask(command))[0].startswith(begins), command
    bench.access.replace(["another"], [])
    assert (await raw.ask("INCR photos"))[0].startswith(b"-NOAUTH")
    assert all(USER not in each.what for each in bench.seen)


async def test_quit_and_what_a_web_page_sends(bench: RedisBench) -> None:
    for data, answer in ((b"QUIT\r\n", b"+OK\r\n"), (b"POST / HTTP/1.1\r\n", b""), (b"Host: a\r\n", b"")):
        raw = await bench.raw()
        raw.send(data + INCR)
        assert await raw.rest() == answer
    assert bench.drawn == [0, 0]


def test_what_http_answers_with_503_is_tryagain() -> None:
    for error in (OutOfTime(), Draining(), Unverified(), NoAnswer("10.0.0.1 did not answer")):
        assert replies.refusal("photos", error).startswith(b"-TRYAGAIN ")
        assert b"10.0.0.1" not in replies.refusal("photos", error)


async def test_an_exhausted_sequence_gives_its_last_tickets_one_by_one(bench: RedisBench, raw: Raw) -> None:
    for offset, server in enumerate(bench.servers, 1):
        server.add("brief", bits=32)
        server.data.counters["brief"].last = 2**32 - 1 - 8 + offset
    raw.send(INCR.replace(b"6\r\nphotos", b"5\r\nbrief") * 40)
    lines = await raw.lines(40)
    tickets = [line for line in lines if line.startswith(b":")]
    assert 0 < len(tickets) == len(set(tickets)) < 40
    assert all(line.startswith(b"-EXHAUSTED") for line in lines if line not in tickets)


@pytest.mark.parametrize("protocol", [2, 3])
async def test_redis_py_connects_and_draws(bench: RedisBench, protocol: int) -> None:
    bench.access.replace([USER], [])
    port = bench.socket.getsockname()[1]
    async with (
        asyncio.timeout(DEADLINE),
        redis.asyncio.Redis(port=port, password=USER, protocol=protocol, client_name="test") as client,
        client.pipeline() as pipe,
    ):
        pipe.incr("photos")
        pipe.incr("photos")
        assert len({await client.incr("photos"), *await pipe.execute()}) == 3
        assert await client.exists("photos") == 1
        assert (await client.config_get("save"))["save"] == ""
        assert (await client.info())["redis_version"]
        with pytest.raises(redis.exceptions.ResponseError, match="no such sequence photo"):
            await client.incr("photo")


async def test_a_client_that_sends_no_more_gets_its_replies(raw: Raw) -> None:
    raw.send(INCR * 2)
    raw.writer.write_eof()
    assert len(set((await raw.rest()).split())) == 2
