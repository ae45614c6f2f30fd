"""Redis clients as programs use them: each draws a number of tickets of `photos` and returns them."""

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import redis
import redis.asyncio

from tests.harness.ticketd import REPOSITORY

NODE_MODULES = REPOSITORY / ".venv" / "node" / "node_modules"
PIPELINE = 100


@dataclass(frozen=True)
class Wanted:
    """The tickets that a client draws, and the server that it asks."""

    port: int
    count: int
    pipelined: bool
    token: str | None


Draw = Callable[[Wanted], list[int]]


def with_redis_cli(wanted: Wanted) -> list[int]:
    """Pipelined, redis-cli does not show its replies: it counts them, and nothing is returned."""
    command = ["redis-cli", "-p", str(wanted.port)]
    environment = os.environ | ({"REDISCLI_AUTH": wanted.token} if wanted.token else {})
    if wanted.pipelined:
        answer = _run([*command, "--pipe"], environment, "INCR photos\r\n" * wanted.count)
        assert f"errors: 0, replies: {wanted.count}" in answer, answer
        return []
    return [int(line) for line in _run([*command, "-r", str(wanted.count), "INCR", "photos"], environment).split()]


def with_redis_benchmark(wanted: Wanted) -> list[int]:
    """It shows no reply, and ends at the first error."""
    command = ["redis-benchmark", "-p", str(wanted.port), "-n", str(wanted.count), "-c", "20", "-q"]
    command += ["-a", wanted.token] if wanted.token else []
    command += ["-P", "10"] if wanted.pipelined else []
    answer = _run([*command, "INCR", "photos"], dict(os.environ))
    assert "requests per second" in answer, answer
    return []


def with_redis_py(version: int, wanted: Wanted) -> list[int]:
    """redis-py, with and without MULTI."""
    found: list[int] = []
    with redis.Redis(port=wanted.port, password=wanted.token, protocol=version) as client:
        while wanted.pipelined and len(found) < wanted.count:
            pipeline = client.pipeline(transaction=len(found) % (2 * PIPELINE) == 0)
            for _ in range(PIPELINE):
                pipeline.incr("photos")
            found += pipeline.execute()
        while len(found) < wanted.count:
            found.append(int(client.incr("photos")))
    return found


def with_asyncio(version: int, wanted: Wanted) -> list[int]:
    """redis-py's asynchronous half."""

    async def draw() -> list[int]:
        found: list[int] = []
        async with redis.asyncio.Redis(port=wanted.port, password=wanted.token, protocol=version) as client:
            while wanted.pipelined and len(found) < wanted.count:
                pipeline = client.pipeline(transaction=len(found) % (2 * PIPELINE) == 0)
                for _ in range(PIPELINE):
                    pipeline.incr("photos")
                found += await pipeline.execute()
            while len(found) < wanted.count:
                found.append(int(await client.incr("photos")))
        return found

    return asyncio.run(draw())


def with_node(client: str, version: int, wanted: Wanted) -> list[int]:
    """`client`: the name of its npm package."""
    assert NODE_MODULES.is_dir(), f"no {NODE_MODULES}: `make test` installs it where there is npm"
    options = asdict(wanted) | {"client": client, "version": version}
    given = {name: value for name, value in options.items() if value is not None}
    script = REPOSITORY / "tests" / "node" / "draw.cjs"
    environment = os.environ | {"NODE_PATH": str(NODE_MODULES)}
    answer = _run(["node", str(script), json.dumps(given)], environment)
    return [int(text) for text in json.loads(answer)]


CLIENTS: dict[str, Draw] = {
    "redis-cli": with_redis_cli,
    "redis-benchmark": with_redis_benchmark,
    "redis-py RESP2": partial(with_redis_py, 2),
    "redis-py RESP3": partial(with_redis_py, 3),
    "redis-py asyncio RESP2": partial(with_asyncio, 2),
    "redis-py asyncio RESP3": partial(with_asyncio, 3),
    "node-redis RESP2": partial(with_node, "redis", 2),
    "node-redis RESP3": partial(with_node, "redis", 3),
    "ioredis": partial(with_node, "ioredis", 2),
}


def _run(command: list[str], environment: dict[str, str], given: str | None = None) -> str:
    done = subprocess.run(
        command, env=environment, input=given, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, (command, done.stdout[-1000:], done.stderr[-1000:])
    return done.stdout
