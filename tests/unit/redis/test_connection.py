"""One connection: replies in order, what it may keep, how long it may take, and how it ends."""

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.clients.connections import LOOK_SECONDS, REQUEST_SECONDS
from app.common.errors import NoTicketDatabase, SequenceExhausted, TooManyAtOnce
from app.redis.connection import IDLE_SECONDS, LINGER_SECONDS, WRITE_BYTES
from app.redis.reply_queue import OWED_BYTES
from tests.fakes.virtual_time import run, settled, virtual_time
from tests.unit.redis.redis_bench import INCR, OTHER, PING, Bench, command

TAKE = command("TICKET.TAKE", "photos", "COUNT", "1000")
ECHO = command("ECHO", "x" * 60_000)


@virtual_time
async def test_the_same_command_in_a_row_is_one_request() -> None:
    bench = Bench()
    client = bench.connect()
    client.send(INCR * 16)
    await settled()
    assert [request.count for request in bench.issuer.waiting] == [16]
    assert bench.metrics.in_flight == 16
    bench.issuer.answer()
    assert client.take() == b"".join(b":%d\r\n" % number for number in range(1, 33, 2))
    assert client.transport.writes == 1
    assert bench.outcomes() == {("ticket", "ok"): 16}
    assert bench.metrics.in_flight == 0


@virtual_time
async def test_commands_of_one_read_are_issued_together_and_answered_in_order() -> None:
    bench = Bench()
    client = bench.connect()
    client.send(INCR + PING + OTHER + INCR)
    await settled()
    assert bench.issuer.asked == ["photos", "albums"]
    photos, albums = bench.issuer.waiting
    albums.answer(range(80, 81))
    await settled()
    assert client.transport.written == b""
    photos.answer(range(70, 72))
    assert await client.ask() == b":70\r\n+PONG\r\n:80\r\n:71\r\n"
    assert client.transport.writes == 1


@virtual_time
async def test_answers_of_one_turn_of_the_loop_go_out_in_one_write() -> None:
    bench = Bench()
    client = bench.connect()
    client.send(INCR + OTHER + command("TICKET.TAKE", "photos"))
    await settled()
    for _ in range(3):
        bench.issuer.answer()
    assert await client.ask() == b":1\r\n:5\r\n*1\r\n$1\r\n3\r\n"
    assert client.transport.writes == 1


@virtual_time
async def test_tickets_that_are_there_at_once_are_answered_in_one_write() -> None:
    bench = Bench()
    bench.answers_at_once()
    client = bench.connect()
    client.send(INCR + OTHER + PING + INCR)
    assert await client.ask() == b":1\r\n:5\r\n+PONG\r\n:3\r\n"
    assert client.transport.writes == 1


@virtual_time
async def test_what_was_drawn_ahead_is_answered_without_a_request_and_in_its_place() -> None:
    bench = Bench()
    client = bench.connect()
    client.send(INCR)
    await settled()
    bench.issuer.drawn_ahead = range(11, 19, 2)
    client.send(PING + INCR * 3)
    await settled()
    assert bench.issuer.asked == ["photos"]
    assert client.take() == b""  # the first is on its way, and replies keep their order
    bench.issuer.answer()
    assert await client.ask() == b":1\r\n+PONG\r\n:11\r\n:13\r\n:15\r\n"
    assert bench.outcomes() == {("ticket", "ok"): 4}
    assert bench.metrics.in_flight == 0


