"""A queue of draws on connections that a test answers."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from app.common.errors import TicketDatabaseError
from app.common.sequences import Width
from app.databases.mysql.draws.draws import DrawQueue
from app.databases.mysql.draws.generated_ids import GeneratedIds
from app.databases.mysql.line.connection import MySQLConnection
from app.databases.mysql.line.driver import Rows
from app.databases.mysql.line.pool import MySQLPool
from app.databases.mysql.sequence_sql import STUBS
from app.databases.mysql.table import MySQLTable
from app.databases.protocol import Drawn, Position
from tests.unit.databases.mysql_driver import URL

TIMEOUT = 0.4


def table(sequence: str = "photos") -> MySQLTable:
    end, stubs = 2**64 - 1, len(STUBS)
    return MySQLTable(sequence, Width.BIGINT, 2**63, "t1", column_end=end, rows_per_statement=stubs)


class Connection:
    """Keeps what is sent on it until the test answers."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.usable = True
        self.insert_id = 0
        self.results: list[int | TicketDatabaseError] = []
        self._done: Callable[[Sequence[int] | None], None] = lambda _: None

    def draw(self, statements: str, _: int, __: float, done: Callable[[Sequence[int] | None], None]) -> None:
        self.sent.append(statements)
        self._done = done

    def answer(self, *ids: int) -> None:
        """What the wire hands on."""
        self._done(ids)

    def leave_to_the_driver(self, *results: int | TicketDatabaseError) -> None:
        """What the wire does not hand on; no results: nothing ever comes."""
        self.results = list(results)
        self._done(None)

    async def next(self) -> None:
        if not self.results:
            await asyncio.Event().wait()
        result = self.results.pop(0)
        if isinstance(result, TicketDatabaseError):
            raise result
        self.insert_id = result

    receive = next

    def understand(self, make: Callable[[Rows], Any]) -> Any:
        """What is made of the one row of a question: `insert_id` stands for it."""
        return make(((self.insert_id,),))

    def drop(self) -> None:
        self.usable = False


class Pool(MySQLPool):
    """Has these idle connections; of further ones it gives what a test puts there."""

    def __init__(self, idle: int = 1) -> None:
        super().__init__(URL, 1, 2, TIMEOUT)
        self.all = [Connection() for _ in range(idle)]
        self.idle = list(self.all)
        self.error: TicketDatabaseError | None = None

    def take_idle(self) -> MySQLConnection | None:
        return cast(MySQLConnection, self.idle.pop()) if self.idle else None

    def give_back(self, connection: MySQLConnection) -> None:
        if connection.usable:
            self.idle.append(cast(Connection, connection))

    async def connection(self, *, anybody: bool = False) -> MySQLConnection:
        if self.error is not None:
            raise self.error
        return cast(MySQLConnection, await asyncio.Event().wait())


class Unasked(GeneratedIds):
    """No question follows a draw: what the tests of packets are about is without it."""

    def are_due(self, table: str, now: float) -> bool:
        return False


class Bench:
    """A queue over such a pool, and what every draw was answered, in order."""

    def __init__(self, idle: int = 1) -> None:
        self.pool = Pool(idle)
        self.retried: list[str] = []
        self.queue = DrawQueue(self.pool, 1, 2, self._position, self.retried.append, generated=Unasked())
        self.queue.forms.takes_steps = True
        self.answers: list[tuple[str, Drawn]] = []
        self.answered = asyncio.Event()
        self.position = Position(1, 0, "t1")

    def start(self, name: str = "photos", count: int = 1, least: int = 0, after: int = 0) -> None:
        before = len(self.answers)
        self.queue.start_draw(table(name), count, after, lambda drawn: self._came(name, drawn), least)
        assert len(self.answers) == before

    async def _position(self, _: str) -> Position:
        return self.position

    def _came(self, name: str, drawn: Drawn) -> None:
        self.answers.append((name, drawn))
        self.answered.set()

    def kinds(self) -> list[tuple[str, type[Any]]]:
        return [(name, type(drawn)) for name, drawn in self.answers]


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def of_tables(packet: str) -> list[str]:
    """What a packet's statements do, each with its table: an advance as `!`."""
    return [
        part.split("`")[1] + ("!" if "(id, stub)" in part else "") if "`" in part else part
        for part in packet.split(";")
    ]
