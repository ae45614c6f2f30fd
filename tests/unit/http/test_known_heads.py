"""A request that reads like one before is not parsed again, and means the same; bytes in another place mean nothing."""

import asyncio

import pytest

from app.clients.connections import REQUEST_SECONDS
from app.clients.known_reads import LONGEST, MANY
from app.http.tickets.head import ClientRequest, KnownHeads, RequestHead
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.http.http_bench import (
    ALBUMS,
    BLOCK,
    LAST,
    OTHER,
    PHOTOS,
    POST,
    TEXT,
    UPGRADE,
    Bench,
    chunked,
    ids,
    request,
    statuses,
    undated,
)


async def answered(bench: Bench, *pieces: bytes) -> bytes:
    """What a new connection gets for these."""
    bench.issuer.on_issue = lambda: asyncio.get_running_loop().call_soon(bench.issuer.answer)
    return undated(await bench.connect().ask(*pieces))


def is_known(bench: Bench, data: bytes) -> bool:
    return bench.connections.known_heads.get(data) is not None


@pytest.mark.parametrize("data", [PHOTOS, ALBUMS, TEXT, BLOCK, request(method="POST"), b"\r\n" + PHOTOS])
@virtual_time
async def test_the_second_one_is_answered_like_the_first(bench: Bench, data: bytes) -> None:
    first = await answered(bench, data)
    assert is_known(bench, data)
    second = await answered(bench, data)
    assert ids(second)[0] > ids(first)[0]
    assert second.replace(b"%d" % ids(second)[0], b"%d" % ids(first)[0]) == first


@pytest.mark.parametrize(
    "data",
    [
        POST,
        LAST,
        OTHER,
        UPGRADE,
        PHOTOS + PHOTOS,
        PHOTOS + PHOTOS[:30],
        PHOTOS + chunked("/ticket/photos", b"x", trailers=b"connection: close\r\n"),
        request(version="1.0"),
        request("/ticket/caf\u00e9"),
        request("/ticket/photos", "x: " + "y" * 1_000),
        request(method="POST", body=PHOTOS),
    ],
)
@virtual_time
async def test_what_is_more_than_one_plain_request_for_tickets_is_parsed_each_time(bench: Bench, data: bytes) -> None:
    await answered(bench, data)
    assert not is_known(bench, data)


@pytest.mark.parametrize(
    ("pieces", "expected", "drawn"),
    [
        ((request(method="POST", body=PHOTOS)[: -len(PHOTOS)], PHOTOS), [422], 0),
        ((request("/other", method="PUT", body=PHOTOS)[: -len(PHOTOS)], PHOTOS), [200], 0),
        ((PHOTOS[:-2], PHOTOS), [400], 0),
        ((LAST, PHOTOS), [200], 1),
        ((b"no request\r\n\r\n", PHOTOS), [400], 0),
        ((request("/ticket/photos", "x : y"), PHOTOS), [400], 0),
        ((b"POST /ticket/photos HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n", PHOTOS), [400], 0),
    ],
    ids=["ticket body", "other body", "in a head", "after the last", "after garbage", "after a bad field", "chunk"],
)
@virtual_time
async def test_known_bytes_in_another_place_are_no_request(
    bench: Bench, pieces: tuple[bytes, ...], expected: list[int], drawn: int
) -> None:
    await answered(bench, PHOTOS)
    assert is_known(bench, PHOTOS)
    asked = len(bench.issuer.asked)
    assert statuses(await answered(bench, *pieces)) == expected
    assert len(bench.issuer.asked) - asked == drawn


@pytest.mark.parametrize("bench", [["secret-secret-secret"]], indirect=True)
@virtual_time
async def test_a_token_is_checked_each_time(bench: Bench) -> None:
    right = request("/ticket/photos", "authorization: Bearer secret-secret-secret")
    wrong = request("/ticket/photos", "authorization: Bearer secret-secret-secres")
    for _ in range(2):
        assert statuses(await answered(bench, right)) == [200]
        assert statuses(await answered(bench, wrong)) == [401]
        assert statuses(await answered(bench, PHOTOS)) == [401]


@virtual_time
async def test_its_time_begins_with_it_and_not_with_the_connection(bench: Bench) -> None:
    await answered(bench, PHOTOS)
    assert is_known(bench, PHOTOS)
    bench.issuer.on_issue = lambda: None
    watch = asyncio.create_task(bench.shared.watch())
    client = bench.connect()
    await asyncio.sleep(REQUEST_SECONDS - 1)
    client.send(PHOTOS)
    await asyncio.sleep(REQUEST_SECONDS / 2)
    assert client.transport.calls == []
    bench.issuer.answer()
    await settled()
    assert statuses(client.take()) == [200]
    watch.cancel()


@virtual_time
async def test_a_block_that_has_become_too_large_is_refused(bench: Bench) -> None:
    block = request("/block/photos?size=4096")
    assert statuses(await answered(bench, block)) == [200]
    bench.issuer.largest_block = 4_095  # the ring record was read, and its increment is 16
    assert statuses(await answered(bench, block, request("/block/photos?size=4095"))) == [422, 200]
    bench.issuer.largest_block = 10_000
    assert statuses(await answered(bench, block)) == [200]


def test_a_long_one_is_not_kept() -> None:
    known = KnownHeads()
    head = RequestHead(b"GET", b"/ticket/photos", [], "1.1", keeps_alive=True)
    for length in (LONGEST, LONGEST + 1):
        known.keep_of(b"x" * length, ClientRequest(head, is_complete=True))
    assert known.get(b"x" * LONGEST) is head
    assert known.get(b"x" * (LONGEST + 1)) is None


def test_only_so_many_are_kept() -> None:
    known = KnownHeads()
    for number in range(MANY + 10):
        head = RequestHead(b"GET", b"/ticket/s%d" % number, [], "1.1", keeps_alive=True)
        known.keep_of(b"%d" % number, ClientRequest(head, is_complete=True))
    assert known.get(b"9") is None
    assert known.get(b"10") is not None
    assert known.get(b"%d" % (MANY + 9)) is not None
