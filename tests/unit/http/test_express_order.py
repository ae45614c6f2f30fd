"""Requests one behind the other on a connection, and its end: on the express way as on the ordinary one."""

import asyncio
import gc
import re
import weakref

import pytest

from app.http.connections import JoinedWrites, watch
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.http.http_connection import (
    ALBUMS,
    BLOCK,
    PHOTOS,
    POST,
    SILENCE,
    TEXT,
    UPGRADE,
    Bench,
    FakeTransport,
    both_ways,
    ids,
    kinds,
    request,
)

# --- sent ahead ----------------------------------------------------------------------------------------------------

AHEAD = {
    "one that is known": ([ALBUMS], b"", ["albums"]),
    "one that is not": ([BLOCK, ALBUMS], b"", ["photos", "albums"]),
    "several in one piece": ([ALBUMS + PHOTOS + ALBUMS], b"", ["albums", "photos", "albums"]),
    "several in pieces": ([ALBUMS[:9], ALBUMS[9:] + PHOTOS[:30], PHOTOS[30:]], b"", ["albums", "photos"]),
    "one and a half": ([ALBUMS + PHOTOS[:30]], PHOTOS[30:], ["albums", "photos"]),
    "half of one": ([ALBUMS[:30]], ALBUMS[30:], ["albums"]),
}


@both_ways
@pytest.mark.parametrize(("ahead", "rest", "expected"), AHEAD.values(), ids=AHEAD)
@virtual_time
async def test_what_is_sent_ahead_is_held_until_the_answer(
    bench: Bench, ahead: list[bytes], rest: bytes, expected: list[str], empty: bool
) -> None:
    client = await bench.connect_known(PHOTOS, ALBUMS)
    bench.issuer.delay = lambda: 0.1
    client.send(PHOTOS, *ahead)
    await asyncio.sleep(0.2)
    assert (client.take(), bench.issuer.asked, bench.issuer.issued) == (b"", ["photos"], [])
    assert not client.transport.reading
    assert bench.metrics.in_flight == 1
    while bench.issuer.waiting:
        bench.issuer.answer(empty=empty)
        await asyncio.sleep(1)
    assert client.transport.reading
    client.send(rest)
    await asyncio.sleep(1)
    answers = client.take()
    assert re.findall(r'"sequence":"(\w+)"', answers.decode()) == ["photos", *expected]
    assert ids(answers) == sorted(ids(answers))
    assert bench.metrics.in_flight == 0


@virtual_time
async def test_each_that_is_known_and_sent_by_itself_goes_express_in_its_turn(bench: Bench) -> None:
    client = await bench.connect_known(PHOTOS, ALBUMS)
    client.send(PHOTOS, ALBUMS)
    for _ in range(3):
        bench.issuer.answer()
        client.send(PHOTOS)
    bench.issuer.answer()
    bench.issuer.answer()
    assert bench.issuer.asked == ["photos", "albums", "photos", "photos", "photos"]
    assert (ids(client.take()), bench.issuer.issued) == ([5, 7, 9, 11, 13], [])


@pytest.mark.parametrize("pieces", [[PHOTOS, UPGRADE, ALBUMS], [UPGRADE + ALBUMS]], ids=["held", "in one piece"])
@virtual_time
async def test_what_comes_behind_an_offer_to_upgrade_is_not_lost(bench: Bench, pieces: list[bytes]) -> None:
    client = await bench.connect_known(PHOTOS)
    client.send(*pieces)
    if bench.issuer.waiting:
        bench.issuer.answer()
    answers = await client.ask()
    assert re.findall(r'"sequence":"(\w+)"', answers.decode())[-2:] == ["photos", "albums"]


@pytest.mark.parametrize("apart", [False, True], ids=["in one piece", "apart"])
@virtual_time
async def test_a_body_behind_an_offer_to_upgrade_is_no_request(bench: Bench, apart: bool) -> None:
    """What reads it as a body and what reads it as a request would disagree from there on."""
    await bench.connect_known(PHOTOS, ALBUMS)
    offer = request("/ticket/photos", "connection: upgrade", "upgrade: h2c", method="POST", body=ALBUMS)
    head = offer.removesuffix(ALBUMS)
    for _ in range(2):
        client = bench.connect()
        answer = await (client.ask(head, ALBUMS) if apart else client.ask(offer))
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1") == 1
        assert client.transport.ended
    assert bench.issuer.asked == []


@pytest.mark.parametrize("plain", [False, True], ids=["express", "plain"])
@virtual_time
async def test_line_ends_between_requests_keep_no_connection_open(bench: Bench, plain: bool) -> None:
    client = bench.connect(plain=plain)
    assert await client.ask(TEXT)
    client.send(b"\r\n")
    await asyncio.sleep(SILENCE + 1)
    assert client.transport.ended


@pytest.mark.parametrize("plain", [False, True], ids=["express", "plain"])
@virtual_time
async def test_a_body_that_comes_after_the_answer_leaves_an_idle_connection(bench: Bench, plain: bool) -> None:
    client = bench.connect(plain=plain)
    assert await client.ask(POST.removesuffix(b"{}"))
    assert client.protocol.under_way is not None
    client.send(b"{}")
    assert client.protocol.under_way is None