@virtual_time
async def test_a_run_that_is_too_long_for_what_is_left_is_asked_for_in_pieces() -> None:
    for reason in (SequenceExhausted("photos is near its end"), TooManyAtOnce("3 at the most")):
        bench = Bench()
        client = bench.connect()
        client.send(INCR * 4 + PING)
        await settled()
        pieces: list[int] = []
        for is_granted in (False, *([False] if isinstance(reason, SequenceExhausted) else []), True, False):
            await settled()
            assert len(bench.issuer.waiting) == 1  # one piece is under way at a time
            pieces.append(bench.issuer.waiting[0].count)
            assert bench.metrics.in_flight == pieces[-1]
            if is_granted:
                bench.issuer.answer()
            else:
                bench.issuer.refuse(reason if pieces[-1] > 1 else SequenceExhausted("photos is exhausted"))
        assert pieces == ([4, 2, 1, 1] if isinstance(reason, SequenceExhausted) else [4, 1, 1])
        assert await client.ask() == b":1\r\n" + b"-EXHAUSTED photos is exhausted\r\n" * 3 + b"+PONG\r\n"
        assert bench.outcomes() == {("ticket", "ok"): 1, ("ticket", "exhausted"): 3}
        assert bench.metrics.in_flight == 0


@virtual_time
async def test_a_run_that_is_refused_is_refused_as_often() -> None:
    bench = Bench()
    client = bench.connect()
    client.send(INCR * 3)
    await settled()
    bench.issuer.refuse(NoTicketDatabase("no ticket database can draw for photos now"))
    assert client.take() == b"-TRYAGAIN no ticket database can draw for photos now\r\n" * 3
    assert bench.outcomes() == {("ticket", "unavailable"): 3}


@virtual_time
@pytest.mark.parametrize("apart", [False, True])
async def test_a_client_that_goes_leaves_no_request_behind(apart: bool) -> None:
    bench = Bench()
    client = bench.connect()
    client.send(INCR * 4 + OTHER + command("TICKET.BLOCK", "photos", "5"))
    if apart:
        await settled()
        bench.issuer.waiting.sort(key=lambda request: request.whole)
        bench.issuer.refuse(SequenceExhausted("photos is near its end"))
    client.transport.lose("lost")
    await settled()
    assert bench.metrics.in_flight == 0
    assert bench.ending.connections == set()
    assert bench.metrics.client_connections == 0
    while bench.issuer.waiting:
        bench.issuer.answer()
    assert client.transport.written == b""


# --- what it keeps ---------------------------------------------------------------------------------------------------


@virtual_time
async def test_replies_that_are_owed_are_bounded_and_then_the_socket_is_not_read() -> None:
    bench = Bench()
    client = bench.connect()
    client.send(INCR, *[command("ECHO", "x" * 1_000)] * 200)
    assert not client.transport.reading
    assert await client.ask() == b""
    bench.issuer.answer()
    await settled()
    assert client.transport.reading
    assert client.take() == b":1\r\n" + b"$1000\r\n%b\r\n" % (b"x" * 1_000) * 200


@virtual_time
async def test_lists_of_tickets_are_issued_a_few_at_a_time() -> None:
    bench = Bench()
    client = bench.connect()
    client.send(TAKE * 50)
    assert len(bench.issuer.waiting) * 1_000 * 32 <= OWED_BYTES + 32_000
    answered = 0
    while bench.issuer.waiting:
        bench.issuer.answer()
        answered += 1
        await settled()
    assert answered == 50
    assert client.take().count(b"*1000\r\n") == 50


@virtual_time
async def test_nothing_is_executed_for_a_client_that_does_not_read() -> None:
    bench = Bench()
    bench.answers_at_once()
    client = bench.connect()
    client.transport.on_write = client.protocol.pause_writing
    client.send(TAKE * 100)
    written = len(client.transport.written)
    assert written <= WRITE_BYTES + 40_000
    await settled()
    assert len(client.transport.written) == written
    client.send(*[ECHO] * 3)
    assert not client.transport.reading
    assert len(client.transport.written) == written
    while client.transport.written.count(b"*1000\r\n") < 100 or not client.transport.reading:
        client.protocol.resume_writing()
        await settled()
    assert client.take().endswith(b"$60000\r\n" + b"x" * 60_000 + b"\r\n")


# --- errors and ends -------------------------------------------------------------------------------------------------


