"""Heartbeats: what each ticket server writes with every look, and which other servers are live, as this server sees it.

Every database keeps a row for each ticket server. A server writes its own row there with every look, and reads the rows
of the others. A row counts until this server has seen it stand still for as long as the row itself says. This server
measures that with its own clock, for each database by itself and within one life of the database, so no two clocks are
compared. A server is live if any of its rows counts.

A row that cannot be read counts as a live server that says nothing. Whatever has to wait until a server lets go of a
database, or until it has read a floor, waits for that server too.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Annotated, NamedTuple

from pydantic import Field, TypeAdapter

from app.databases.session import Book, Note, Write

OUTDATED = 3600.0
"""Seconds after which a row that stands still is deleted."""
LONGEST_TEXT = 4_000
"""Characters, see `Note`."""


class Use(NamedTuple):
    """A database that a server has in sight: the word of its body, its life, and the address of the node in use."""

    body: str
    life: str
    node: str


@dataclass(frozen=True, slots=True)
class Said:
    """What a heartbeat says.

    silence: seconds after which a row that stands still counts no more. lives: the databases that the server has in
    sight, by their offsets. increment: its TICKETS_INCREMENT, None where that is unset. floors: the number of the
    floors that it has read. grow: it is a `ticketd grow` and draws nothing.
    """

    silence: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    lives: Mapping[int, Use] = field(default_factory=dict)
    increment: int | None = None
    floors: int = 0
    grow: bool = False

    def dump(self) -> str:
        """Return this as JSON, without the nodes if the text would be too long for a row."""
        text = _SAID.dump_json(self).decode()
        if len(text) > LONGEST_TEXT:
            bare = {offset: use._replace(node="") for offset, use in self.lives.items()}
            text = _SAID.dump_json(replace(self, lives=bare)).decode()
        return text

    @classmethod
    def load(cls, text: str) -> "Said":
        """Read what a heartbeat says; UNREADABLE where the text is damaged."""
        with suppress(ValueError):
            return _SAID.validate_json(text)
        return UNREADABLE


_SAID = TypeAdapter(Said)
UNREADABLE = Said(silence=30.0, floors=-1)
"""What a row says that cannot be read: it counts for longer than any server's own, and has read no floor."""


class Server(NamedTuple):
    """Another server, as one of its rows shows it.

    name, word: `hostname:port`, and the random word of its process. said: what the row says. has_moved: whether this
    server has seen the row move. A database that was restored brings back the rows of processes that have ended. moved:
    when it was last seen to move, or found. note: the row as it was last read.
    """

    name: str
    word: str
    said: Said
    has_moved: bool = True
    moved: float = 0.0
    note: Note = Note()


class Heartbeats:
    """The heartbeats of other processes, as this process has seen them.

    name: this server's name. word: the random word of this process. Its own rows are passed over; a row of the same
    name with another word belongs to another process.
    """

    def __init__(self, name: str, word: str) -> None:
        self._me = name, word
        self._pages: dict[int, tuple[str, dict[str, Server]]] = {}

    def read(self, offset: int, life: str, rows: Mapping[str, Note], now: float) -> None:
        """Take up the rows that a look found on the database of this offset, in this life.

        now: when the look ended, in seconds; all times given to this object are by the same clock.
        """
        known_life, known = self._pages.get(offset, ("", {}))
        page: dict[str, Server] = {}
        for name, note in rows.items():
            before = known.get(name) if known_life == life else None
            if before is not None and before.note == note:
                page[name] = before
            elif (name, note.tenure) != self._me:
                has_moved = before is not None and before.note.tenure == note.tenure
                page[name] = Server(name, note.tenure or "", Said.load(note.text), has_moved, now, note)
        self._pages[offset] = life, page

    def _rows(self) -> Iterator[Server]:
        return (row for _, page in self._pages.values() for row in page.values())

    def live(self, now: float) -> list[Server]:
        """Return the live servers in the order of their names, without any `ticketd grow`.

        A server is shown by its newest row, on whichever database, and has moved if one of its rows that count has.
        """
        found = []
        rows = sorted(self._rows(), key=lambda row: (row.name, row.word, row.note.high))
        for _, of_process in groupby(rows, key=lambda row: (row.name, row.word)):
            *_, newest = all_rows = list(of_process)
            counting = [row for row in all_rows if now - row.moved < row.said.silence]
            if counting and not newest.said.grow:
                found.append(newest._replace(has_moved=any(row.has_moved for row in counting)))
        return found

    def quiet(self, word: str, now: float) -> float:
        """Return for how many seconds the process of this word has not shown itself, 0 where it is this process.

        A row that cannot be read might be a row of it. Where there is no row, that is infinity.
        """
        if word == self._me[1]:
            return 0.0
        rows = (row for row in self._rows() if row.said is UNREADABLE or row.word == word)
        return min((now - row.moved for row in rows), default=math.inf)

    def outdated(self, offset: int, now: float) -> list[Write]:
        """Return what deletes the rows on the database of this offset that have stood still for an hour."""
        _, page = self._pages.get(offset, ("", {}))
        outdated = [row for row in page.values() if now - row.moved >= OUTDATED]
        return [Write(Book.HEARTBEATS, row.name, row.note, None) for row in outdated]
