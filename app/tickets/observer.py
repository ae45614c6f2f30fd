"""What the lanes tell of their work, for whoever counts it."""

from typing import Protocol

from app.tickets.ring import Member


class Observer(Protocol):
    """Is told of what happens on a ticket database. Each call is on the way of a ticket, and returns at once."""

    def statement(self, member: Member, seconds: float, tickets: int) -> None:
        """A draw of so many tickets succeeded, in so many seconds."""

    def gap(self, member: Member, cause: str, tickets: int) -> None:
        """Tickets were drawn and dropped."""

    def violation(self, member: Member, rule: str) -> None:
        """An id broke a rule of the check on ids, or the ledger refused a reservation."""

    def retry(self, member: Member, cause: str) -> None:
        """A draw is tried again."""
