"""What `ticketd doctor` finds in one ticket database, whatever its engine. To find it changes nothing there."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from app.databases.session import Book, Counter, Note, RingRow, Session
from app.errors import DatabaseError

PAGE = 1_000
"""How many rows of a book are read at a time."""
OLD_TABLES = (
    *("_bodies", "_database", "_definitions", "_high_water", "_in_use", "_inner_high_water", "_inner_sequences"),
    *("_kinds", "_layout", "_probe", "_ring", "_ring_more", "_servers"),
)
"""The own tables of releases before 1.0, on all engines."""
OLD_KINDS = (
    "holds sequences of kinds that a release before 1.0 made: the Upgrade notes of 1.0.0 in CHANGELOG.md say how to "
    "make them again"
)
"""Why a database is quarantined: a sequence of another kind must not become one of plain tickets unseen."""


class Severity(StrEnum):
    """WRONG: it would break a guarantee, or slow the server down. UNKNOWN: the account may not look there. NOTE: it is
    no fault."""

    WRONG = "wrong"
    UNKNOWN = "unknown"
    NOTE = "note"


class Finding(NamedTuple):
    """One finding. subject: what it is about, a sequence or a word like `replication`. text: what to do, too."""

    severity: Severity
    subject: str
    text: str


@dataclass(slots=True)
class Examination:
    """One ticket database, as it was found.

    Attributes:
        version: engine and version, for people.
        machine: the word of the server or file. Two databases of one machine are lost together.
        began, now, ended: its clock, between this machine's before the question and after the answer; seconds since
            1970.
        seconds: what a connection took.
        numbering: the increment and the offset that the server is configured with; None where it has none.
        findings: what the engine itself found.
        unread: why what it holds could not be read; empty where it could.
        ring: None where no ticket server has used the database yet.
        notes: the rows of three books, by their names.
        counters: its sequences, see `Session.sequences`.
    """

    version: str
    machine: str
    began: float
    now: float
    ended: float
    seconds: float = 0.0
    numbering: tuple[int, int] | None = None
    findings: list[Finding] = field(default_factory=list)
    unread: str = ""
    ring: RingRow | None = None
    notes: dict[Book, dict[str, Note]] = field(default_factory=dict)
    counters: dict[str, Counter | DatabaseError] = field(default_factory=dict)

    def add(self, severity: Severity, subject: str, text: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(severity, subject, text))

    def add_old_tables(self, tables: Iterable[str]) -> None:
        """Note which of these tables are of releases before 1.0."""
        if old := sorted(set(OLD_TABLES).intersection(tables)):
            text = f"{', '.join(old)} are of releases before 1.0: drop them, once none of their servers runs"
            self.add(Severity.NOTE, "own tables", text)

    async def read(self, session: Session) -> None:
        """Read the ring row and the notebook. Raises what `Session` raises."""
        self.ring = await session.read_ring()
        for book in (Book.HEARTBEATS, Book.DEFINITIONS, Book.MARKS):
            rows: list[tuple[str, Note]] = []
            while page := await session.page(book, rows[-1][0] if rows else "", PAGE):
                rows += page
            self.notes[book] = dict(rows)
