"""A database for one test, on one engine: sessions to it, and what an operator does to it by hand."""

import asyncio
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from app.databases.address import Address
from app.databases.engines import SCHEMES, parse_list
from app.databases.mysql.login import Line
from app.databases.mysql.session import MySQLSession
from app.databases.record import new_word
from app.databases.session import Book, Connect, Counter, Drawn, Residue, RingRow, Session, Want
from app.databases.sqlite.folder import lock_folder
from app.databases.sqlite.session import connect as connect_sqlite
from app.errors import DatabaseError
from tests.fakes.server import FakeServer
from tests.fakes.session import fake_connect
from tests.servers import DatabaseServer, engines

BOTH = pytest.mark.parametrize("bench", engines("mariadb", "mysql"), indirect=True)
"""Runs a test on MySQL and on MariaDB."""
ODD, EVEN = Residue(1, 2), Residue(2, 2)
FORGET = "DROP TABLE _ticket_notes; DROP TABLE _ticket_ring"
READ_BACK = (
    "INSERT INTO copy SELECT * FROM _ticket_ring; DROP TABLE _ticket_ring; ALTER TABLE copy RENAME TO _ticket_ring"
)
_REDIS_BOOKS = " ".join(f"{{{{tickets}}}}:{book} {{{{tickets}}}}:{book}:names" for book in Book)
STATEMENTS = {
    "fake": {
        "add": "add {0} 64 {1}",
        "drop": "drop {0}",
        "empty": "truncate {0}",
        "set_back": "set_last {0} {1}",
        "lock": "lock {0}",
        "lock_row": "lock {0}",
        "forget": "wipe",
        "read_back": "read_back",
    },
    "sqlite": {
        "add": "INSERT INTO _sequences VALUES ('{0}', 64, {1}, '{word}')",
        "drop": "DELETE FROM _sequences WHERE name = '{0}'",
        "empty": "UPDATE _sequences SET last = 0, created = '{word}' WHERE name = '{0}'",
        "set_back": "UPDATE _sequences SET last = {1} WHERE name = '{0}'",
        "forget": FORGET,
    },
    "mysql": {
        "add": "CREATE TABLE {0} (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, stub CHAR(1) NOT NULL DEFAULT '', "
        "PRIMARY KEY (stub), KEY (id)); REPLACE INTO {0} (id, stub) VALUES ({1}, 'a')",
        "drop": "DROP TABLE {0}",
        "empty": "TRUNCATE TABLE {0}",
        "remove": "DELETE FROM {0}",
        "set_back": "DELETE FROM {0}; ALTER TABLE {0} AUTO_INCREMENT = {1}",
        "lock": "LOCK TABLES {0} WRITE",
        "lock_row": "SELECT * FROM {0} FOR UPDATE",
        "forget": FORGET,
        "read_back": f"CREATE TABLE copy LIKE _ticket_ring; {READ_BACK}",
    },
    "postgresql": {
        "add": "INSERT INTO ticket_sequences (sequence, id, bits) VALUES ('{0}', {1}, 64)",
        "drop": "DELETE FROM ticket_sequences WHERE sequence = '{0}'",
        "empty": "TRUNCATE ticket_sequences; INSERT INTO ticket_sequences (sequence, id, bits) VALUES ('{0}', 0, 64)",
        "set_back": "UPDATE ticket_sequences SET id = {1} WHERE sequence = '{0}'",
        "lock": "SELECT id FROM ticket_sequences WHERE sequence = '{0}' FOR UPDATE",
        "lock_row": "UPDATE ticket_sequences SET id = id WHERE sequence = '{0}'",
        "forget": FORGET,
        "read_back": f"CREATE TABLE copy (LIKE _ticket_ring INCLUDING ALL); {READ_BACK}",
    },
    "redis": {
        "add": "HSETNX {{tickets}}:sequences {0} {1}",
        "drop": "HDEL {{tickets}}:sequences {0}",
        "empty": "HSET {{tickets}}:sequences {0} 0",
        "set_back": "HSET {{tickets}}:sequences {0} {1}",
        "forget": f"DEL {{{{tickets}}}}:ring {_REDIS_BOOKS}",
    },
}
"""What an operator does by hand on each engine, see `Bench.do`; {0} is the name of a sequence, {1} a number."""


def certificate(folder: Path, name: str) -> Path:
    """A certificate for 127.0.0.1 that signs itself, in one file, beside its key (`.key`)."""
    file = folder / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{file}.key", "-out", str(file)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return file


async def record(session: Session, stamp: str) -> RingRow:
    """Write a ring record with this stamp, and return the ring row."""
    old = await session.read_ring()
    new = old._replace(offset=1, stamp=stamp, text="{}")
    assert await session.write_ring(old, new)
    return new


async def draw(session: Session, name: str = "photos", count: int = 1, above: int = 0, last: int = 0) -> list[int]:
    """Draw from one sequence, check what holds for every draw, and return the ids."""
    (result,) = await session.draw([Want(name, count, above, last)])
    return ids(result, session, count, above)


