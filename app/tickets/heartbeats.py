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
from typing import Annotated, NamedTuple

from pydantic import Field, TypeAdapter

from app.databases.session import Note

SILENCE_UNKNOWN = 30.0
"""Seconds that a row which cannot be read may stand still before it counts no more: longer than any server's own."""
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
    def load(cls, text: str) -> "Said | None":
        """Read what a heartbeat says; None where the text is damaged."""
        with suppress(ValueError):
            return _SAID.validate_json(text)
        return None


_SAID = TypeAdapter(Said)


@dataclass(frozen=True, slots=True)
class Server:
    """A live server: its name (`hostname:port`), the random word of its process, and what it says.

    said: from the newest row of the process, on whichever database; None where that row cannot be read. has_moved:
    whether this server has seen one of its rows move. A database that was restored brings back the rows of processes
    that have ended.
    """

    name: str
    word: str
    said: Said | None
    has_moved: bool = True


class _Row(NamedTuple):
    """A row as it was last read, what it says (None where that cannot be read), and when it was last seen to move.

    has_moved: it was seen to move, and not only found.
    """

    note: Note
    said: Said | None
    moved: float
    has_moved: bool

    def counts(self, now: float) -> bool:
        return now - self.moved < (SILENCE_UNKNOWN if self.said is None else self.said.silence)


class Heartbeats:
    """The heartbeats of other processes, as this process has seen them.

    name: this server's name. word: the random word of this process. Its own rows are passed over; a row of the same
    name with another word belongs to another process.
    """

    def __init__(self, name: str, word: str) -> None:
        self._me = name, word
        self._pages: dict[int, tuple[str, dict[str, _Row]]] = {}

    def read(self, offset: int, life: str, rows: Mapping[str, Note], now: float) -> None:
        """Take up the rows that a look found on the database of this offset, in this life.

        now: when the look ended, in seconds; all times given to this object are by the same clock.
        """
        known_life, known = self._pages.get(offset, ("", {}))
        page: dict[str, _Row] = {}
        for name, note in rows.items():
            before = known.get(name) if known_life == life else None
            if before is not None and before.note == note:
                page[name] = before
            elif (name, note.tenure) != self._me:
                has_moved = before is not None and before.note.tenure == note.tenure
                page[name] = _Row(note, Said.load(note.text), now, has_moved)
        self._pages[offset] = life, page

    def _rows(self) -> Iterator[tuple[str, _Row]]:
        return ((name, row) for _, page in self._pages.values() for name, row in page.items())

    def live(self, now: float) -> list[Server]:
        """Return the live servers in the order of their names, without any `ticketd grow`."""
        counting: dict[tuple[str, str], bool] = {}
        newest: dict[tuple[str, str], _Row] = {}
        for name, row in self._rows():
            process = name, row.note.tenure or ""
            if row.counts(now):
                counting[process] = row.has_moved or counting.get(process, False)
            if process not in newest or row.note.high > newest[process].note.high:
                newest[process] = row
        found = [Server(*process, newest[process].said, counting[process]) for process in sorted(counting)]
        return [server for server in found if server.said is None or not server.said.grow]

    def quiet(self, word: str, now: float) -> float:
        """Return for how many seconds the process of this word has not shown itself, 0 where it is this process.

        A row that cannot be read might be a row of it. Where there is no row, that is infinity.
        """
        if word == self._me[1]:
            return 0.0
        rows = (row for _, row in self._rows() if row.said is None or row.note.tenure == word)
        return min((now - row.moved for row in rows), default=math.inf)

    def outdated(self, offset: int, now: float) -> dict[str, Note]:
        """Return the rows on the database of this offset that have stood still for an hour."""
        _, page = self._pages.get(offset, ("", {}))
        return {name: row.note for name, row in page.items() if now - row.moved >= OUTDATED}
