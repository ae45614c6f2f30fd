"""What the desk hands requests to: the source of one sequence's ids."""

from collections.abc import Callable, Sequence
from typing import Protocol

from app.errors import TicketError
from app.tickets.lane import Lane
from app.tickets.request import Request


class Source(Protocol):
    """Gives the ids of one sequence: an `Issuer` of plain tickets, `Counted` or `memory.MemorySource`."""

    @property
    def sequence(self) -> str:
        """The sequence's name as it was made."""
        ...

    @property
    def lanes(self) -> Sequence[Lane]:
        """The lanes that the ids are drawn by; none for ids from memory."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether requests wait."""
        ...

    @property
    def issued(self) -> int:
        """How many ids were issued since the start."""
        ...

    def give(self, request: Request) -> bool:
        """Settle a request at once; False where it has to wait."""
        ...

    def ask(self, requests: Sequence[Request]) -> None:
        """Serve requests, in their order."""
        ...

    def expire(self, now: float, error: Callable[[], TicketError]) -> None:
        """Fail the requests whose deadline has passed. now: by the event loop's clock."""
        ...

    def hand_over(self) -> list[Request]:
        """Return the requests that wait, and serve none of them any more."""
        ...

    async def end(self) -> None:
        """End what is under way."""
        ...
