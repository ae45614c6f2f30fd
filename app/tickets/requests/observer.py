"""The events that lanes report to metrics and traces."""

from collections.abc import Sequence
from typing import Protocol

from app.databases.protocol import Drawn
from app.tickets.requests.request import TicketRequest
from app.tickets.ring.ring import Member


class Observer(Protocol):
    """Is told of what happens on a ticket database. Each call is on the way of a ticket, and returns at once."""

    def statement(
        self, member: Member, sequence: str, requests: Sequence[TicketRequest], sent_at: float, drawn: Drawn
    ) -> None:
        """The database answered a statement that drew for these requests.

        `sent_at`: when the lane sent it, by the performance counter. `drawn`: what it drew, or why it drew nothing.
        """

    def gap(self, member: Member, cause: str, tickets: int) -> None:
        """Tickets were drawn and dropped."""

    def violation(self, member: Member, rule: str) -> None:
        """An id broke a rule of the check on ids, or a database refused its mark."""

    def retry(self, member: Member, cause: str) -> None:
        """A draw is tried again."""
