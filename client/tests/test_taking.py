"""Tickets from servers and from memory, with Tickets and with AsyncTickets: what is asked for, and what comes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from lying_server import Client, Honest, Said, Serve, http, problem, until
from ticketd_client import AsyncTickets, InvalidRequest, TicketError, Tickets
from ticketd_client.clock import passed

PROTOCOLS = pytest.mark.parametrize("protocol", ["http", "redis"])
ONE_REQUEST: list[tuple[str, tuple[Any, ...], int, str, str]] = [
    ("take", ("photos",), 1, "POST /ticket/photos", "INCR photos"),
    ("take", ("likes", 7), 1, "POST /ticket/likes?key=7", "TICKET.TAKE likes COUNT 1 KEY 7"),
    ("take_many", ("photos", 3), 3, "POST /ticket/photos?count=3", "TICKET.TAKE photos COUNT 3"),
    ("take_many", ("photos", 9_000), 9_000, "POST /block/photos?size=9000", "TICKET.BLOCK photos 9000"),
]


@PROTOCOLS
def test_without_prefetch_each_call_is_one_request(serve: Serve, either: Client, protocol: str) -> None:
    for call, given, count, *asked in ONE_REQUEST:
        server = serve(Honest())
        got = getattr(either(server.over(protocol), prefetch=0), call)(*given)
        assert (got if call == "take_many" else [got]) == list(range(1, 1 + 2 * count, 2))
        assert server.asked == asked[protocol == "redis" :][:1]


@PROTOCOLS
@pytest.mark.parametrize(("prefetch", "most"), [(1_000, 200), (100, 2_000)])
def test_with_prefetch_most_calls_are_served_from_memory_which_holds_no_more(
    serve: Serve, either: Client, protocol: str, prefetch: int, most: int
) -> None:
    tickets, got = either(serve(honest := Honest()).over(protocol), prefetch=prefetch), set[int]()
    while len(got) < 5_000:
        got.add(tickets.take("photos"))
        assert honest.drawn - len(got) <= prefetch
    assert len(got.union(tickets.take_many("photos", 25_000))) == 30_000
    assert len(honest.calls) < most
    assert all("block" in call.lower() for call in honest.calls)
    assert tickets.take_many("photos", 0) == []


@PROTOCOLS
def test_a_kind_without_blocks_costs_one_request_a_call(serve: Serve, either: Client, protocol: str) -> None:
    honest = Honest()
    refusal = problem(409, "has no blocks") if protocol == "http" else b"-ERR likes is a kind which has no blocks\r\n"
    server = serve(lambda asked: refusal if "block" in asked.lower() else honest(asked))
    tickets = either(server.over(protocol))
    assert [tickets.take("likes") for _ in range(3)] == [1, 3, 5]
    assert len(set(tickets.take_many("likes", 1_500))) == 1_500
    assert len(honest.calls) == 3 + 2
    assert len(server.asked) - len(honest.calls) <= 2  # it learns once that there are none


@pytest.mark.parametrize("long", ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "12345678901234567890123456789012"])
def test_ids_of_more_than_63_bits_are_strings(serve: Serve, either: Client, long: str) -> None:
    bulk = b"$%d\r\n%b\r\n" % (len(long), long.encode())
    server = serve(lambda asked: bulk if "INCR" in asked else http({"sequence": "likes", "id": long, "id_str": long}))
    assert either(server.url, prefetch=0).take("likes") == long
    assert either(server.redis_url, prefetch=0).take("likes") == long


@PROTOCOLS
def test_where_the_increment_is_large_blocks_are_smaller(serve: Serve, either: Client, protocol: str) -> None:
    honest = Honest(step=100)

    def answer(asked: str) -> Said:
        if int(asked.replace("=", " ").split()[-1]) <= 655:
            return honest(asked)
        return problem(422, "1 to 655") if protocol == "http" else b"-ERR a block's size has to be from 1 to 655\r\n"

    server = serve(answer)
    assert len(set(either(server.over(protocol), prefetch=0).take_many("photos", 2_000))) == 2_000
    assert len(server.asked) < 12


def test_a_sequence_may_be_asked_for_in_any_case_and_by_any_name(serve: Serve, either: Client) -> None:
    """Names are compared without case, and the server says which are none."""
    assert either(serve(Honest(changes={"sequence": "photos"})).url, prefetch=0).take("Photos") == 1
    server = serve(lambda _: problem(422, "no name"))
    with pytest.raises(InvalidRequest, match="no name"):
        either(server.url, prefetch=0).take("a/b?c#d e\r\nX: ä")
    assert server.asked == ["POST /ticket/a%2Fb%3Fc%23d%20e%0D%0AX%3A%20%C3%A4"]


NO_URLS: list[Any] = [[], "ftp://host", "http://", "http://h:port", "http://h:0", "redis://h/1", "http://h/?x=1"]
WRONG: list[tuple[Any, dict[str, Any]]] = [
    *((urls, {}) for urls in (*NO_URLS, "http://user:hidden@h", "redis://user:hidden@h", "htp://u:hidden@h")),
    *(("http://h", options) for options in ({"prefetch": -1}, {"timeout": 0}, {"max_age": True})),
    *(("http://h", {"token": token}) for token in ("", "hidden\n", "hidden word")),
]


@pytest.mark.parametrize(("urls", "options"), WRONG)
def test_a_client_that_cannot_work_is_refused_without_a_secret(urls: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Tickets(urls, **options)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TicketError)
    assert "hidden" not in str(caught.value) + repr(caught.value)


@PROTOCOLS
def test_a_call_that_cannot_be_is_refused_and_not_sent(serve: Serve, either: Client, protocol: str) -> None:
    server = serve(Honest())
    tickets = either(server.over(protocol))
    for sequence, key in (("", None), ("\ud800", None), (7, None), ("photos", -1), ("photos", 2**63), ("photos", "7")):
        with pytest.raises(InvalidRequest):
            tickets.take(sequence, key)
    for count in (-1, True, 1.0):
        with pytest.raises(InvalidRequest):
            tickets.take_many("photos", count)
    assert not server.asked


# --- memory: how many are fetched ahead, when, and how old they get


def test_a_low_rate_keeps_few_in_memory(serve: Serve, client: Client) -> None:
    tickets = client(serve(honest := Honest()).url)
    for _ in range(20):
        tickets.take("photos")
        time.sleep(0.05)
    assert honest.drawn < 20 + 100


def test_the_next_block_is_fetched_before_anybody_waits(serve: Serve, either: Client) -> None:
    tickets = either(serve(honest := Honest()).url, prefetch=200)
    used = 1_000
    for _ in range(used):
        tickets.take("photos")
    honest.go_on.clear()  # from here on nothing comes but what is under way

    def asks_while_nobody_waits() -> bool:
        nonlocal used
        if honest.drawn > used:  # this many are in memory
            tickets.take("photos")
            used += 1
        return len(honest.calls) > honest.answered

    until(asks_while_nobody_waits)
    honest.go_on.set()


@pytest.mark.parametrize("call", ["take", "take_many"])
def test_after_max_age_a_ticket_is_dropped_though_the_machine_was_suspended(
    serve: Serve, either: Client, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    assert passed.args == (time.CLOCK_BOOTTIME,)  # type: ignore[attr-defined]  # a `partial`, on Linux
    later = 0
    for module in ("supply", "tickets"):
        monkeypatch.setattr(f"ticketd_client.{module}.passed", lambda: passed() + later)
    tickets = either(serve(honest := Honest()).url, prefetch=100, max_age=1_800)
    tickets.take("photos")
    ahead = honest.next
    later = 900
    assert tickets.take("photos") == 3
    later = 1_801
    assert min([tickets.take("photos")] if call == "take" else tickets.take_many("photos", 50)) >= ahead


# --- asyncio alone


@pytest.mark.parametrize("prefetch", [100, 0])
def test_tasks_and_loops_share_no_ticket_whatever_is_cancelled(serve: Serve, prefetch: int) -> None:
    """One client in two loops, one after the other. A task that is cancelled loses its tickets."""
    tickets = AsyncTickets([serve(Honest()).url], prefetch=prefetch, timeout=60)
    got: list[int] = []

    async def take() -> None:
        got.extend(await tickets.take_many("photos", 7))

    async def run() -> None:
        for number in range(20):
            tasks = [asyncio.create_task(take()) for _ in range(8)]
            await asyncio.sleep(0.001 * (number % 5))
            for task in tasks[::2]:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert not [each for each in ended if isinstance(each, Exception)]

    asyncio.run(run())
    asyncio.run(run())
    asyncio.run(tickets.close())
    assert len(got) == len(set(got)) >= 2 * 20 * 4 * 7
