"""What is in reserve of one lane: pieces on a shelf, handed out first in, first out."""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from app.tickets.lanes.lane import Lane
from app.tickets.requests.request import Tickets


class Piece(NamedTuple):
    """Tickets of one refill, the numbers from `next_id` up to below `end`.

    `token`: of its lane's marks when it came. `asked_at`: when it was asked for. `protected`: whether another database
    keeps a mark above it, so that it cannot come twice.
    """

    next_id: int
    end: int
    step: int
    token: str
    asked_at: float
    protected: bool

    @property
    def size(self) -> int:
        return max(0, (self.end - self.next_id) // self.step)


_NOTHING = Piece(0, 0, 1, "", math.inf, True)


class Shelf:
    """What is in reserve of one lane, oldest first. Of the first piece there is as much left as `next_id` says.

    `given`: the largest ticket that its lane has handed out by itself. `refilling`: whether a
    refill is under way. `asks_at`: when the lane may be asked for another. `next`: whose turn is after its own.
    """

    __slots__ = ("asks_at", "end", "given", "lane", "marks", "next", "next_id", "pieces", "refilling", "step", "token")

    next: "Shelf"

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.marks = lane.marks
        self.pieces: deque[Piece] = deque()
        self.given = 0
        self.refilling = False
        self.asks_at = -math.inf
        self._open(_NOTHING)

    def _open(self, piece: Piece) -> None:
        self.next_id, self.end, self.step, self.token = piece.next_id, piece.end, piece.step, piece.token

    def __len__(self) -> int:
        """How many tickets there are."""
        return sum(piece.size for piece in self.left())

    def left(self) -> Iterator[Piece]:
        """What is left of each piece."""
        if self.pieces:
            yield self.pieces[0]._replace(next_id=self.next_id)
            yield from islice(self.pieces, 1, None)

    @property
    def unprotected(self) -> int:
        """How many tickets no other database could keep a mark of when they were drawn, and none keeps one of now."""
        marks = self.marks
        marked = 0 if marks.unverified else marks.mark
        return sum(
            piece.size
            for piece in self.left()
            if not (piece.protected or (piece.token == marks.token and piece.end - piece.step <= marked))
        )

    def add(self, tickets: range, asked_at: float) -> None:
        """Put what has just come from its lane behind all else."""
        marks = self.marks
        protected = marks.mark >= tickets[-1] and not marks.unverified
        piece = Piece(tickets[0], tickets[-1] + tickets.step, tickets.step, marks.token, asked_at, protected)
        self.skip_empty()
        self.pieces.append(piece)
        if len(self.pieces) == 1:
            self._open(piece)

    def replace(self, pieces: Iterable[Piece]) -> None:
        """Let these be all there is; those that are empty are left out."""
        self.pieces = deque(piece for piece in pieces if piece.size)
        self._open(self.pieces[0] if self.pieces else _NOTHING)

    def skip_empty(self) -> None:
        """Have a piece with tickets lie open, if there is one."""
        pieces = self.pieces
        while pieces and self.next_id >= self.end:
            pieces.popleft()
            self._open(pieces[0] if pieces else _NOTHING)

    def take(self, count: int) -> Tickets:
        """The next so many, which are there."""
        found: list[range] = []
        while count:
            self.skip_empty()
            taken = range(self.next_id, min(self.end, self.next_id + self.step * count), self.step)
            found.append(taken)
            count -= len(taken)
            self.next_id += len(taken) * self.step
        return found[0] if len(found) == 1 else [ticket for each in found for ticket in each]


def above(piece: Piece, number: int) -> Piece:
    """What of a piece is above this number."""
    if piece.next_id > number:
        return piece
    passed = (number - piece.next_id) // piece.step + 1
    return piece._replace(next_id=min(piece.end, piece.next_id + passed * piece.step))
