"""Connections of the Redis protocol whose commands are gathered into requests, and what has been asked for."""

from app.redis.gathering import FEW_CLIENTS
from tests.fakes.virtual_time import settled
from tests.unit.redis.redis_bench import INCR, Bench, Client


def asked(bench: Bench) -> list[tuple[str, int]]:
    return [(request.sequence, request.count) for request in bench.issuer.waiting]


def connected(bench: Bench, count: int) -> list[Client]:
    return [bench.connect() for _ in range(count)]


MANY = FEW_CLIENTS + 4


async def answered_together(bench: Bench, clients: list[Client]) -> None:
    """Each of them has had a ticket, all of one request."""
    for client in clients:
        client.send(INCR)
    await settled()
    assert asked(bench) == [("photos", len(clients))]
    bench.issuer.answer()
    bench.issuer.waiting.clear()
