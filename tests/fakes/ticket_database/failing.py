"""A ticket server's side of a fake server on which a test lets draws fail after the server has made them."""

from collections.abc import Callable

from app.common.errors import TicketDatabaseError
from app.databases.protocol import Drawn, Residue, Table
from tests.fakes.ticket_database.client import FakeTicketDatabase


class FailingDraws(FakeTicketDatabase):
    """Answers a draw with the error that `fault` returns, and as usual where it returns none."""

    def fault(self) -> TicketDatabaseError | None:
        """The error that takes the place of the next answer."""
        raise NotImplementedError

    def start_draw(
        self,
        residue: Residue,
        table: Table,
        count: int,
        after: int,
        done: Callable[[Drawn], None],
        *,
        least: int = 0,
    ) -> None:
        """See TicketDatabase.start_draw."""
        super().start_draw(residue, table, count, after, lambda drawn: done(self.fault() or drawn), least=least)
