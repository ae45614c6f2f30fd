"""A shelf: the tickets of one lane that are in reserve, handed out first in, first out."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from app.tickets.lanes.lane import Lane
from app.tickets.requests.request import Tickets
from app.tickets.ring.ring import Member


class Piece(NamedTuple):
    """Tickets of one refill: the numbers from `next_id` up to below `end`, in steps of `step`.

    Attributes:
        token: the token of the lane's marks when the refill came.
        asked_at: when the reserve asked for the refill, by the reserve's clock.
        protected: whether another database keeps a mark above the piece, so that it cannot come twice.
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
    """The reserve of one lane, oldest piece first. `next_id` says how much of the first piece is left.

    Attributes:
        given: the largest ticket that the lane has handed out by itself.
        refilling: whether a refill is under way.
        asks_at: when the lane may be asked for another refill.
        next: the shelf whose turn comes after this one's.
    """

    __slots__ = (
        "_on_drop",
        "asks_at",
        "end",
        "given",
        "lane",
        "marks",
        "next",
        "next_id",
        "pieces",
        "refilling",
        "step",
        "token",
    )

    next: "Shelf"

    def __init__(self, lane: Lane, on_drop: Callable[[Member, str, int], None]) -> None:
        """`on_drop`: called with the lane's database, the cause, and how many tickets were dropped."""
        self.lane = lane
        self.marks = lane.marks
        self.pieces: deque[Piece] = deque()
        self.given = 0
        self.refilling = False
        self.asks_at = -math.inf
        self._on_drop = on_drop
        self._open(_NOTHING)
        lane.shelf = self

    def _open(self, piece: Piece) -> None:
        self.next_id, self.end, self.step, self.token = piece.next_id, piece.end, piece.step, piece.token

    def __len__(self) -> int:
        """How many tickets there are."""
        return sum(piece.size for piece in self.left())

    def left(self) -> Iterator[Piece]:
        """The rest of each piece."""
        if self.pieces:
            yield self.pieces[0]._replace(next_id=self.next_id)
            yield from islice(self.pieces, 1, None)

    @property
    def unprotected(self) -> int:
        """How many tickets have no mark above them on another database: none when they were drawn, and none now."""
        marks = self.marks
        marked = 0 if marks.unverified else marks.mark
        return sum(
            piece.size
            for piece in self.left()
            if not (piece.protected or (piece.token == marks.token and piece.end - piece.step <= marked))
        )

    def add(self, tickets: range, asked_at: float) -> None:
        """Put the lane's new tickets behind all others."""
        marks = self.marks
        protected = marks.mark >= tickets[-1] and not marks.unverified
        piece = Piece(tickets[0], tickets[-1] + tickets.step, tickets.step, marks.token, asked_at, protected)
        self._skip_empty()
        self.pieces.append(piece)
        if len(self.pieces) == 1:
            self._open(piece)

    def _skip_empty(self) -> None:
        """Open the next piece with tickets, if there is one."""
        pieces = self.pieces
        while pieces and self.next_id >= self.end:
            pieces.popleft()
            self._open(pieces[0] if pieces else _NOTHING)

    def take(self, count: int) -> Tickets:
        """The next `count` tickets; the shelf has them."""
        found: list[range] = []
        while count:
            self._skip_empty()
            taken = range(self.next_id, min(self.end, self.next_id + self.step * count), self.step)
            found.append(taken)
            count -= len(taken)
            self.next_id += len(taken) * self.step
        return found[0] if len(found) == 1 else [ticket for each in found for ticket in each]

    # --- dropping -----------------------------------------------------------------------------------------------------

    def drop(self, cause: str, kept: Iterable[Piece] = ()) -> None:
        """Drop everything but these pieces."""
        before = len(self)
        self.pieces = deque(piece for piece in kept if piece.size)
        self._open(self.pieces[0] if self.pieces else _NOTHING)
        dropped = before - len(self)
        if dropped:
            self._on_drop(self.lane.member, cause, dropped)

    def drop_up_to(self, number: int, cause: str) -> None:
        """Drop every ticket up to this number."""
        if self.pieces and self.next_id <= number:
            self.drop(cause, [above(piece, number) for piece in self.left()])

    def passed(self, ticket: int) -> None:
        """The lane is about to hand out this ticket by itself, or a list that ends with it."""
        self.given = max(ticket, self.given)
        self.drop_up_to(ticket, "passed")

    def went_back(self) -> None:
        """The lane has found that its database went back."""
        self.drop("superseded")


def above(piece: Piece, number: int) -> Piece:
    """The tickets of a piece that are above this number."""
    if piece.next_id > number:
        return piece
    passed = (number - piece.next_id) // piece.step + 1
    return piece._replace(next_id=min(piece.end, piece.next_id + passed * piece.step))
