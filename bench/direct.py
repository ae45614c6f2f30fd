"""Applications that talk to the ticket databases themselves, as Flickr's did: alternating between the two."""

import random
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from bench import loop, wire
from bench.model import CaseFailed, Sample

if TYPE_CHECKING:
    from bench.databases import Database

_DEADLOCK, _LOCK_WAIT = 1213, 1205
_SELECT = wire.query("SELECT LAST_INSERT_ID()")


def replace(table: str) -> bytes:
    """Flickr's statement on this table."""
    return wire.query(f"REPLACE INTO {table} (stub) VALUES ('a')")  # noqa: S608


class DirectClient:
    """A client with a connection to each database, used in turn.

    `select`: ask for the id in a second round trip, as Flickr does; otherwise the OK packet's is taken. A deadlocked
    attempt is made again on the same database; it is counted, and is no ticket.
    """

    def __init__(self, sockets: Sequence[socket.socket], turn: int, pick: Callable[[], bytes], select: bool) -> None:
        self.sockets = sockets
        self.ids: list[list[int]] = [[] for _ in sockets]
        self.deadlocks = 0
        self._turn = turn % len(sockets)
        self._pick = pick
        self._select = select
        self._selecting = False
        self._heard = b""

    def ask(self) -> None:
        self.sockets[self._turn].sendall(_SELECT if self._selecting else self._pick())

    def hear(self, data: bytes) -> int | None:
        if self._heard:
            data = self._heard + data
        answer = wire.answer_to_select(data) if self._selecting else wire.answer_to_replace(data)
        if answer is None:
            self._heard = data
            return None
        self._heard = b""
        if answer.error:
            if answer.error not in (_DEADLOCK, _LOCK_WAIT):
                raise CaseFailed(f"the database answered error {answer.error}")
            self.deadlocks += 1
            return 0
        if self._select and not self._selecting:
            self._selecting = True
            return 0
        self._selecting = False
        self.ids[self._turn].append(answer.number)
        self._turn = (self._turn + 1) % len(self.sockets)
        return 1


def measure(
    databases: Sequence["Database"], tables: Sequence[str], connections: int, select: bool, seconds: float
) -> Sample:
    """So many clients on these tables at random; what they drew is checked when they are done."""
    queries = [replace(table) for table in tables]
    one = queries[0]
    pick: Callable[[], bytes] = (lambda: one) if len(queries) == 1 else (lambda: random.choice(queries))
    with ExitStack() as stack:
        clients = []
        for number in range(connections):
            sockets = [stack.enter_context(database.raw_connection()) for database in databases]
            clients.append(DirectClient(sockets, number, pick, select))
        tally = loop.run(clients, seconds, starving=True)
    if len(tables) == 1:
        _check(databases, tables[0], clients)
    deadlocks = sum(client.deadlocks for client in clients)
    return Sample(tally.rate, tally.p50, tally.p99, {"deadlocks": deadlocks} if deadlocks else {})


def _check(databases: Sequence["Database"], table: str, clients: Sequence[DirectClient]) -> None:
    """The ids are real: each drawn once, of its database's residue, and below the table's counter."""
    for number, database in enumerate(databases):
        ids = [ticket for client in clients for ticket in client.ids[number]]
        if not ids:
            continue
        if len(set(ids)) != len(ids):
            raise CaseFailed(f"{table}: {len(ids) - len(set(ids))} ids of {len(ids)} were drawn twice")
        if any(ticket % len(databases) != database.offset % len(databases) for ticket in ids):
            raise CaseFailed(f"{table}: ids of the wrong residue from database {database.offset}")
        if max(ids) >= database.counter(table):
            raise CaseFailed(f"{table}: an id that the counter of database {database.offset} has not reached")
