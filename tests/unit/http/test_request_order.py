"""Requests one behind the other on a connection: each is served in its turn, and gets its own answer."""

import asyncio
import re

import pytest

from app.common.errors import OutOfTime
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.http.http_bench import (
    ALBUMS,
    BLOCK,
    LAST,
    OTHER,
    PHOTOS,
    POST,
    REFUSED,
    UPGRADE,
    Bench,
    chunked,
    ids,
    now,
    request,
    statuses,
)

# --- sent ahead ----------------------------------------------------------------------------------------------------

AHEAD = {
    "one": ([ALBUMS], b"", ["albums"]),
    "a block and one": ([BLOCK, ALBUMS], b"", ["photos", "albums"]),
    "several in one piece": ([ALBUMS + PHOTOS + ALBUMS], b"", ["albums", "photos", "albums"]),
    "several in pieces": ([ALBUMS[:9], ALBUMS[9:] + PHOTOS[:30], PHOTOS[30:]], b"", ["albums", "photos"]),
    "one and a half": ([ALBUMS + PHOTOS[:30]], PHOTOS[30:], ["albums", "photos"]),
    "half of one": ([ALBUMS[:30]], ALBUMS[30:], ["albums"]),
}


@pytest.mark.parametrize("fails_over", [False, True], ids=["served", "failed over"])
@pytest.mark.parametrize(("ahead", "rest", "expected"), AHEAD.values(), ids=AHEAD)
@virtual_time
async def test_what_is_sent_ahead_is_held_until_the_answer(
    bench: Bench, ahead: list[bytes], rest: bytes, expected: list[str], fails_over: bool
) -> None:
    client = bench.connect()
    client.send(PHOTOS, *ahead)
    await settled()
    assert (client.take(), bench.issuer.asked, bench.metrics.in_flight) == (b"", ["photos"], 1)
    answers = b""
    for number in range(len(expected) + 1):
        if number == len(expected):
            client.send(rest)
        if fails_over:
            bench.issuer.fail_over()
        assert client.take() == b""
        bench.issuer.answer()
        answers += client.take()
    assert re.findall(r'"sequence":"(\w+)"', answers.decode()) == ["photos", *expected]
    assert ids(answers) == sorted(ids(answers))
    assert bench.issuer.waiting == []


@pytest.mark.parametrize("together", [False, True], ids=["apart", "in one piece"])
@virtual_time
async def test_tickets_and_others_take_turns(bench: Bench, together: bool) -> None:
    client = bench.connect()
    series = [PHOTOS, request("/wait"), ALBUMS, request("/other", method="POST", body=b"x"), PHOTOS]
    client.send(*([b"".join(series)] if together else series))
    await settled()
    assert (bench.issuer.asked, bench.app.begun) == (["photos"], [])
    bench.issuer.answer()
    assert ids(await client.ask()) == [1]
    assert (bench.issuer.asked, bench.app.begun) == (["photos"], ["/wait"])
    bench.app.gate.set()
    assert statuses(await client.ask()) == [200]
    assert (bench.issuer.asked, bench.app.begun) == (["photos", "albums"], ["/wait"])
    bench.issuer.answer()
    answers = await client.ask()
    assert (ids(answers), statuses(answers), bench.app.begun) == ([3], [200, 200], ["/wait", "/other"])
    bench.issuer.answer()
    assert ids(client.take()) == [5]


@virtual_time
async def test_an_answer_leaves_at_once_and_the_next_is_asked_before_anything_else(bench: Bench) -> None:
    client = bench.connect()
    client.send(PHOTOS, ALBUMS, PHOTOS)
    for number, asked in enumerate((["photos", "albums"], ["photos", "albums", "photos"])):
        bench.issuer.answer()
        assert ids(client.take()) == [2 * number + 1]
        assert bench.issuer.asked == asked
    bench.issuer.answer()
    assert ids(client.take()) == [5]


@virtual_time
async def test_refused_ones_between_keep_their_place(bench: Bench) -> None:
    client = bench.connect()
    client.send(PHOTOS + REFUSED + ALBUMS + REFUSED)
    bench.issuer.refuse(OutOfTime())
    bench.issuer.answer()
    assert statuses(client.take()) == [503, 422, 200, 422]