# --- the end of a connection ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [None, ConnectionResetError()], ids=["closed", "reset"])
@pytest.mark.parametrize("ahead", [[], [ALBUMS]], ids=["alone", "with one ahead"])
@virtual_time
async def test_of_a_client_that_is_gone_nothing_is_left(
    bench: Bench, ahead: list[bytes], error: Exception | None
) -> None:
    client = await bench.connect_known(PHOTOS, ALBUMS)
    client.send(PHOTOS)
    bench.issuer.answer()
    client.take()
    client.send(PHOTOS, *ahead)
    assert not bench.issuer.waiting[0].is_gone()
    client.transport.lose(error, "lost")
    assert await client.ask() == b""
    assert bench.issuer.waiting[0].is_gone()
    assert bench.metrics.in_flight == 0
    bench.issuer.answer()
    left = weakref.ref(client.protocol)
    del client
    gc.collect()
    assert left() is None


@both_ways
@virtual_time
async def test_to_a_connection_that_is_closing_nothing_is_written(bench: Bench, empty: bool) -> None:
    client = await bench.connect_known(PHOTOS)
    client.send(PHOTOS)
    client.transport.abort()
    bench.issuer.answer(empty=empty)
    assert await client.ask() == b""


@virtual_time
async def test_what_is_written_at_once_follows_what_waits() -> None:
    transport = FakeTransport()
    joined = JoinedWrites(transport, asyncio.get_running_loop())
    joined.write(b"head, ")
    joined.write(b"body, ")
    joined.write_at_once(b"whole")
    await settled()
    assert transport.written == b"head, body, whole"


@both_ways
@virtual_time
async def test_a_server_that_ends_answers_what_is_under_way_and_closes(bench: Bench, empty: bool) -> None:
    client, plain = await bench.connect_known(PHOTOS), bench.connect(plain=True)
    bench.issuer.delay = lambda: 0.1
    for each in (plain, client):
        assert await each.ask(PHOTOS) == b""
        each.protocol.shutdown()
    bench.endpoint.draining_is_over = True
    bench.issuer.answer(empty=empty)
    await asyncio.sleep(0.2)
    answer = client.take()
    assert kinds(answer) == kinds(plain.take())
    assert b"\r\nconnection: close\r\n\r\n" in answer
    assert client.transport.calls == ["write", "close"]


@virtual_time
async def test_a_server_that_ends_closes_an_idle_connection_at_once(bench: Bench) -> None:
    client = await bench.connect_known(PHOTOS)
    client.send(PHOTOS)
    bench.issuer.answer()
    client.protocol.shutdown()
    assert client.transport.calls == ["write", "close"]


@both_ways
@pytest.mark.parametrize("ahead", [PHOTOS, BLOCK], ids=["known", "not known"])
@virtual_time
async def test_what_was_sent_behind_the_last_answer_is_not_looked_at(bench: Bench, ahead: bytes, empty: bool) -> None:
    client = await bench.connect_known(PHOTOS)
    client.send(PHOTOS, ahead)
    client.protocol.shutdown()
    bench.issuer.answer(empty=empty)
    assert len(ids(await client.ask())) == 1
    assert len(bench.issuer.asked) + len(bench.issuer.issued) == 1 + empty


@virtual_time
async def test_a_connection_is_closed_after_silence_and_not_before(bench: Bench) -> None:
    client = await bench.connect_known(PHOTOS)
    for data in (PHOTOS, PHOTOS, BLOCK, PHOTOS, BLOCK, BLOCK, PHOTOS, PHOTOS):
        for pause in (SILENCE / 2, SILENCE - 1):
            client.send(data)
            if bench.issuer.waiting:
                bench.issuer.answer()
            await asyncio.sleep(pause)
            assert not client.transport.ended
    await asyncio.sleep(1.1)
    assert client.transport.calls[-1] == "close"


@both_ways
@virtual_time
async def test_a_request_under_way_is_not_silence(bench: Bench, empty: bool) -> None:
    client = await bench.connect_known(PHOTOS)
    client.send(PHOTOS)
    bench.issuer.answer()
    await asyncio.sleep(SILENCE - 1)
    client.send(PHOTOS)
    await asyncio.sleep(2.5 * SILENCE)
    bench.issuer.answer(empty=empty)
    await asyncio.sleep(SILENCE - 1)
    assert not client.transport.ended
    await asyncio.sleep(1.1)
    assert client.transport.ended
    assert len(ids(client.take())) == 2


@virtual_time
async def test_one_that_takes_too_long_is_cut_and_an_idle_connection_is_not(bench: Bench) -> None:
    idle, slow = await bench.connect_known(PHOTOS), bench.connect()
    idle.send(PHOTOS)
    bench.issuer.answer()
    slow.send(PHOTOS)
    assert idle.protocol.under_way is None
    assert slow.protocol.under_way is bench.issuer.waiting[0]
    watcher = asyncio.create_task(watch([idle.protocol, slow.protocol]))
    await asyncio.sleep(30)
    watcher.cancel()
    assert (idle.transport.calls, slow.transport.calls) == (["write"], ["abort"])
    assert bench.issuer.waiting[0].is_gone()
