"""Commands that share a request when a client goes, the request fails, or the server ends: each gets its own answer."""

import pytest

from app.common.errors import NoTicketDatabase, SequenceExhausted
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.redis.gathering_bench import MANY, answered_together, asked, connected
from tests.unit.redis.redis_bench import INCR, OTHER, Bench


@virtual_time
async def test_those_that_have_gone_are_not_waited_for() -> None:
    bench = Bench()
    clients = connected(bench, MANY)
    for client in clients:
        client.send(INCR)
    await settled()
    for client in clients[1:]:
        client.transport.lose("lost")
    await settled()
    bench.issuer.answer()
    bench.issuer.waiting.clear()
    clients[0].send(INCR)
    await settled()
    assert asked(bench) == [("photos", 1)]


@virtual_time
async def test_what_waits_when_the_server_ends_is_asked_for() -> None:
    bench = Bench()
    clients = connected(bench, MANY)
    await answered_together(bench, clients)
    clients[0].take()
    clients[0].send(INCR)
    await settled()
    assert asked(bench) == []
    bench.door.stop()
    bench.desk.closed = True
    assert asked(bench) == [("photos", 1)]
    bench.issuer.answer()
    assert clients[0].take().startswith(b":")


@virtual_time
async def test_one_that_cannot_be_asked_for_costs_its_own_connections_alone() -> None:
    bench = Bench()
    one, other, later = connected(bench, 3)

    def break_once() -> None:
        bench.issuer.on_issue = lambda: None
        bench.issuer.waiting.clear()
        raise ZeroDivisionError

    bench.issuer.on_issue = break_once
    one.send(INCR * 100)
    other.send(OTHER)
    await settled()
    assert asked(bench) == [("albums", 1)]
    assert one.transport.is_closing()
    later.send(INCR)
    await settled()
    assert asked(bench) == [("albums", 1), ("photos", 1)]


@virtual_time
async def test_those_that_were_refused_together_are_not_waited_for() -> None:
    bench = Bench()
    clients = connected(bench, MANY)
    for client in clients:
        client.send(INCR)
    await settled()
    bench.issuer.refuse(NoTicketDatabase("none"))
    bench.issuer.waiting.clear()
    clients[0].send(INCR)
    await settled()
    assert asked(bench) == [("photos", 1)]


@virtual_time
@pytest.mark.parametrize("end", ["answered", "refused", "apart", "gone"])
async def test_however_a_request_ends_nobody_waits_for_it_any_more(end: str) -> None:
    bench = Bench()
    first, second = connected(bench, 2)
    first.send(INCR * 5)
    await settled()
    if end == "answered":
        bench.issuer.answer()
    elif end == "refused":
        bench.issuer.refuse(NoTicketDatabase("none"))
    elif end == "apart":
        bench.issuer.refuse(SequenceExhausted("photos is near its end"))
    else:
        first.transport.lose("lost")
        await settled()
    bench.issuer.waiting.clear()
    second.send(INCR)
    await settled()
    assert asked(bench) == [("photos", 1)]


@virtual_time
async def test_who_has_gone_before_it_was_asked_for_is_not_asked_for() -> None:
    bench = Bench()
    gone, stays = connected(bench, 2)
    gone.send(INCR * 2)
    stays.send(INCR)
    gone.protocol.connection_lost(None)
    await settled()
    assert asked(bench) == [("photos", 1)]
    assert bench.metrics.in_flight == 1


@virtual_time
async def test_who_goes_later_leaves_the_others_theirs() -> None:
    bench = Bench()
    first, gone, last = connected(bench, 3)
    for client in (first, gone, last):
        client.send(INCR * 2)
    await settled()
    gone.transport.lose("lost")
    await settled()
    (request,) = bench.issuer.waiting
    assert (request.count, request.gone, bench.metrics.in_flight) == (6, 2, 4)
    bench.issuer.answer()
    assert (first.take(), gone.take(), last.take()) == (b":1\r\n:3\r\n", b"", b":9\r\n:11\r\n")
    assert bench.outcomes() == {("ticket", "ok"): 4}
    assert bench.metrics.in_flight == 0


@virtual_time
async def test_where_all_have_gone_the_request_has() -> None:
    bench = Bench()
    clients = connected(bench, 2)
    for client in clients:
        client.send(INCR)
    await settled()
    for client in clients:
        client.transport.lose("lost")
    await settled()
    (request,) = bench.issuer.waiting
    assert (request.settled, request.lane, bench.metrics.in_flight) == (True, None, 0)


@virtual_time
async def test_one_that_fails_or_goes_over_an_answer_costs_no_other_its_own() -> None:
    bench = Bench()
    first, broken, last = connected(bench, 3)
    for client in (first, broken, last):
        client.send(INCR)
    await settled()

    def breaks() -> None:
        raise RuntimeError

    broken.transport.on_write = breaks
    first.transport.on_write = lambda: last.protocol.connection_lost(None)  # while the answers are being given
    bench.issuer.answer()
    await settled()
    assert (first.take(), last.take()) == (b":1\r\n", b"")
    assert (first.transport.calls, broken.transport.calls) == ([], ["abort"])
    assert bench.metrics.in_flight == 0
    assert await bench.connect().ask(INCR) == b""
    assert asked(bench) == [("photos", 1)]


@virtual_time
async def test_what_is_near_its_end_is_asked_for_by_connection_and_then_in_pieces() -> None:
    bench = Bench()
    first, second = connected(bench, 2)
    first.send(INCR)
    second.send(INCR * 2)
    await settled()
    near = SequenceExhausted("photos is near its end")
    bench.issuer.refuse(near)
    assert asked(bench) == [("photos", 1), ("photos", 2)]
    bench.issuer.answer()
    bench.issuer.refuse(near)
    assert asked(bench) == [("photos", 1)]
    bench.issuer.answer()
    await settled()
    assert asked(bench) == [("photos", 1)]
    assert second.take() == b""
    bench.issuer.refuse(near)
    assert (first.take(), second.take()) == (b":1\r\n", b":3\r\n-EXHAUSTED photos is near its end\r\n")
    assert bench.outcomes() == {("ticket", "ok"): 2, ("ticket", "exhausted"): 1}
    assert bench.metrics.in_flight == 0
