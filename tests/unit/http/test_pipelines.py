"""Any series of requests, cut into any pieces, is answered as one request after the other."""

import asyncio
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from app.common.errors import OutOfTime
from tests.fakes.virtual_time import run
from tests.unit.http.http_bench import (
    ALBUMS,
    BLOCK,
    OTHER,
    PHOTOS,
    POST,
    REFUSED,
    TEXT,
    UPGRADE,
    Bench,
    Client,
    chunked,
    request,
    undated,
)

SERIES = [
    PHOTOS, PHOTOS, ALBUMS, TEXT, POST, BLOCK, UPGRADE, REFUSED, OTHER, OTHER, b"\r\n", b"\r\n\r\n" + PHOTOS,
    request("/ticket/photos?count=2"),
    request("/ticket/photos?count=1000"),
    request("/ticket/photos?count=0"),
    request("/ticket/ph%25d"),
    request("/ticket/photos", method="HEAD"),
    request("/ticket/photos", method="PUT", body=PHOTOS),
    request("/ticket/albums", "connection: keep-alive"),
    request("/ticket/albums", method="POST", body=PHOTOS + PHOTOS),
    chunked("/ticket/albums", b"{}", PHOTOS, trailers=b"x: y\r\n"),
    request("/other", method="HEAD"),
    request("/other", method="POST", body=PHOTOS),
    request("/other", "connection: upgrade", "upgrade: h2c"),
    request("/other", "expect: 100-continue", method="PUT", body=b"{}"),
    chunked("/other", b"hello", PHOTOS, b"x" * 3_000, trailers=b"x: y\r\n"),
    request("/other", method="PUT", body=ALBUMS * 100),
    request("/early", method="PUT", body=ALBUMS * 100),
    chunked("/early", ALBUMS, ALBUMS),
    request("/parts"),
]  # fmt: skip
LAST = [
    b"",
    request("/ticket/photos", "connection: close") + PHOTOS,
    request(version="1.0") + PHOTOS,
    request("/other", "connection: close") + OTHER,
    request("/crash"),
    request("/half"),
    request("/silent"),
    b"no request\r\n\r\n",
    b"GET /ticket/photos HTTP/1.1\r\nx : y\r\n\r\n",
    request("/ticket/photos", "transfer-encoding: gzip", method="POST"),
    request("/ticket/caf\u00e9"),
    request("/ticket/photos", "x: " + "y" * 20_000),
    chunked("/wait", b"hello")[:-4] + b"no chunk",
    request("/other", "connection: upgrade", "upgrade: h2c", method="POST", body=PHOTOS),
    PHOTOS[:20],
    request("/wait", method="POST", body=b"xyz")[:-1],
]


class Scenario:
    """A bench whose requests are answered after a while, as the chance will have it; every fourth one is refused."""

    def __init__(self, chance: Random) -> None:
        self.bench = Bench()
        self.chance = chance
        self.number = 0
        self.bench.issuer.on_issue = self._issued

    def _issued(self) -> None:
        pause = self.chance.choice([None, 0, 0, 0.001, 0.02])
        if pause is None:
            self._settle()
        else:
            asyncio.get_running_loop().call_later(pause, self._settle)

    def _settle(self) -> None:
        issuer = self.bench.issuer
        self.number += 1
        if self.number % 4 == 0:
            issuer.refuse(OutOfTime())
        else:
            issuer.answer()


async def answers_to(scenario: Scenario, pieces: list[bytes], pauses: list[float], *, slow_reader: bool) -> bytes:
    """What comes of these pieces; as from a real transport nothing comes while reading is paused."""
    client = scenario.bench.connect()
    if slow_reader:
        client.transport.on_write = lambda: read_later(client)
    for piece in pieces:
        await asyncio.sleep(scenario.chance.choice(pauses))
        for _ in range(1_000):
            if client.transport.reading or client.transport.ended:
                break
            await asyncio.sleep(0.1)
        if not client.transport.ended:
            client.send(piece)
    await asyncio.sleep(5)
    answers = client.take()
    client.transport.abort()
    scenario.bench.app.gate.set()
    await asyncio.sleep(1)
    assert scenario.bench.metrics.in_flight == 0
    return undated(answers)


def read_later(client: Client) -> None:
    client.protocol.pause_writing()
    asyncio.get_running_loop().call_later(0.01, client.protocol.resume_writing)


@settings(max_examples=300)
@given(
    series=st.lists(st.sampled_from(SERIES), max_size=12),
    last=st.sampled_from(LAST),
    cuts=st.one_of(st.just(set[int]()), st.sets(st.integers(1, 20_000), max_size=6), st.sets(st.integers(1, 600))),
    seed=st.integers(0, 2**32),
)
def test_any_series_in_any_pieces_is_answered_as_one_at_a_time(
    series: list[bytes], last: bytes, cuts: set[int], seed: int
) -> None:
    data = b"".join([*series, last])
    places = sorted({0, len(data)} | {cut for cut in cuts if cut < len(data)})
    pieces = [data[begin:end] for begin, end in pairwise(places)]

    async def scenario() -> None:
        wanted = await answers_to(Scenario(Random(seed)), [*series, last], [5], slow_reader=False)
        for slow_reader in (False, True):
            given = Scenario(Random(seed))
            found = await answers_to(given, pieces, [0, 0, 0.01, 0.1], slow_reader=slow_reader)
            assert found == wanted

    run(scenario())
