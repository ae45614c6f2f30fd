"""A ticket server as the client sees it, whatever protocol it speaks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from ticketd_client.answers import Block, Ticket


class Server(ABC):
    """One URL. Several threads may call every method at once. A call ends with its deadline, whatever the server does.

    `deadline` is `time.monotonic()`'s. The methods raise AttemptFailed where another server may do better, and a
    TicketError where none would.
    """

    url: str
    """Without a token."""
    token: str | None = None
    administers = True
    """Whether sequences can be made and advanced over this protocol."""

    def hide(self, text: str) -> str:
        """The text without the token, which a server may have sent back; nor with the rest of one where it was cut."""
        if self.token:
            for known in (self.token, repr(self.token)[1:-1]):
                text = text.replace(known, "[token]")
                for length in range(len(known) - 1, 3, -1):
                    text = text.replace(known[:length] + "…", "[token]…")
        return text

    @abstractmethod
    def take(self, sequence: str, count: int | None, key: int | None, deadline: float) -> list[Ticket]:
        """`count` tickets, None for one."""

    @abstractmethod
    def take_block(self, sequence: str, size: int, deadline: float) -> Block:
        """A block. SequenceConflict for a kind without blocks."""

    def bump(self, sequence: str, above: int, force: bool, deadline: float) -> dict[str, object]:
        """Advance the sequence; the server's answer. Only where it `administers`."""
        raise NotImplementedError

    def ensure(self, sequence: str, parameters: Mapping[str, object], deadline: float) -> dict[str, object]:
        """Make the sequence if it is not there; the server's answer. SequenceConflict where it is there and differs.
        Only where it `administers`."""
        raise NotImplementedError

    @abstractmethod
    def look(self, deadline: float) -> None:
        """Return if it can hand out tickets."""

    @abstractmethod
    def forget_connections(self) -> None:
        """In the child of a fork: connections are the parent's. Takes no lock that another thread may have held."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections that nobody uses, and those in use when they come back."""
