"""Commands that ask for tickets: replies that are to come, and requests for what is asked for by itself."""

from typing import Any, Protocol

from app.common.errors import TicketError
from app.redis import replies
from app.tickets.requests.request import Ids, TicketRequest

TICKET_BYTES = 32
"""About what a ticket takes in memory until its reply has gone out."""
LISTED_BYTES = 128
"""As above, for a ticket of a list, which becomes a string."""
REQUEST_BYTES = 1_024
"""About what a request takes besides its tickets. One for a sequence that is not known takes several times as much."""


class Slot(Protocol):
    """A reply that is to come, at its place among the others. `reply`: None until then. `owed`: about how many bytes it
    takes until it has gone out."""

    reply: bytes | None
    owed: int

    def drop(self) -> None:
        """The client has gone before it came."""


class Place(Protocol):
    """Where replies are put in order. `client`: the address at the other end."""

    @property
    def client(self) -> str: ...

    def answered(self, slot: Slot) -> None:
        """The reply of this slot is there."""

    def fail(self) -> None:
        """Handle an unexpected exception: log it, and cut the connection."""


class Watcher(Protocol):
    """Is told of every request for tickets that came as a command: a tracer, a log."""

    def begin(self, words: str, count: int) -> object:
        """So many of the same command have come. What is returned is their `trace`, and given to `end`."""

    def end(self, place: Place, words: str, count: int, trace: object, outcome: str) -> None:
        """They are answered: "ok", or the error's first word; "" where the client has gone before that."""


class TicketReply:
    """The reply to one command for tickets, or to the same one several times in a row. See Slot.

    `times`: how many commands. `watcher`, `words`: who is told of it, and the command and sequence that it is told.
    """

    place: Place
    reply: bytes | None = None
    owed = REQUEST_BYTES + TICKET_BYTES
    times = 1
    watcher: Watcher | None = None
    words = ""
    trace: Any = None

    def watched_by(self, watcher: Watcher, words: str) -> None:
        """Have somebody told of it."""
        self.watcher, self.words = watcher, words
        self.trace = watcher.begin(words, self.times)

    def settle(self, reply: bytes, outcome: str) -> None:
        """This is the reply. `outcome`: see Watcher.end."""
        self.reply = reply
        if self.watcher is not None:
            self.watcher.end(self.place, self.words, self.times, self.trace, outcome)
        self.place.answered(self)

    def settle_refused(self, sequence: str, error: TicketError) -> None:
        """The reply is the reason why there are no tickets."""
        reply = replies.refusal(sequence, error)
        self.settle(reply * self.times, reply[1:].partition(b" ")[0].decode())

    def drop(self) -> None:
        """See Slot.drop."""
        if self.watcher is not None and self.reply is None:
            self.watcher.end(self.place, self.words, self.times, self.trace, "")


class RedisTicketRequest(TicketReply, TicketRequest):
    """A command that is a request by itself. `is_due`: whether it waits for its turn to be asked for."""

    is_due = False

    def __init__(self, place: Place, sequence: str, count: int, address: tuple[int | None, int | None] | None) -> None:
        super().__init__(sequence, count)
        self.place = place
        self.owed = REQUEST_BYTES + LISTED_BYTES * count
        if address is not None:
            self.address = address

    def in_reply(self, tickets: Ids) -> bytes:
        """The reply with these tickets."""
        raise NotImplementedError

    def give(self, tickets: Ids) -> None:
        """See TicketRequest.give."""
        try:
            self.settle(self.in_reply(tickets), "ok")
        except Exception:  # the caller has other requests to answer
            self.place.fail()

    def refuse(self, error: TicketError) -> None:
        """See TicketRequest.refuse."""
        try:
            self.settle_refused(self.sequence, error)
        except Exception:
            self.place.fail()

    def drop(self) -> None:
        """See Slot.drop."""
        if self.is_due:
            self.settled = True
        else:
            self.abandon()
        super().drop()

    def fail(self) -> None:
        """Handle an unexpected exception: log it, and cut the connection."""
        self.place.fail()


class TicketList(RedisTicketRequest):
    """TICKET.TAKE."""

    def in_reply(self, tickets: Ids) -> bytes:
        """See RedisTicketRequest.in_reply."""
        return replies.ticket_list(tickets)


class Block(RedisTicketRequest):
    """TICKET.BLOCK."""

    whole = True

    def in_reply(self, tickets: Ids) -> bytes:
        """See RedisTicketRequest.in_reply."""
        step = tickets.step if isinstance(tickets, range) else self.desk.increment
        return replies.array([replies.integer(number) for number in (tickets[0], step, len(tickets))])
