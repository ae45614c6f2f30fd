"""Ticket databases in memory, with tables and with rows, as the contract tests handle them."""

import asyncio
import random
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

from app.common.sequences import TICKET_LIMIT, Width
from app.databases.protocol import ServerEntry, Table, TicketDatabase
from app.kinds.definition import Definition
from tests.contract.engines.storages import INCREMENT, UNSIGNED_INT, Column, Storage
from tests.fakes.ticket_database import TRUE_TIME, FakeServer, client_of
from tests.fakes.virtual_time import VirtualLoop
from tests.fakes.virtual_time import run as run_in_virtual_time


class FakeStorage(Storage):
    """Two servers in memory; every client's statements take other times on their way."""

    has_no_earlier_release = True
    is_rows = False

    def __init__(self) -> None:
        super().__init__()
        self._servers = [FakeServer(offset, INCREMENT, (), _loop_time, is_rows=self.is_rows) for offset in (1, 2)]
        self._latencies = random.Random(1)

    def true_time(self) -> float:
        return TRUE_TIME + _loop_time()

    def monotonic(self) -> float:
        return _loop_time()

    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        run_in_virtual_time(self._and_close(scenario))

    def _open(self, offset: int, increment: int, timeout: float) -> TicketDatabase:
        server = self._servers[offset - 1]
        return client_of(server, increment=increment, latency=self._latency, timeout=timeout)

    def stand_still(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.clock.now += seconds

    def _latency(self) -> tuple[float, float]:
        return self._latencies.uniform(0, 0.02), self._latencies.uniform(0, 0.02)

    async def make_column(self, client: TicketDatabase, sequence: str, column: Column) -> Table:
        self._servers[0].make(sequence, column.width, 1, unsigned=column.unsigned)
        return (await client.tables([sequence]))[sequence]

    def make_foreign_tables(self) -> Sequence[str]:
        return []

    def seen_by_older_releases(self) -> set[str]:
        return set()  # no release but this one uses it

    def probe_as_an_older_release(self) -> None:
        self._servers[0].older_probe = self._servers[0].time_at(_loop_time())

    def probe_as_the_release_before(self, release: str) -> None:
        self._servers[0].probes(ServerEntry("0ef", release, ("ticket",), 1.0, uses=None), _loop_time())

    def age_servers(self, days: int) -> None:
        servers = self._servers[0].state.servers
        servers.update({key: replace(entry, at=entry.at - days * 86_400) for key, entry in servers.items()})

    def age_uses(self, seconds: float) -> None:
        servers = self._servers[0].state.servers
        servers.update({key: replace(entry, at=entry.at - seconds) for key, entry in servers.items()})

    def write_definition(self, sequence: str, kind: str, parameters: str) -> None:
        self._servers[0].state.kinds[sequence] = Definition.from_text(sequence, kind, parameters)

    def alter_by_hand(self, sequence: str) -> None:
        self._servers[0].table(sequence).advance(999)

    def drop(self, sequence: str) -> None:
        self._servers[0].drop(sequence)

    def sessions(self) -> frozenset[object]:
        return frozenset()

    async def begin_another_life(self) -> None:
        self._servers[0].restart()

    def configure(self, increment: int) -> None:
        self._servers[0].set_global(1, increment)


class RowStorage(FakeStorage):
    """Two servers in memory whose sequences and notes are rows."""

    columns = (UNSIGNED_INT, Column(Width.BIGINT, TICKET_LIMIT))
    has_settings = False
    needs_room = False
    fences_draws = True
    is_rows = True


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