@virtual_time
async def test_what_one_response_is_written_in_leaves_together_and_before_the_next(bench: Bench) -> None:
    bench.issuer.on_issue = bench.issuer.answer
    client = bench.connect()
    answers = await client.ask(OTHER + PHOTOS)
    assert statuses(answers) == [200, 200]
    assert client.transport.calls == ["write", "write"]
    assert answers.index(b'["GET"') < answers.index(b'"sequence"')
    await client.ask(OTHER)
    assert client.transport.calls == ["write"] * 3


@virtual_time
async def test_a_request_in_single_bytes_is_one_request(bench: Bench) -> None:
    bench.issuer.on_issue = bench.issuer.answer
    client = bench.connect()
    data = POST + chunked("/other", b"hello", b"world") + PHOTOS
    assert statuses(await client.ask(*(data[place : place + 1] for place in range(len(data))))) == [200, 200, 200]
    assert bench.app.seen == [("/other", b"helloworld")]
    assert bench.issuer.asked == ["photos", "photos"]


# --- offers to upgrade, line ends, bodies that nobody reads ----------------------------------------------------------


@pytest.mark.parametrize("pieces", [[PHOTOS, UPGRADE, ALBUMS], [UPGRADE + ALBUMS]], ids=["held", "in one piece"])
@virtual_time
async def test_what_comes_behind_an_offer_to_upgrade_is_not_lost(bench: Bench, pieces: list[bytes]) -> None:
    bench.issuer.on_issue = bench.issuer.answer
    client = bench.connect()
    answers = await client.ask(*pieces)
    assert re.findall(r'"sequence":"(\w+)"', answers.decode())[-2:] == ["photos", "albums"]


