"""SQLite, as the program lists it among its engines: the embedded pair. No URL names a file of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.databases.engine import Address, Engine
from app.databases.inspection import Inspector
from app.databases.protocol import TicketDatabase
from app.databases.sqlite.folder import FILES, why_unusable


@dataclass(frozen=True, slots=True)
class File(Address):
    """A file of the embedded pair."""

    path: Path

    @property
    def name(self) -> str:
        """See Address.name."""
        return self.path.name


class SQLite(Engine[File]):
    """A file of the embedded pair as a ticket database."""

    name = "SQLite"
    address = File

    @staticmethod
    def pair(folder: Path) -> tuple[File, ...]:
        """The two files of the pair, in offset order."""
        return tuple(File(folder / name) for name in FILES)

    @staticmethod
    def why_unusable(folder: Path) -> str | None:
        """Why this process cannot keep the pair in a folder; None where it can. Changes nothing."""
        return why_unusable([folder / name for name in FILES])

    def make_database(
        self, address: File, offset: int, increment: int, timeout: float, on_retry: Callable[[str], None]
    ) -> TicketDatabase:
        """See Engine.make_database. No statement is tried again here."""
        from app.databases.sqlite.database import SQLiteDatabase

        return SQLiteDatabase(address.path, offset, increment, timeout)

    def make_inspector(self, address: File, offset: int, increment: int, timeout: float) -> Inspector:
        """See Engine.make_inspector."""
        from app.databases.sqlite.inspection import SQLiteInspector

        return SQLiteInspector(address.path, offset, increment)