async def drawn(session: Session, *wanted: Want) -> list[Any]:
    """Return the first id of each draw, or the class of the error."""
    results = await session.draw(wanted)
    return [each.first if isinstance(each, Drawn) else type(each) for each in results]


def ids(result: Drawn | DatabaseError, session: Session, count: int = 1, above: int = 0) -> list[int]:
    """Check what a session drew, and return the ids."""
    assert isinstance(result, Drawn), result
    assert session.residue is not None
    assert result.count >= count
    assert result.first > above
    assert session.residue.has(result.first)
    step = session.residue.increment
    return list(range(result.first, result.first + result.count * step, step))


async def counter(session: Session, name: str = "photos") -> Counter:
    """Return the counter of a sequence."""
    found = (await session.sequences([name.lower()]))[name.lower()]
    assert isinstance(found, Counter), found
    return found


def line_of(session: Session) -> Line:
    """Return the connection of a session of MySQL."""
    assert isinstance(session, MySQLSession)
    return session._line


@dataclass
class Bench:
    """One database.

    statements: those of `STATEMENTS` for its engine. run: runs a statement as the operator. transaction: one of the
    operator's, which has run a statement and is undone unless the test commits it by the cursor that it gets. tick:
    seconds after which own tables that are made anew have another birth.
    """

    connect: Connect
    address: Address
    statements: Mapping[str, str]
    run: Callable[[str], list[tuple[Any, ...]]]
    transaction: Callable[[str], AbstractContextManager[Any]] = nullcontext
    tick: float = 0.0
    sessions: list[Session] = field(default_factory=list)

    @property
    def has_locks(self) -> bool:
        """Whether the operator can lock a sequence, and read a dump back. Else nobody but the ticket server may."""
        return "lock" in self.statements

    async def open(self, residue: Residue | None = ODD, seconds: float = 10.0) -> Session:
        """Open a session, which is closed at the end of the test."""
        self.sessions.append(await self.connect(self.address, residue, seconds))
        return self.sessions[-1]

    async def with_photos(self, residue: Residue | None = ODD) -> Session:
        """Open a session and make the sequence `photos`."""
        session = await self.open(residue)
        await session.make("photos", 64, 0)
        return session

    async def close(self) -> None:
        """Close every session."""
        for session in self.sessions:
            session.abort()
        await asyncio.sleep(0)  # lets the transports close

    def do(self, what: str, name: str = "", number: int = 0) -> None:
        """Do one thing as the operator.

        add: make a sequence that stands at the number. drop: drop it. empty: make its counter begin again. remove:
        delete the rows of its table, or its row. set_back: set it back to the number. forget: drop the server's own
        tables. read_back: make them anew with the same rows, as reading a dump back does.
        """
        kept = self.statements.get(what) or self.statements["drop"]  # a table is a row on most engines
        for statement in kept.format(name, number, word=new_word()).split(";"):
            self.run(statement)

    def lock(self, what: str, name: str) -> AbstractContextManager[Any]:
        """Lock a sequence as a whole (`lock`) or its row (`lock_row`), where the operator can."""
        return self.transaction(self.statements[what].format(name)) if self.has_locks else nullcontext()


def connector(url: str) -> Connect:
    """Return what opens sessions at this URL."""
    connect: Connect = import_module(f"app.databases.{SCHEMES[url.partition(':')[0]]}.session").connect
    return connect


def server_bench(server: DatabaseServer, database: str) -> Bench:
    """Return a database in a server."""
    url = server.url(database)
    package = SCHEMES[url.partition(":")[0]]

    @contextmanager
    def transaction(statement: str) -> Iterator[Any]:
        with closing(server.connect(database)) as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(statement)
            yield cursor

    run = partial(server.execute, database=database)
    tick = 1.1 if package == "mysql" else 0.0  # MySQL keeps the second in which a table was made
    return Bench(connector(url), parse_list(url, None)[0], STATEMENTS[package], run, transaction, tick)


async def sqlite_bench(folder: Path) -> Bench:
    """Return a file of a folder, which stays locked. Only the ticket server may open the file."""
    address = lock_folder(folder).addresses[0]

    def run(statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(address.path, isolation_level=None)) as connection:
            return list(connection.execute(statement))

    bench = Bench(connect_sqlite, address, STATEMENTS["sqlite"], run)
    await bench.open()
    run("DELETE FROM _sequences")  # a new file has some
    return bench


def fake_bench() -> Bench:
    """Return a fake. A statement is the name of a method of its server, with the arguments."""
    server = FakeServer()

    def run(statement: str) -> list[tuple[Any, ...]]:
        what, *words = statement.split()
        arguments = [server.data.copy()] if what == "read_back" else [int(w) if w.isdigit() else w for w in words]
        getattr(server, what)(*arguments)
        return []

    @contextmanager
    def transaction(statement: str) -> Iterator[None]:
        server.locked.add(statement.removeprefix("lock "))
        yield
        server.locked.clear()

    return Bench(fake_connect(server), Address("fake", 1, "", "d"), STATEMENTS["fake"], run, transaction)