@virtual_time
async def test_earlier_answers_go_out_before_a_protocol_error_and_nothing_behind_it_counts() -> None:
    bench = Bench()
    client = bench.connect()
    client.send(INCR + PING + b"*1\r\n$536870912\r\n" + INCR, INCR)
    assert await client.ask() == b""
    bench.issuer.answer()
    assert await client.ask(INCR) == b":1\r\n+PONG\r\n-ERR Protocol error: invalid bulk length\r\n"
    assert bench.issuer.asked == ["photos"]
    assert client.transport.calls == ["eof"]
    await asyncio.sleep(LINGER_SECONDS)
    assert client.transport.calls == ["eof", "close"]


@virtual_time
async def test_a_client_that_has_read_its_error_need_not_wait() -> None:
    client = Bench().connect()
    assert (await client.ask(b"*x\r\n")).startswith(b"-ERR Protocol error")
    assert client.protocol.eof_received() is False


@virtual_time
async def test_who_sends_no_more_gets_all_answers() -> None:
    bench = Bench()
    client = bench.connect()
    client.send(INCR + PING + b"*1\r\n$4\r\nPI")
    assert client.protocol.eof_received() is True
    await settled()
    assert client.transport.calls == []
    bench.issuer.answer()
    assert await client.ask() == b":1\r\n+PONG\r\n"
    assert client.transport.calls == ["close"]


@virtual_time
@pytest.mark.parametrize("last", [command("QUIT"), b"quit\r\n"])
async def test_quit_closes_after_all_answers(last: bytes) -> None:
    bench = Bench()
    client = bench.connect()
    client.send(INCR + last + INCR)
    await settled()
    assert client.transport.calls == []
    bench.issuer.answer()
    assert await client.ask(INCR) == b":1\r\n+OK\r\n"
    assert (client.transport.calls, bench.issuer.asked) == (["close"], ["photos"])


