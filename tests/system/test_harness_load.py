"""The load generator records what really happened: held against a small server whose mistakes are known."""

import asyncio
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.harness.load import Load, Want
from tests.harness.processes import free_port

pytestmark = pytest.mark.any_engine

Behave = Callable[[int, str], tuple[int, object] | None]


@contextmanager
def a_server(behave: Behave) -> Iterator[tuple[str, int]]:
    """An HTTP server that answers request number n for a path as `behave` says: status and body, None to hang up."""
    port = free_port()
    loop = asyncio.new_event_loop()
    numbers = itertools.count(1)
    ready = threading.Event()
    ending = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                answer = behave(next(numbers), head.split()[1].decode())
                if answer is None:
                    break
                body = json.dumps(answer[1]).encode()
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (answer[0], len(body), body))
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionResetError):
            pass
        finally:
            writer.transport.abort()

    async def main() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", port):
            ready.set()
            await ending.wait()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield "127.0.0.1", port
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(10)
        loop.close()


def ticket(number: int) -> tuple[int, object]:
    return 200, {"sequence": "photos", "id": number, "id_str": str(number)}


def test_every_answer_of_every_client_is_recorded() -> None:
    given: list[int] = []

    def behave(number: int, path: str) -> tuple[int, object]:
        assert path == "/ticket/photos"
        given.append(number)
        return ticket(number)

    with a_server(behave) as address, Load([address], clients=8) as load:
        load.run_until_tickets(500)
        load.stop()
    load.result.check()
    assert sorted(i for answer in load.result.answers for i in answer.ids) == given
    assert load.result.tickets("photos") == load.result.tickets() == len(given) >= 500
    assert load.result.statuses() == {200: len(given)}
    assert 0 < load.result.p99() <= load.result.slowest() < 5


def test_a_server_that_repeats_a_ticket_is_found_out() -> None:
    with a_server(lambda number, _: ticket(number if number != 40 else 20)) as address, Load([address]) as load:
        load.run_until_tickets(100)
    with pytest.raises(AssertionError, match="duplicate in photos: 20 handed out twice"):
        load.result.check()


def test_a_server_that_goes_back_is_found_out() -> None:
    with a_server(lambda number, _: ticket(2_000_000 - 2 * number)) as address, Load([address], clients=1) as load:
        load.run_until_tickets(5)
    with pytest.raises(AssertionError, match="disorder in photos"):
        load.result.check()


def test_errors_lost_connections_and_late_answers_are_failures() -> None:
    def behave(number: int, path: str) -> tuple[int, object] | None:
        if number % 10 == 3:
            return None
        return (503, {"title": "no ticket database"}) if number % 10 == 7 else ticket(number)

    with a_server(behave) as address, Load([address, ("127.0.0.1", free_port())], clients=2) as load:
        load.run_until_tickets(50)
    assert load.result.statuses().keys() == {0, 200, 503}
    errors = " ".join({answer.error for answer in load.result.failures()})
    assert "IncompleteReadError" in errors or "ConnectionReset" in errors
    assert "ConnectionRefusedError" in errors
    assert "no ticket database" in errors
    load.result.check()


def test_counts_and_blocks_are_read_and_a_body_that_contradicts_itself_is_malformed() -> None:
    def behave(number: int, path: str) -> tuple[int, object]:
        start = 1000 * number + 1
        if path == "/block/photos?size=400":
            return 200, {"sequence": "photos", "first": start, "first_str": str(start), "step": 2, "size": 400}
        assert path == "/ticket/photos?count=3"
        ids = [start, start + 2, start + 4]
        strings = [str(i) for i in ids] if number != 30 else ["1", "2", "3"]
        return 200, {"sequence": "photos", "count": 3, "ids": ids, "ids_str": strings}

    mix = [Want("photos", "count", 3, weight=1000), Want("photos", "block", 400, weight=500)]
    with a_server(behave) as address, Load([address], clients=3, mix=mix) as load:
        load.run_until_tickets(29)
        load.stop()
    kinds = {(answer.kind, len(answer.ids)) for answer in load.result.answers if answer.ids}
    assert kinds == {("count", 3), ("block", 400)}
    assert all(violation.promise == "malformed" for violation in load.result.violations())
