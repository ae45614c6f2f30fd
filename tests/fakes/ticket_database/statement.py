"""A statement on its way from a ticket server to a fake server and back."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from app.common.errors import (
    TicketDatabaseError,
    TicketDatabaseUnavailable,
)
from tests.fakes.virtual_time import VirtualLoop

if TYPE_CHECKING:
    from tests.fakes.ticket_database.server import FakeServer


class Client(Protocol):
    """A ticket server's side of a server, as far as the server knows it."""

    server: "FakeServer"
    user: str
    cut: bool
    closed: bool


@dataclass(slots=True, eq=False)
class Statement:
    """A statement that has left its client. It lives on when the client does not: `answered` is told, if it can be."""

    client: Client
    execute: Callable[[], object]
    table: str | None
    back: float
    loop: VirtualLoop
    answered: Callable[[object], object]

    def arrive(self) -> None:
        if self._is_cut_off():
            self.end(TicketDatabaseUnavailable("refuses connections"))
        elif self.client.server.stands_still(self.table):
            self.client.server.stall(self)
        else:
            self.run()

    def run(self) -> None:
        server = self.client.server
        try:
            answer = self.execute()
            if server.loses_replies:
                server.loses_replies -= 1
                answer = TicketDatabaseUnavailable("broke the connection off")
        except TicketDatabaseError as error:
            answer = error
        clock = self.loop.clock
        clock.at(clock.now + self.back, partial(self._come_back, answer))

    def _come_back(self, answer: object) -> None:
        self.end(TicketDatabaseUnavailable("refuses connections") if self._is_cut_off() else answer)

    def _is_cut_off(self) -> bool:
        return self.client.cut or self.client.server.down

    def end(self, answer: object) -> None:
        """Leave the answer, or the error that it is, where the client's event loop looks."""
        self.loop.receive(partial(self.answered, answer))
