"""Requests that the server denies: browsers asking for another site, foreign names that lead here, and guesses."""

import asyncio

import pytest

from app.clients.denials import FREE_GUESSES, PAUSE_SECONDS
from app.common.summed_log import SUM_SECONDS
from app.http.access import names_this_machine
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.http.http_bench import PHOTOS, Bench, now, request, statuses

TOKEN = "a token of this server"
GUESS = request("/ticket/photos", "authorization: Bearer a guess at the token")
RIGHT = request("/ticket/photos", f"authorization: Bearer {TOKEN}")


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("sec-fetch-site: cross-site", 403),
        ("Sec-Fetch-Site: CROSS-SITE ", 403),
        ("Sec-Fetch-Site: cross-site\r\nsec-fetch-site: none", 403),
        ("Sec-Fetch-Site: cross-site, none", 403),
        ("sec-fetch-site: same-origin", 200),
        ("sec-fetch-site: same-site", 200),
        ("sec-fetch-site: none", 200),
    ],
)
@pytest.mark.parametrize("target", ["/ticket/photos", "/block/photos?size=3"])
@virtual_time
async def test_a_browser_that_asks_for_another_site_draws_nothing(
    bench: Bench, target: str, header: str, status: int
) -> None:
    bench.issuer.on_issue = lambda: asyncio.get_running_loop().call_soon(bench.issuer.answer)
    for _ in range(2):  # the second one reads like the first
        assert statuses(await bench.connect().ask(request(target, header))) == [status]
    assert len(bench.issuer.asked) == (2 if status == 200 else 0)
    assert bench.metrics.denials == ({"tickets": 2} if status == 403 else {})


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:8000", "10.1.2.3", "LocalHost:80", None]
)
def test_a_host_that_is_this_machine(host: str | None) -> None:
    assert names_this_machine(None if host is None else host.encode())


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil", "", "[x]"]
)
def test_a_host_that_may_be_anybody(host: str) -> None:
    assert not names_this_machine(host.encode())


@pytest.mark.parametrize("bench", [[TOKEN]], indirect=True)
@virtual_time
async def test_guesses_wait_and_nobody_else_does(bench: Bench) -> None:
    bench.issuer.on_issue = lambda: asyncio.get_running_loop().call_soon(bench.issuer.answer)
    began = now()
    guessing = [bench.connect() for _ in range(FREE_GUESSES + 30)]
    for client in guessing:
        client.send(GUESS)
    await settled()
    assert sum(bool(client.take()) for client in guessing) == FREE_GUESSES
    assert statuses(await bench.connect().ask(RIGHT)) == [200]
    assert statuses(await bench.connect().ask(PHOTOS)) == [401]  # it held no token: no guess
    assert now() - began < PAUSE_SECONDS / 2
    await asyncio.sleep(PAUSE_SECONDS)
    assert sum(statuses(client.take()) == [401] for client in guessing) == 30
    assert bench.outcomes() == {("ticket", "denied"): FREE_GUESSES + 31, ("ticket", "ok"): 1}


@pytest.mark.parametrize("bench", [[TOKEN]], indirect=True)
@virtual_time
async def test_a_client_that_goes_while_its_guess_waits_is_forgotten(bench: Bench) -> None:
    clients = [bench.connect() for _ in range(FREE_GUESSES + 1)]
    for client in clients:
        client.send(GUESS)
    clients[-1].transport.lose(None, "lost")
    await asyncio.sleep(2 * PAUSE_SECONDS)
    assert bench.outcomes() == {("ticket", "denied"): FREE_GUESSES}
    assert clients[-1].take() == b""


@pytest.mark.parametrize("bench", [[TOKEN]], indirect=True)
@virtual_time
async def test_the_log_has_a_line_a_minute(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def lines() -> list[dict[str, object]]:
        return [record.__dict__["fields"] for record in caplog.records if record.message == "denied"]

    client = bench.connect()
    for _ in range(500):
        await client.ask(PHOTOS)
    assert lines() == [{"tickets": 1, "last_client": "192.0.2.1", "last_token": "none"}]
    await asyncio.sleep(SUM_SECONDS + 1)
    assert lines()[1:] == [{"tickets": 499, "last_client": "192.0.2.1", "last_token": "none"}]
    await asyncio.sleep(3 * SUM_SECONDS)
    assert len(lines()) == 2
    await bench.connect().ask(PHOTOS)
    assert len(lines()) == 3
