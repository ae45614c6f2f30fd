"""The express way: what is known goes to its lane as it arrives, and reads like the ordinary way in everything else."""

import asyncio
import re
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.http import express
from app.http.express import LONGEST_REQUEST
from tests.fakes.virtual_time import run, settled, virtual_time
from tests.unit.http.http_connection import (
    ALBUMS,
    BLOCK,
    PHOTOS,
    POST,
    TEXT,
    UPGRADE,
    Bench,
    Client,
    both_ways,
    ids,
    kinds,
    now,
    request,
    with_id,
)

# --- what is known -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [[], [(b"date", b"today"), (b"x-more", b"of it")]], ids=["bare", "dated"])
@pytest.mark.parametrize("data", [PHOTOS, POST, TEXT, b"\r\n" + request("/ticket/photos", method="POST")])
@virtual_time
async def test_the_second_time_it_goes_express_and_reads_the_same(
    bench: Bench, data: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    bench.state.default_headers = headers
    client = bench.connect()
    ordinary = await client.ask(data)
    for id_ in (1_000_001, 3):
        bench.issuer.next = id_
        assert await client.ask(data) == b""
        assert len(bench.issuer.waiting) == bench.metrics.in_flight == 1
        waiter = bench.issuer.waiting[0]
        bench.issuer.answer()
        assert waiter.is_gone()
        assert client.take() == with_id(ordinary, 1, id_)
    assert (bench.issuer.asked, len(bench.issuer.issued)) == (["photos", "photos"], 1)


@virtual_time
async def test_the_date_is_that_of_the_answer(bench: Bench) -> None:
    client = await bench.connect_known(PHOTOS)
    for day in (b"monday", b"tuesday", b"tuesday", b"wednesday"):
        client.send(PHOTOS)
        bench.state.default_headers = [(b"date", day)]
        bench.issuer.answer()
        assert re.findall(rb"date: (\w+)\r\n", client.take()) == [day]


NEVER_KEPT = {
    "a count": [request("/ticket/photos?count=2")],
    "a query": [request("/ticket/photos?x")],
    "a block": [BLOCK],
    "another path": [request("/Ticket/photos")],
    "no name": [request("/ticket/")],
    "a sequence that nobody knows": [request("/ticket/videos")],
    "an escape": [request("/ticket/ph%25d")],
    "two names": [request("/ticket/photos/albums")],
    "HEAD": [request(method="HEAD")],
    "PUT": [request(method="PUT")],
    "close": [request("/ticket/photos", "connection: close")],
    "HTTP/1.0": [PHOTOS.replace(b"/1.1", b"/1.0")],
    "HTTP/1.0 that stays": [request("/ticket/photos", "connection: keep-alive").replace(b"/1.1", b"/1.0")],
    "in two pieces": [PHOTOS[:20], PHOTOS[20:]],
    "its body by itself": [POST[:-2], POST[-2:]],
    "two in one piece": [PHOTOS + ALBUMS],
    "behind another": [request("/other"), PHOTOS],
    "one and a half": [PHOTOS + ALBUMS[:20]],
    "a body that is still to come": [POST[:-1]],
    "no end": [PHOTOS[:-2]],
}


@pytest.mark.parametrize("pieces", NEVER_KEPT.values(), ids=NEVER_KEPT)
@virtual_time
async def test_what_is_not_one_whole_plain_request_is_never_kept(bench: Bench, pieces: list[bytes]) -> None:
    answers = [await bench.connect(plain=plain).ask(*pieces) for plain in (True, False, False)]
    assert len(set(map(kinds, answers))) == 1
    assert (bench.orders.known, bench.issuer.asked) == ({}, [])


@virtual_time
async def test_only_a_short_request_is_kept(bench: Bench) -> None:
    room = LONGEST_REQUEST - len(request("/ticket/photos", "x: "))
    longest, too_long = (request("/ticket/photos", "x: " + "y" * (room + more)) for more in (0, 1))
    await bench.connect_known(too_long, longest)
    assert list(bench.orders.known) == [longest]


@virtual_time
async def test_no_more_is_kept_than_there_is_room_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(express, "ORDERS", 5)
    series = [request("/ticket/photos", f"x-number: {number}") for number in range(12)]
    await bench.connect_known(*series)
    assert list(bench.orders.known) == series[-5:]


@pytest.mark.parametrize("bench", [("right", "other")], indirect=True)
@virtual_time
async def test_only_what_a_token_allows_is_kept_and_one_is_not_the_other(bench: Bench) -> None:
    right, other, wrong = (request("/ticket/photos", f"authorization: Bearer {t}") for t in ("right", "other", "wrong"))
    client = await bench.connect_known(right)
    for refused in (wrong, PHOTOS, wrong, PHOTOS):
        assert (await client.ask(refused)).startswith(b"HTTP/1.1 401 ")
    assert (list(bench.orders.known), bench.issuer.asked) == ([right], [])
    await client.ask(other)
    for data in (right, other):
        client.send(data)
        bench.issuer.answer()
    assert (ids(client.take()), len(bench.issuer.asked)) == ([5, 7], 2)


ELSEWHERE = {
    "a body that is not waited for": request(method="POST", body=PHOTOS)[: -len(PHOTOS)],
    "a body that is waited for": request("/other", method="PUT", body=PHOTOS)[: -len(PHOTOS)],
    "a part of a body": request("/other", method="PUT", body=b"-" + PHOTOS)[: -len(PHOTOS)],
    "a part of a head": b"GET /other HTTP/1.1\r\nx: ",
}


@pytest.mark.parametrize("before", ELSEWHERE.values(), ids=ELSEWHERE)
@virtual_time
async def test_known_bytes_in_another_place_are_no_request(bench: Bench, before: bytes) -> None:
    client, plain = await bench.connect_known(PHOTOS), bench.connect(plain=True)
    for piece in (before, PHOTOS):
        assert kinds(await client.ask(piece)) == kinds(await plain.ask(piece))
    assert bench.issuer.asked == []
    client.send(PHOTOS)
    if bench.issuer.waiting:
        bench.issuer.answer()
    assert ids(await client.ask()) == [bench.issuer.next - 2]


# --- the ordinary way ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [PHOTOS, POST, TEXT])
@virtual_time
async def test_what_its_lane_cannot_serve_goes_the_ordinary_way_within_its_time(bench: Bench, data: bytes) -> None:
    client = await bench.connect_known(data)
    for id_ in (3, 7, 11):
        began = now()
        client.send(data)
        await asyncio.sleep(0.3)
        waiter = bench.issuer.waiting[0]
        assert (waiter.count, waiter.whole, waiter.until) == (1, False, began + 0.5)
        bench.issuer.answer(empty=True)
        assert ids(await client.ask()) == [id_]
        [(name, first)] = bench.issuer.issued
        assert first is not None
        assert (name, first.began, first.lane) == ("photos", began, bench.issuer.lane)
        client.send(data)
        bench.issuer.answer()
        assert ids(client.take()) == [id_ + 2]
        bench.issuer.issued.clear()


@virtual_time
async def test_where_no_lane_can_be_asked_it_goes_the_ordinary_way(bench: Bench) -> None:
    client = await bench.connect_known(PHOTOS)
    bench.issuer.has_lanes = False
    bench.issuer.delay = lambda: 0.1
    assert await client.ask(PHOTOS) == b""
    assert bench.metrics.in_flight == 1
    await asyncio.sleep(0.2)
    assert (ids(client.take()), bench.metrics.in_flight) == ([3], 0)
    bench.issuer.has_lanes = True
    client.send(PHOTOS)
    bench.issuer.answer()
    assert ids(client.take()) == [5]


@virtual_time
async def test_a_lane_that_breaks_in_the_moment_it_is_asked_sends_it_the_ordinary_way(bench: Bench) -> None:
    client = await bench.connect_known(PHOTOS)
    bench.issuer.on_ask = lambda: bench.issuer.answer(empty=True)
    for id_ in (3, 5):
        assert ids(await client.ask(PHOTOS)) == [id_]
    assert (len(bench.issuer.asked), len(bench.issuer.issued)) == (2, 2)


@virtual_time
async def test_after_draining_no_lane_is_asked(bench: Bench) -> None:
    client = await bench.connect_known(PHOTOS)
    bench.endpoint.draining_is_over = True
    for _ in range(2):
        assert (await client.ask(PHOTOS)).startswith(b"HTTP/1.1 503 ")
        assert bench.metrics.in_flight == 0
    assert (bench.issuer.asked, bench.issuer.issued) == ([], [])


@virtual_time
async def test_a_client_that_does_not_read_goes_the_ordinary_way(bench: Bench) -> None:
    client = await bench.connect_known(PHOTOS)
    client.protocol.pause_writing()
    assert await client.ask(PHOTOS) == b""
    client.protocol.resume_writing()
    assert (ids(await client.ask()), bench.issuer.asked) == ([3], [])


# --- what is counted -----------------------------------------------------------------------------------------------


@virtual_time
async def test_every_answer_is_counted_once(bench: Bench) -> None:
    client = bench.connect()
    for count, way in enumerate(["ordinary", "express", "empty", "no lane", "express"], 1):
        bench.issuer.has_lanes = way != "no lane"
        client.send(PHOTOS)
        assert bench.metrics.in_flight == (way in {"express", "empty"})
        if bench.issuer.waiting:
            bench.issuer.answer(empty=way == "empty")
        assert len(ids(await client.ask())) == 1
        assert bench.metrics.requests == {("ticket", "ok"): count}
        assert sum(bench.metrics.issue_seconds.counts) == bench.state.total_requests == count
        assert bench.metrics.in_flight == 0


@both_ways
async def test_the_time_that_is_counted_begins_with_the_request(bench: Bench, empty: bool) -> None:
    client = await bench.connect_known(PHOTOS)
    before = bench.metrics.issue_seconds.total
    client.send(PHOTOS)
    await asyncio.sleep(0.05)
    bench.issuer.answer(empty=empty)
    await settled()
    assert 0.045 <= bench.metrics.issue_seconds.total - before < 10


# --- any series ----------------------------------------------------------------------------------------------------

SERIES = [
    PHOTOS, PHOTOS, ALBUMS, TEXT, POST, BLOCK, UPGRADE, b"\r\n", b"\r\n\r\n" + PHOTOS,
    request("/ticket/photos?count=2"),
    request("/ticket/ph%25d"),
    request("/ticket/albums", "connection: keep-alive"),
    request("/ticket/albums", method="POST", body=PHOTOS + PHOTOS),
    request("/ticket/albums", "transfer-encoding: chunked", method="POST") + b"2\r\n{}\r\n0\r\n\r\n",
    request("/other"),
    request("/other", method="POST", body=PHOTOS),
]  # fmt: skip
CLOSING = [request("/ticket/photos", "connection: close"), PHOTOS.replace(b"/1.1", b"/1.0"), b""]


async def answers_to(client: Client, pieces: list[bytes], chance: Random) -> bytes:
    """What comes of these pieces, sent with pauses; as from a real transport nothing comes while reading is paused."""
    for piece in pieces:
        await asyncio.sleep(chance.choice([0, 0, 0.01, 0.1]))
        if not client.transport.reading:
            await asyncio.sleep(5)
        if not client.transport.ended:
            assert client.transport.reading
            client.send(piece)
    await asyncio.sleep(5)
    return client.take()


def test_any_series_in_any_pieces_is_answered_as_on_the_ordinary_way() -> None:
    went_express = 0

    @settings(max_examples=150, deadline=None)
    @given(
        series=st.lists(st.sampled_from(SERIES), min_size=1, max_size=12),
        last=st.sampled_from(CLOSING),
        joined=st.sets(st.integers(1, 12)),
        cuts=st.sets(st.integers(1, 1_500), max_size=4),
        seed=st.integers(0, 2**32),
    )
    def check(series: list[bytes], last: bytes, joined: set[int], cuts: set[int], seed: int) -> None:
        chance = Random(seed)
        data = b"".join([*series, last, last and PHOTOS])
        ends = {len(b"".join(series[:number])) for number in range(1, len(series) + 1) if number not in joined}
        places = sorted({0, len(data)} | ends | {cut for cut in cuts if cut < len(data)})
        pieces = [data[begin:end] for begin, end in pairwise(places)]

        async def scenario() -> None:
            nonlocal went_express
            bench = Bench()
            bench.issuer.delay = lambda: chance.choice([0, 0, 0.01])
            bench.issuer.on_ask = lambda: asyncio.get_running_loop().call_later(
                chance.choice([0, 0.001, 0.02]), lambda: bench.issuer.answer(empty=chance.random() < 0.25)
            )
            expected = await answers_to(bench.connect(plain=True), pieces, chance)
            found = await asyncio.gather(*(answers_to(bench.connect(), pieces, chance) for _ in range(3)))
            assert [kinds(answers) for answers in found] == [kinds(expected)] * 3
            tickets = [id_ for answers in (expected, *found) for id_ in ids(answers)]
            assert len(tickets) == len(set(tickets))
            assert bench.metrics.in_flight == 0
            went_express += len(bench.issuer.asked)

        run(scenario())

    check()
    assert went_express > 100