@virtual_time
async def test_the_application_hears_of_no_offer_to_upgrade(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    client = bench.connect()
    offer = request("/other", "Connection: upgrade, http2-settings", "Upgrade: h2c", "HTTP2-Settings: x", "x: y")
    answers = await client.ask(offer + OTHER)
    assert statuses(answers) == [200, 200]
    assert b'[["host", "tickets"], ["x", "y"]]' in answers
    last = await client.ask(request("/other", "Connection: upgrade, close", "Upgrade: h2c"))
    assert b"\r\nconnection: close\r\n" in last
    assert client.transport.ended
    assert caplog.records == []


@pytest.mark.parametrize("apart", [False, True], ids=["in one piece", "apart"])
@pytest.mark.parametrize("target", ["/ticket/photos", "/other"])
@virtual_time
async def test_a_body_behind_an_offer_to_upgrade_is_no_request(bench: Bench, apart: bool, target: str) -> None:
    """What reads it as a body and what reads it as a request would disagree from there on."""
    for body in (request(target, "connection: upgrade", "upgrade: h2c", method="POST", body=ALBUMS),
                 chunked(target, ALBUMS, headers=("connection: upgrade", "upgrade: h2c"))):  # fmt: skip
        head = body[: body.index(b"\r\n\r\n") + 4]
        client = bench.connect()
        answer = await (client.ask(head, body[len(head) :]) if apart else client.ask(body))
        assert statuses(answer) == [400]
        assert client.transport.ended
    assert (bench.issuer.asked, bench.app.begun) == ([], [])


@virtual_time
async def test_line_ends_between_requests_are_none(bench: Bench) -> None:
    bench.issuer.on_issue = bench.issuer.answer
    client = bench.connect()
    answers = await client.ask(b"\r\n" + PHOTOS + b"\r\n\r\n", b"\r\n", PHOTOS)
    assert ids(answers) == [1, 3]
    assert client.protocol.since is None
    client.send(b"\r\n")
    assert client.protocol.since is None


@pytest.mark.parametrize("rest", [b"{}", b"{}" + ALBUMS[:20]], ids=["alone", "with more"])
@virtual_time
async def test_a_ticket_waits_for_the_body_and_the_connection_is_idle_behind_it(bench: Bench, rest: bytes) -> None:
    client = bench.connect()
    began = now()
    client.send(POST.removesuffix(b"{}"))
    assert bench.issuer.asked == []
    assert client.protocol.since == began
    await asyncio.sleep(1)
    client.send(rest[:1])
    assert bench.issuer.asked == []
    client.send(rest[1:])
    assert bench.issuer.asked == ["photos"]
    bench.issuer.answer()
    assert ids(client.take()) == [1]
    assert (client.protocol.since is None) is (rest == b"{}")
    client.send(ALBUMS if rest == b"{}" else ALBUMS[20:])
    bench.issuer.answer()
    assert ids(client.take()) == [3]
    assert client.protocol.since is None


@virtual_time
async def test_a_body_that_looks_like_requests_is_none(bench: Bench) -> None:
    bench.issuer.on_issue = bench.issuer.answer
    client = bench.connect()
    for hidden in (PHOTOS, PHOTOS * 100):
        body = request("/ticket/albums", method="POST", body=hidden)
        cut = body.index(hidden)
        for pieces in ([body], [body[:cut], body[cut:]], [body[: cut + 7], body[cut + 7 :]]):
            assert statuses(await client.ask(*pieces)) == [422]
    assert bench.issuer.asked == []


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("body", [b"", b"{}"], ids=["no body", "a body to come"])
@virtual_time
async def test_a_client_that_waits_to_send_a_body_is_told_to_go_on(bench: Bench, body: bytes, version: str) -> None:
    client = bench.connect()
    headers = "expect: 100-Continue", "connection: keep-alive"
    data = request("/ticket/photos", *headers, method="POST", body=body, version=version)
    client.send(data.removesuffix(body) if body else data)
    is_told = bool(body) and version == "1.1"
    assert client.take() == (b"HTTP/1.1 100 Continue\r\n\r\n" if is_told else b"")
    client.send(body)
    bench.issuer.answer()
    assert statuses(client.take()) == [200]


@pytest.mark.parametrize("headers", [(), ("authorization: Bearer wrong-wrong-wrong-wrong",)])
@pytest.mark.parametrize("bench", [["secret-secret-secret"]], indirect=True)
@virtual_time
async def test_a_request_that_is_refused_for_its_head_waits_for_no_body(bench: Bench, headers: tuple[str, ...]) -> None:
    client = bench.connect()
    data = request("/ticket/photos", "expect: 100-continue", *headers, method="POST", body=b"{}")
    client.send(data.removesuffix(b"{}"))
    await asyncio.sleep(5)
    assert statuses(client.take()) == [401]


# --- the last request ----------------------------------------------------------------------------------------------


STAYS = request("/ticket/photos", "connection: keep-alive", version="1.0")


@pytest.mark.parametrize("last", [LAST, request(version="1.0"), STAYS], ids=["close", "1.0", "1.0 that stays"])
@pytest.mark.parametrize("more", [PHOTOS, BLOCK, OTHER, b"no request\r\n\r\n", POST[:-1]])
@pytest.mark.parametrize("together", [False, True], ids=["apart", "in one piece"])
@virtual_time
async def test_behind_the_last_request_nothing_is_read(bench: Bench, last: bytes, more: bytes, together: bool) -> None:
    client = bench.connect()
    client.send(*([last + more] if together else [last, more]))
    bench.issuer.answer()
    answer = await client.ask()
    assert ids(answer) == [1]
    assert statuses(answer) == [200]
    assert b"\r\nconnection: close\r\n" in answer
    assert client.transport.calls == ["write", "close"]
    assert (bench.issuer.asked, bench.app.begun) == (["photos"], [])


@pytest.mark.parametrize("options", [("connection: close",), ()], ids=["close", "1.0"])
@virtual_time
async def test_the_last_request_may_be_anybodys(bench: Bench, options: tuple[str, ...]) -> None:
    client = bench.connect()
    answer = await client.ask(request("/other", *options, version="1.1" if options else "1.0") + PHOTOS)
    assert b"\r\nconnection: close\r\n" in answer
    assert client.transport.calls == ["write", "close"]
    assert bench.issuer.asked == []
