"""The embedded pair: what a restart skips, and that one process uses it."""

import asyncio
from pathlib import Path

import pytest

from app.databases.engines import lock_embedded, open_database
from app.errors import DatabaseRefused
from app.service import Options, Service
from tests.unit.lane_bench import Asked


async def draw(folder: Path, count: int, *, clean: bool = True) -> list[int]:
    """Start a server on the pair in this folder, draw so many tickets one by one, and end it."""
    pair = lock_embedded(folder)
    databases = [open_database(address, 30.0) for address in pair.addresses]
    service = Service(databases, Options("test:1", database_timeout=30.0, request_timeout=60.0, embedded=True))
    service.start()
    taken = []
    for _ in range(count):
        asked = Asked()
        service.desk.take(asked.request)
        taken.append(await asked.answer)
    if clean:
        await service.stop()
    else:
        for task in service._running:
            task.cancel()
        await asyncio.gather(*service._running, return_exceptions=True)
        await service.desk.end()
        for database in databases:
            await database.close()
    pair.close()
    return taken


async def test_a_clean_restart_of_the_embedded_pair_skips_nothing(tmp_path: Path) -> None:
    taken = [ticket for _ in range(3) for ticket in await draw(tmp_path, 4)]
    odd, even = [sorted(ticket for ticket in taken if ticket % 2 == rest) for rest in (1, 0)]
    assert odd == list(range(1, 2 * len(odd), 2))
    assert even == list(range(2, 2 * len(even) + 1, 2))


async def test_an_embedded_pair_that_was_killed_skips_ids_and_repeats_none(tmp_path: Path) -> None:
    first = await draw(tmp_path, 4, clean=False)
    second = await draw(tmp_path, 4)
    assert min(second) > max(first) + 100


def test_one_process_uses_the_embedded_pair(tmp_path: Path) -> None:
    pair = lock_embedded(tmp_path)
    with pytest.raises(DatabaseRefused, match="another process"):
        lock_embedded(tmp_path)
    pair.close()
    lock_embedded(tmp_path).close()
