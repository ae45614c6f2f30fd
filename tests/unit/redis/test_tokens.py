"""Tokens over the Redis protocol: who may send which command, what is shown of a token, and guesses."""

import asyncio

import pytest
from pydantic import SecretStr

from app.clients.denials import FREE_GUESSES, PAUSE_SECONDS
from tests.fakes.virtual_time import virtual_time
from tests.unit.redis.redis_bench import INCR, NO_TOKEN, PING, WRONG, Bench, command


@virtual_time
async def test_without_a_token_little_is_answered() -> None:
    bench = Bench("secret-token-of-16")
    client = bench.connect()
    for refused in (INCR, command("TICKET.BLOCK", "photos", "1"), command("EXISTS", "photos"), command("MULTI")):
        assert await client.ask(refused) == NO_TOKEN
    assert await client.ask(command("INFO") + command("CLIENT", "ID")) == NO_TOKEN * 2
    assert await client.ask(PING + command("RESET")) == b"+PONG\r\n+RESET\r\n"
    assert (await client.ask(command("HELLO", "3"))).startswith(b"%7\r\n")
    assert await client.ask(command("QUIT")) == b"+OK\r\n"
    assert bench.issuer.asked == []
    assert bench.outcomes() == {("ticket", "denied"): 1, ("block", "denied"): 1}
    assert bench.metrics.denials == {"tickets": 2, "reading": 4}


@virtual_time
async def test_an_unknown_command_of_a_stranger_closes_the_connection() -> None:
    bench = Bench("secret-token-of-16")
    stranger, guest = bench.connect(), bench.connect()
    assert (await stranger.ask(PING + command("NOSUCH") + PING)).startswith(b"+PONG\r\n-ERR unknown command 'NOSUCH'")
    assert stranger.transport.calls == ["close"]
    assert await guest.ask(command("AUTH", "secret-token-of-16") + command("NOSUCH") + PING) == (
        b"+OK\r\n-ERR unknown command 'NOSUCH', with args beginning with: \r\n+PONG\r\n"
    )


@virtual_time
@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        ("*", 4), ("save", 1), ("SAVE", 1), ("s*e", 1), ("*a*", 4), ("*a*s*", 2), ("a*d*o*y", 1), ("*s", 2),
        ("sa*ve", 1), ("sav*ve", 0), ("", 0), ("**", 4), ("?ave", 0), ("*" * 64, 4), ("databases*s", 0),
        ("d*ases", 1), ("x*", 0),
    ],
)  # fmt: skip
async def test_config_get_takes_a_name_or_stars(patterns: str, found: int) -> None:
    given = await Bench().connect().ask(command("CONFIG", "GET", patterns))
    assert given.startswith(b"*%d\r\n" % (2 * found)), given


@virtual_time
@pytest.mark.parametrize(
    "words",
    [
        ("AUTH", "secret-token-of-16"),
        ("AUTH", "default", "secret-token-of-16"),
        ("HELLO", "2", "AUTH", "default", "secret-token-of-16"),
    ],
)
async def test_a_token_is_shown_once(words: tuple[str, ...]) -> None:
    bench = Bench("secret-token-of-16")
    bench.answers_at_once()
    client = bench.connect()
    assert (await client.ask(command(*words))).startswith((b"+OK\r\n", b"*14\r\n"))
    assert await client.ask(INCR * 2) == b":1\r\n:3\r\n"
    assert await client.ask(command("RESET") + INCR) == b"+RESET\r\n" + NO_TOKEN
    assert "secret" not in repr(client.protocol.session)


@virtual_time
async def test_a_token_that_is_withdrawn_counts_no_more_on_connections_that_are_open() -> None:
    bench = Bench("old-token")
    bench.answers_at_once()
    client = bench.connect()
    assert await client.ask(command("AUTH", "old-token") + INCR) == b"+OK\r\n:1\r\n"
    bench.tokens.replace([SecretStr("new-token"), SecretStr("old-token")], [])
    assert await client.ask(INCR) == b":3\r\n"
    bench.tokens.replace([SecretStr("new-token")], [])
    assert await client.ask(INCR) == NO_TOKEN
    assert await client.ask(command("AUTH", "new-token") + INCR) == b"+OK\r\n:5\r\n"


@virtual_time
async def test_guesses_are_slowed_down() -> None:
    bench = Bench("secret")
    client = bench.connect()
    guess = command("AUTH", "guess")
    assert await client.ask(guess * (FREE_GUESSES + 2) + PING) == WRONG * FREE_GUESSES
    await asyncio.sleep(PAUSE_SECONDS)
    assert client.take() == WRONG + WRONG + b"+PONG\r\n"
    assert bench.metrics.denials["tickets"] == FREE_GUESSES + 2
    await asyncio.sleep(PAUSE_SECONDS)
    client.send(guess * 10 * FREE_GUESSES)
    await asyncio.sleep(1.5 * PAUSE_SECONDS)
    assert client.take().count(WRONG) <= 2 * FREE_GUESSES + 2  # one connection makes no more of them by asking ahead
    client.transport.lose("lost")
    client = bench.connect()
    client.send(guess * (FREE_GUESSES + 1))
    client.transport.lose("lost")
    await asyncio.sleep(2 * PAUSE_SECONDS)
