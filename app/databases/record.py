"""The ring record: what every ticket database records of the ring that it is drawn in."""

import secrets
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, Self

from pydantic import TypeAdapter

from app.databases.session import RingRow
from app.errors import DatabaseRefused


def new_word() -> str:
    """Return a random word of 16 hexadecimal digits."""
    return secrets.token_hex(8)


class State(StrEnum):
    """Whether the ring is drawn from.

    FORMING: a server has begun to form the ring. DRAWN: servers draw. CHANGING: `ticketd grow` has begun, nobody draws.
    """

    FORMING = "forming"
    DRAWN = "drawn"
    CHANGING = "changing"


class Body(NamedTuple):
    """The body in use at an offset, and the number of the record under which it was taken in."""

    offset: int
    word: str
    since: int


@dataclass(frozen=True, slots=True)
class Record:
    """The ring, the same on every database of it.

    ring: the ring's random word, from its forming. number: rises with every change. writer: the random word of the
    writer of this number. increment: of the ids. bodies: one for each offset in use, in the order of offsets.
    """

    ring: str
    number: int
    writer: str
    increment: int
    state: State
    bodies: tuple[Body, ...]

    @property
    def stamp(self) -> str:
        """The number with the word of its writer: what marks and conditional writes name."""
        return f"{self.number}.{self.writer}"

    @property
    def rank(self) -> tuple[int, str]:
        """Of two records the one with the larger rank stands."""
        return self.number, self.writer

    @property
    def drawn(self) -> bool:
        """Whether servers may draw."""
        return self.state is State.DRAWN

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets in use."""
        return tuple(body.offset for body in self.bodies)

    def at(self, offset: int) -> Body | None:
        """The body in use at this offset."""
        return next((body for body in self.bodies if body.offset == offset), None)

    def offset_of(self, word: str) -> int | None:
        """The offset at which this body is in use."""
        return next((body.offset for body in self.bodies if body.word == word), None)

    def next(self, number: int, **changes: object) -> Self:
        """The record with another number, a new word of its writer, and these fields changed."""
        return replace(self, number=number, writer=new_word(), **changes)  # type: ignore[arg-type]

    def dump(self) -> str:
        """The record as JSON."""
        return _RECORD.dump_json(self).decode()


_RECORD = TypeAdapter(Record)


@lru_cache(maxsize=256)
def read_record(row: RingRow) -> Record | None:
    """Return the record of a ring row, None where it has none. Raises DatabaseRefused where the record is damaged."""
    if not row.stamp and not row.text:
        return None
    with suppress(ValueError):
        record = _RECORD.validate_json(row.text)
        offsets = list(record.offsets)
        if record.stamp == row.stamp and offsets == sorted(set(offsets)) and min(record.number, record.increment) > 0:
            return record
    raise DatabaseRefused("its ring record is damaged: restore this database, or replace it by an empty one")
