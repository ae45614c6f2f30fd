"""What the lanes tell of their work, for whoever counts or traces it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from app.databases.protocol import Drawn
from app.tickets.request import TicketRequest
from app.tickets.ring import Member

if TYPE_CHECKING:
    from app.tickets.lane import Lane


class Observer(Protocol):
    """Is told of what happens on a ticket database. Each call is on the way of a ticket, and returns at once."""

    def statement(self, lane: "Lane", requests: Sequence[TicketRequest], sent_at: float, drawn: Drawn) -> None:
        """A statement for these requests was answered. `sent_at`: by the performance counter; `drawn`: what it drew, or
        why it drew nothing."""

    def gap(self, member: Member, cause: str, tickets: int) -> None:
        """Tickets were drawn and dropped."""

    def violation(self, member: Member, rule: str) -> None:
        """An id broke a rule of the check on ids, or the ledger refused a reservation."""

    def retry(self, member: Member, cause: str) -> None:
        """A draw is tried again."""
