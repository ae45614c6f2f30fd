"""Real Redis clients draw tickets by the thousand, over the Redis protocol."""

import subprocess
from collections.abc import Callable, Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.harness.pair import Schema
from tests.harness.processes import free_port
from tests.harness.redis_clients import CLIENTS, Wanted
from tests.harness.ticketd import PATIENT, TicketServer

COUNT = 1_000
TOKEN = "user-token-314159"


class Door(TicketServer):
    """A server that speaks the Redis protocol. `given`: every ticket that a client was shown; `unseen`: how many were
    drawn that no client showed."""

    def __init__(self, databases: str | None, token: str | None, **settings: object) -> None:
        self.redis_port = free_port()
        self.token = token
        self.given: list[int] = []
        self.unseen = 0
        tokens = {"TICKETS_TOKENS": token} if token else {}
        super().__init__(databases, settings=PATIENT | {"TICKETS_REDIS_PORT": self.redis_port} | tokens | settings)

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.redis_port, password=self.token)


@pytest.fixture(scope="module", params=[None, TOKEN], ids=["no token", "token"])
def door(request: pytest.FixtureRequest, new_schema: Callable[[], Schema]) -> Iterator[Door]:
    with Door(new_schema().urls, request.param) as server:
        server.wait_ready()
        yield server


def draw_a_thousand(door: Door, name: str, *, pipelined: bool) -> None:
    given = CLIENTS[name](Wanted(door.redis_port, COUNT, pipelined, door.token))
    door.given += given
    door.unseen += 0 if given else COUNT
    assert len(given) == len(set(given)) in (0, COUNT)
    assert len(door.given) == len(set(door.given))


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_draws_a_thousand_tickets(door: Door, name: str) -> None:
    """One by one without a token, pipelined with one."""
    draw_a_thousand(door, name, pipelined=door.token is not None)


@pytest.mark.long
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_draws_a_thousand_tickets_the_other_way(door: Door, name: str) -> None:
    draw_a_thousand(door, name, pipelined=door.token is None)


def test_each_ticket_that_was_drawn_has_reached_one_client(door: Door) -> None:
    """The servers' own count, once all clients have drawn."""
    headers = {"Authorization": f"Bearer {door.token}"} if door.token else {}
    lines = door.get("/metrics", headers=headers).text.splitlines()
    issued = next(line for line in lines if line.startswith('tickets_issued_total{sequence="photos"}'))
    assert float(issued.split()[1]) == len(door.given) + door.unseen
    assert len(door.given) == len(set(door.given))


def test_http_and_redis_draw_from_one_sequence(door: Door) -> None:
    headers = {"Authorization": f"Bearer {door.token}"} if door.token else {}
    with door.client() as client:
        over_redis = [int(client.incr("photos")) for _ in range(20)]
        over_http = [door.get("/ticket/photos", headers=headers).json()["id"] for _ in range(20)]
        last = int(client.execute_command("INCR", "photos"))
    assert len({*over_redis, *over_http, last}) == 41


def test_a_wrong_token_and_none_are_refused() -> None:
    with Door(None, TOKEN) as server:
        server.wait_ready()
        with redis.Redis(port=server.redis_port) as nobody, pytest.raises(redis.AuthenticationError):
            nobody.incr("photos")
        guesser = redis.Redis(port=server.redis_port, password="guess", retry=Retry(NoBackoff(), 0))
        with guesser, pytest.raises(redis.AuthenticationError):
            guesser.incr("photos")
        command = ["redis-cli", "-p", str(server.redis_port), "INCR", "photos"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
        assert answer.strip() == "NOAUTH Authentication required."
        assert TOKEN not in server.log_text()
        assert "guess" not in server.log_text()
