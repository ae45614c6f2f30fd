"""Requests for tickets that came as commands, and what their replies are."""

from collections.abc import Sequence
from typing import Protocol

from app.common.errors import SequenceExhausted, TicketError, Unavailable
from app.redis import replies
from app.tickets.request import Ids, TicketRequest

TICKET_BYTES = 32
"""About what a ticket takes in memory until its reply has gone out."""


class Slot(Protocol):
    """A reply that is to come, at its place among the others. `reply`: None until then. `owed`: about how many bytes it
    will be."""

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
        """An exception that nobody knows is being handled."""


class Watcher(Protocol):
    """Is told of every request for tickets that came as a command: a tracer, a log."""

    def begin(self, words: str, count: int) -> object:
        """So many of the same command have come. What is returned is their `trace`, and given to `end`."""

    def end(self, place: Place, words: str, count: int, trace: object, outcome: str) -> None:
        """They are answered: "ok", or the error's first word; "" where the client has gone before that."""


class RedisTicketRequest(TicketRequest):
    """A request for tickets over the Redis protocol. `words`: command and sequence, for who watches."""

    reply: bytes | None = None
    owed = 0
    watcher: Watcher | None = None
    words = ""

    def __init__(self, place: Place, sequence: str, count: int, address: tuple[int | None, int | None] | None) -> None:
        super().__init__(sequence, count)
        self.place = place
        self.owed = TICKET_BYTES * count
        if address is not None:
            self.address = address

    def watched_by(self, watcher: Watcher, words: str) -> None:
        """Have somebody told of it."""
        self.watcher, self.words = watcher, words
        self.trace = watcher.begin(words, self.requests)

    def in_reply(self, tickets: Ids) -> bytes:
        """What is answered with these."""
        raise NotImplementedError

    def give(self, tickets: Ids) -> None:
        """See TicketRequest.give."""
        try:
            self._answer(self.in_reply(tickets), "ok")
        except Exception:  # who calls has others to answer
            self.place.fail()

    def refuse(self, error: TicketError) -> None:
        """See TicketRequest.refuse."""
        try:
            reply = replies.refusal(self.sequence, error)
            self._answer(reply * self.requests, reply[1:].partition(b" ")[0].decode())
        except Exception:
            self.place.fail()

    def _answer(self, reply: bytes, outcome: str) -> None:
        self.reply = reply
        if self.watcher is not None:
            self.watcher.end(self.place, self.words, self.requests, self.trace, outcome)
        self.place.answered(self)

    def drop(self) -> None:
        """See Slot.drop."""
        if not self.settled:
            self.abandon()
            if self.watcher is not None:
                self.watcher.end(self.place, self.words, self.requests, self.trace, "")


class SingleTickets(RedisTicketRequest):
    """The same command for one ticket, `count` times in a row. Together they are one request; where they are refused
    for being several, each becomes one of its own."""

    def __init__(self, place: Place, sequence: str, count: int) -> None:
        # all that the others' own would set
        self.place = place
        self.sequence = sequence
        self.count = self.requests = count
        self.owed = TICKET_BYTES * count
        self._parts: list[SingleTickets] = []
        self._missing = 0

    def in_reply(self, tickets: Ids) -> bytes:
        """See RedisTicketRequest.in_reply."""
        if self.count == 1:
            ticket = tickets[0]
            return b":%d\r\n" % ticket if type(ticket) is int else replies.bulk(ticket)
        return replies.single_tickets(tickets)

    def apart(self, error: TicketError) -> Sequence[TicketRequest]:
        """See TicketRequest.apart."""
        if self.count > 1 and (isinstance(error, SequenceExhausted) or type(error) is Unavailable):
            self._missing = self.count
            self._parts = [SingleTickets(self, self.sequence, 1) for _ in range(self.count)]
        return self._parts

    def answered(self, slot: Slot) -> None:
        """See Place.answered."""
        del slot
        self._missing -= 1
        if not self._missing:
            self._answer(b"".join([part.reply or b"" for part in self._parts]), "apart")

    def fail(self) -> None:
        """See Place.fail."""
        self.place.fail()

    @property
    def client(self) -> str:
        """See Place.client."""
        return self.place.client

    def drop(self) -> None:
        """See Slot.drop."""
        for part in self._parts:
            part.drop()
        super().drop()


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
