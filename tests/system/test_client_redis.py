"""The Python client over redis://, on real ticket servers: plain and with tokens, killed and frozen under it."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from ticketd_client import (
    AsyncTickets,
    NoSuchSequence,
    NotAllowed,
    SequenceExhausted,
    Tickets,
    TicketsUnavailable,
)

from tests.harness.pair import Schema
from tests.harness.processes import free_port, wait_until
from tests.harness.ticketd import PATIENT, TicketServer

TOKEN = "user-token-314159"
TIMEOUT = 20.0
SHORT = 4.0


class Door(TicketServer):
    """A server that speaks the Redis protocol as well."""

    def __init__(self, databases: str, token: str | None) -> None:
        self.redis_port = free_port()
        tokens = {"TICKETS_TOKENS": token} if token else {}
        super().__init__(databases, settings={**PATIENT, "TICKETS_REDIS_PORT": self.redis_port, **tokens})
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def redis_url(self, token: str | None = None) -> str:
        return f"redis://{f':{token}@' if token else ''}127.0.0.1:{self.redis_port}"

    def issued(self, sequence: str) -> float:
        """How many tickets of it this server has handed out."""
        lines = self.get("/metrics", headers=self.headers).text.splitlines()
        return sum(float(line.split()[1]) for line in lines if f'tickets_issued_total{{sequence="{sequence}"}}' in line)


@pytest.fixture(scope="module", params=[None, TOKEN], ids=["no token", "token"])
def doors(request: pytest.FixtureRequest, new_schema: Callable[[], Schema]) -> Iterator[tuple[list[Door], str | None]]:
    """Two servers on one ring, and the token that they want."""
    databases = new_schema().urls
    with ExitStack() as stack:
        servers = [stack.enter_context(Door(databases, request.param)) for _ in range(2)]
        for server in servers:
            server.wait_ready()
        yield servers, request.param


@pytest.mark.parametrize("prefetch", [200, 0])
def test_tickets_one_by_one_and_many(doors: tuple[list[Door], str | None], prefetch: int) -> None:
    servers, token = doors
    before = sum(server.issued("photos") for server in servers)
    urls = [servers[0].redis_url(token), servers[1].redis_url()]  # a token of its own, and the client's
    with Tickets(urls, token=token, prefetch=prefetch, timeout=TIMEOUT) as tickets:
        got = [tickets.take("photos") for _ in range(300)]
        got += tickets.take_many("photos", 5) + tickets.take_many("photos", 3_000)
        got += [int(servers[0].get("/ticket/photos", headers=servers[0].headers).json()["id"]) for _ in range(3)]
    assert all(type(ticket) is int for ticket in got)
    assert len(got) == len(set(got)) == 3_308
    drawn = sum(server.issued("photos") for server in servers) - before
    assert 3_308 <= drawn <= 3_308 + 2 * prefetch


@pytest.mark.parametrize("prefetch", [200, 0])
def test_tickets_in_a_loop(doors: tuple[list[Door], str | None], prefetch: int) -> None:
    servers, token = doors
    urls = [server.redis_url() for server in servers]

    async def run() -> list[int]:
        async with AsyncTickets(urls, token=token, prefetch=prefetch, timeout=TIMEOUT) as tickets:
            got = await asyncio.gather(*(tickets.take("photos") for _ in range(200)))
            parts = await asyncio.gather(*(tickets.take_many("photos", n) for n in (5, 1_500)))
            return [*got, *parts[0], *parts[1]]

    got = asyncio.run(run())
    assert len(got) == len(set(got)) == 1_705


def test_over_http_and_redis_at_once(doors: tuple[list[Door], str | None]) -> None:
    servers, token = doors
    with Tickets([servers[0].url, servers[1].redis_url()], token=token, prefetch=0, timeout=TIMEOUT) as tickets:
        got = [tickets.take("photos") for _ in range(40)] + tickets.take_many("photos", 2_500)
        assert tickets.bump("photos", max(got) + 1_000)["above"] == max(got) + 1_000
        assert tickets.take("photos") > max(got) + 1_000
    assert len(got) == len(set(got))


def test_kinds_without_blocks_and_shards(doors: tuple[list[Door], str | None]) -> None:
    servers, token = doors
    for name, kind in (("likes", "instagram"), ("flakes", "flake"), ("uuids", "uuid7")):
        reply = servers[0].put(f"/sequence/{name}", headers=servers[0].headers, json={"kind": kind})
        assert reply.status in (200, 201)
    with Tickets(servers[0].redis_url(), token=token, timeout=TIMEOUT) as tickets:
        likes = [tickets.take("likes") for _ in range(3)] + tickets.take_many("likes", 3)
        by_key = [tickets.take("likes", key=31_341), *tickets.take_many("likes", 2, key=31_341)]
        longer = [tickets.take(name) for name in ("flakes", "uuids") for _ in range(2)]
    assert len(set(likes + by_key)) == 9
    assert all(type(each) is int for each in likes + by_key)
    assert {each >> 10 & 0x1FFF for each in by_key} == {31_341 % 8_192}
    assert [len(each) for each in longer] == [32, 32, 36, 36]
    assert len(set(longer)) == 4


def test_what_every_server_would_say(doors: tuple[list[Door], str | None]) -> None:
    servers, token = doors
    end = 2**32 - 1
    reply = servers[0].put("/sequence/small", headers=servers[0].headers, json={"bits": 32, "start": end - 10})
    assert reply.status in (200, 201)
    with Tickets([server.redis_url() for server in servers], token=token, prefetch=0, timeout=TIMEOUT) as tickets:
        with pytest.raises(NoSuchSequence, match="no such sequence nobody"):
            tickets.take("nobody")
        got: list[int] = []

        def take_all() -> None:
            while len(got) < 100:
                got.append(tickets.take("small"))

        with pytest.raises(SequenceExhausted):
            take_all()
    assert len(got) == len(set(got)) > 0
    assert max(got) <= end
    hasty = Tickets(servers[0].redis_url(), token=token, timeout=0.3)
    with hasty, pytest.raises(TicketsUnavailable, match="takes an http:// URL"):
        hasty.bump("photos", 10**6)


@pytest.mark.parametrize("doors", [TOKEN], indirect=True, ids=["token"])
@pytest.mark.parametrize("prefetch", [200, 0])
def test_a_wrong_token_and_none_are_refused(doors: tuple[list[Door], str | None], prefetch: int) -> None:
    servers, _ = doors
    urls = [server.redis_url() for server in servers]
    for token in (None, "a-guess"):
        with Tickets(urls, token=token, prefetch=prefetch, timeout=TIMEOUT) as tickets:
            with pytest.raises(NotAllowed) as caught:
                tickets.take("photos")
            assert str(caught.value).startswith("redis://127.0.0.1:")
            assert "a-guess" not in str(caught.value) + repr(caught.value) + repr(tickets)

    async def run() -> None:
        async with AsyncTickets(urls, token="a-guess", prefetch=prefetch, timeout=TIMEOUT) as tickets:
            with pytest.raises(NotAllowed):
                await tickets.take_many("photos", 5)

    asyncio.run(run())
    for server in servers:
        assert TOKEN not in server.log_text()
        assert "a-guess" not in server.log_text()


@pytest.mark.any_engine
@pytest.mark.parametrize("prefetch", [pytest.param(200, marks=pytest.mark.long), 0])
def test_a_server_is_killed_and_another_frozen_under_way(new_schema: Callable[[], Schema], prefetch: int) -> None:
    databases = new_schema().urls
    with Door(databases, TOKEN) as one, Door(databases, TOKEN) as other:
        one.wait_ready()
        other.wait_ready()
        urls = [one.redis_url(), other.redis_url()]
        got: list[int] = []
        slowest = [0.0]
        trouble: list[BaseException] = []
        stop = threading.Event()

        def timed(began: float, more: list[int]) -> None:
            slowest.append(time.monotonic() - began)
            got.extend(more)
            stop.wait(0.002)

        def work(number: int) -> None:
            while not stop.is_set():
                began = time.monotonic()
                timed(began, tickets.take_many("photos", 30) if number % 2 else [tickets.take("photos")])

        async def work_in_a_loop() -> None:
            async with AsyncTickets(urls, token=TOKEN, prefetch=prefetch, timeout=SHORT) as mine:
                while not stop.is_set():
                    began = time.monotonic()
                    timed(began, await mine.take_many("photos", 30))

        def kept(job: Callable[[], None]) -> None:
            try:
                job()
            except BaseException as error:
                trouble.append(error)
                raise

        def more() -> None:
            before = len(got)
            wait_until(lambda: len(got) > before + 1_000 or trouble, 60, "more tickets")
            assert not trouble

        with Tickets(urls, token=TOKEN, prefetch=prefetch, timeout=SHORT) as tickets:
            jobs: list[Callable[[], None]] = [lambda number=number: work(number) for number in range(4)]  # type: ignore[misc]
            jobs.append(lambda: asyncio.run(work_in_a_loop()))
            threads = [threading.Thread(target=kept, args=(job,)) for job in jobs]
            for thread in threads:
                thread.start()
            try:
                more()
                one.kill()
                more()
                one.start()
                one.wait_ready()
                more()
                other.freeze()
                more()
                other.thaw()
                more()
            finally:
                other.thaw()
                stop.set()
                for thread in threads:
                    thread.join(30)
        assert not trouble
    assert len(got) == len(set(got)) > 5_000
    assert max(slowest) < SHORT + 0.5
