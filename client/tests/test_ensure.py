"""`ensure`: the PUT that makes a sequence."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from typing import Any

import pytest

from lying_server import Honest, LyingServer, Says, Serve, problem
from redis_door import RedisDoor
from ticketd_client import (
    AsyncTickets,
    InvalidRequest,
    NotAllowed,
    SequenceConflict,
    TicketError,
    Tickets,
    TicketsUnavailable,
)

MADE = {"sequence": "photos", "bits": 64, "ceiling": 2**63 - 1, "ceiling_str": str(2**63 - 1)}


def sent(server: LyingServer) -> tuple[bytes, Any]:
    """The first line and the body of the one request."""
    (request,) = server.requests
    head, _, body = request.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0], json.loads(body)


@pytest.mark.parametrize("status", [200, 201])
def test_the_answer_is_a_dict_and_large_numbers_stay_whole(serve: Serve, status: int) -> None:
    server = serve(lambda _: Says(MADE, status))
    with Tickets(server.url) as tickets:
        assert tickets.ensure("photos", bits=64, start=2**53 + 1) == MADE
    assert sent(server) == (b"PUT /sequence/photos HTTP/1.1", {"bits": 64, "start": 2**53 + 1})


def test_it_is_awaited(serve: Serve) -> None:
    server = serve(lambda _: Says(MADE, 201))

    async def run() -> dict[str, Any]:
        async with AsyncTickets(server.url) as tickets:
            return await tickets.ensure("photos", kind="instagram", epoch=1_314_220_021_721, shards=2_000)

    assert asyncio.run(run()) == MADE
    assert sent(server)[1] == {"kind": "instagram", "epoch": 1_314_220_021_721, "shards": 2_000}


@pytest.mark.parametrize(
    ("status", "kind"), [(409, SequenceConflict), (401, NotAllowed), (403, NotAllowed), (422, InvalidRequest)]
)
def test_a_refusal_has_a_name_of_its_own(serve: Serve, status: int, kind: type[TicketError]) -> None:
    first, second = serve(lambda _: problem(status, "so it is")), serve(lambda _: Says(MADE))
    with Tickets([first.url, second.url]) as tickets, pytest.raises(kind, match=f"{status}: so it is"):
        tickets.ensure("photos")
    assert not second.requests


def test_it_fails_over_and_ends_with_its_timeout(serve: Serve) -> None:
    busy, silent = serve(lambda _: problem(503, "growing")), serve(lambda _: Says({}, after=60))
    good = serve(lambda _: Says(MADE))
    with Tickets([busy.url, silent.url, good.url], timeout=1.0) as tickets:
        assert tickets.ensure("photos") == MADE
    with Tickets([busy.url, silent.url], timeout=0.4) as tickets, pytest.raises(TicketsUnavailable) as caught:
        tickets.ensure("photos")
    assert "photos is not made: " in str(caught.value)
    assert "503: growing" in str(caught.value)


@pytest.mark.parametrize("lie", [{}, {"sequence": "others"}, {"sequence": 7}, [1]])
def test_a_lie_is_refused(serve: Serve, lie: object) -> None:
    with Tickets(serve(lambda _: Says(lie)).url, timeout=0.3) as tickets, pytest.raises(TicketsUnavailable):
        tickets.ensure("photos")


def test_a_server_that_folds_names_may_answer_with_the_folded_one(serve: Serve) -> None:
    with Tickets(serve(lambda _: Says({"sequence": "photos"})).url) as tickets:
        assert tickets.ensure("Photos") == {"sequence": "photos"}


@pytest.mark.parametrize("wrong", [{"bits": {1}}, {"start": float("nan")}, {"start": float("inf")}])
def test_what_is_no_json_is_not_sent(serve: Serve, wrong: dict[str, Any]) -> None:
    server = serve(Honest())
    with Tickets(server.url) as tickets, pytest.raises(InvalidRequest, match="cannot be sent"):
        tickets.ensure("photos", **wrong)
    assert not server.requests


def test_over_redis_it_says_at_once_that_it_takes_http(serve: Serve) -> None:
    with RedisDoor() as door:
        threading.Thread(target=door.serve_forever, args=(0.02,), daemon=True).start()
        with Tickets(door.url, timeout=30) as tickets:
            with pytest.raises(TicketError, match="that takes an http:// URL") as caught:
                tickets.ensure("photos")
            assert [answer.url for answer in caught.value.answers] == [door.url]
            with pytest.raises(TicketError, match="that takes an http:// URL"):
                tickets.bump("photos", 1)
            assert not door.commands
        good = serve(lambda _: Says(MADE))
        with Tickets([door.url, good.url]) as tickets:
            assert [tickets.ensure("photos") for _ in range(3)] == [MADE] * 3
        with socket.socket() as dead:
            dead.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{dead.getsockname()[1]}"
            with Tickets([door.url, url], timeout=0.3) as tickets, pytest.raises(TicketsUnavailable) as caught:
                tickets.ensure("photos")
            assert "that takes an http:// URL" in str(caught.value)
            assert f"{url}: no answer (Connection refused)" in str(caught.value)
        assert not door.commands
        door.shutdown()