@virtual_time
@pytest.mark.parametrize("page", [b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nHost: tickets\r\n\r\n"])
async def test_what_a_web_page_sends_closes_the_connection(page: bytes) -> None:
    bench = Bench()
    client = bench.connect()
    answer = await client.ask(page + b"INCR photos\r\n")
    assert answer == b"" or answer.startswith(b"-ERR unknown command 'GET'")
    assert answer.count(b"\r\n") <= 1
    assert client.transport.calls == ["close"]
    assert bench.issuer.asked == []
    assert bench.metrics.denials["tickets"] == 1


@virtual_time
async def test_the_end_of_the_server_waits_for_the_answers_under_way() -> None:
    bench = Bench()
    idle, busy = bench.connect(), bench.connect()
    busy.send(INCR)
    await settled()
    assert bench.ending.connections == {idle.protocol, busy.protocol}
    for connection in tuple(bench.ending.connections):
        connection.shutdown()
    assert (idle.transport.calls, busy.transport.calls) == (["close"], [])
    busy.send(INCR)
    bench.issuer.answer()
    assert busy.take() == b":1\r\n"
    assert busy.transport.calls == ["close"]


@virtual_time
async def test_a_server_whose_drain_is_over_says_try_again() -> None:
    bench = Bench()
    bench.desk.closed = True
    client = bench.connect()
    assert await client.ask(INCR * 2 + PING) == b"-TRYAGAIN This server is shutting down.\r\n" * 2 + b"+PONG\r\n"


# --- how many, how long ----------------------------------------------------------------------------------------------


@virtual_time
async def test_beyond_the_limit_a_client_is_told_and_closed() -> None:
    bench = Bench(most=2)
    clients = [bench.connect() for _ in range(2)]
    beyond = bench.connect()
    assert beyond.take() == b"-ERR max number of clients reached\r\n"
    assert beyond.transport.calls == ["close"]
    assert (bench.metrics.client_connections, bench.metrics.connections_refused) == (2, 1)
    assert bench.outcomes() == {("ticket", "too-many-connections"): 1}
    clients[0].transport.lose("lost")
    await settled()
    assert await bench.connect().ask(PING) == b"+PONG\r\n"


@virtual_time
async def test_half_a_command_has_so_much_time_and_an_idle_connection_more() -> None:
    bench = Bench()
    watcher = asyncio.create_task(bench.connections.watch())
    silent, half, dripping, idle, waiting = (bench.connect() for _ in range(5))
    idle.send(PING)
    half.send(PING, b"*1\r\n")
    dripping.send(PING + b"*2\r\n$4\r\nECHO\r\n$900\r\n")
    waiting.send(INCR)
    for _ in range(int(REQUEST_SECONDS + LOOK_SECONDS) + 1):
        dripping.send(b"x")
        await asyncio.sleep(1)
    assert [client.transport.calls for client in (silent, half, dripping, waiting)] == [["abort"]] * 4
    assert idle.transport.calls == []
    assert await idle.ask(PING) == b"+PONG\r\n" * 2
    await asyncio.sleep(IDLE_SECONDS - LOOK_SECONDS)
    assert idle.transport.calls == []
    await asyncio.sleep(2 * LOOK_SECONDS)
    assert idle.transport.calls == ["close"]
    watcher.cancel()


@virtual_time
async def test_a_connection_that_is_never_idle_is_not_cut() -> None:
    bench = Bench()
    watcher = asyncio.create_task(bench.connections.watch())
    client = bench.connect()
    client.send(INCR)
    await settled()
    for _ in range(100):
        client.send(INCR)  # the next one comes before the last one is answered
        await settled()
        bench.issuer.answer()
        await asyncio.sleep(1)
    assert client.transport.calls == []
    watcher.cancel()


# --- all of it -------------------------------------------------------------------------------------------------------

SERIES = [
    INCR, INCR, OTHER, PING, command("INCRBY", "photos", "1"), command("INCRBY", "photos", "7"), b"INCR photos\r\n",
    command("TICKET.TAKE", "albums", "COUNT", "3"), command("TICKET.BLOCK", "photos", "5"), command("ECHO", "a\r\n"),
    command("MULTI"), command("EXEC"), command("DISCARD"), command("nonsense", "x"), command("INCR"), b"\n", b"*0\r\n",
    command("HELLO", "3"), command("HELLO", "2"), command("RESET"), command("CLIENT", "ID"), command("SELECT", "0"),
]  # fmt: skip
LAST = [b"", command("QUIT") + INCR, b"*x\r\n" + INCR, INCR[:9], b"Host: x\r\n" + INCR, b"*1\r\n$99999999\r\n"]


async def answers(reads: list[bytes], seed: int) -> bytes:
    """What comes back if each of the desk's answers takes a while, as chance will have it. Each ticket is a 1, so that
    only their places count."""
    bench, chance = Bench(), Random(seed)

    def issued() -> None:
        request = bench.issuer.waiting.pop()
        tickets = range(1, 2 * request.count, 2) if request.whole else [1] * request.count
        pause = chance.choice([None, 0, 0, 0.001, 0.02])
        if pause is None:
            request.answer(tickets)
        else:
            asyncio.get_running_loop().call_later(pause, request.answer, tickets)

    bench.issuer.on_issue = issued
    client = bench.connect()
    for read in reads:
        client.send(read)
        await asyncio.sleep(chance.choice([0, 0, 0.01]))
    await asyncio.sleep(1)
    assert bench.metrics.in_flight == 0
    return client.take()


@settings(max_examples=150)
@given(
    st.lists(st.sampled_from(SERIES), max_size=30),
    st.sampled_from(LAST),
    st.lists(st.integers(0, 900), max_size=20),
    st.integers(0, 2**32),
)
def test_any_series_cut_anywhere_is_answered_as_one_command_after_the_other(
    series: list[bytes], last: bytes, cuts: list[int], seed: int
) -> None:
    data = b"".join(series) + last
    places = sorted({min(cut, len(data)) for cut in cuts})
    reads = [data[begin:end] for begin, end in zip([0, *places], [*places, len(data)], strict=True) if end > begin]
    assert run(answers(reads, seed)) == run(answers([*series, last], 0))
