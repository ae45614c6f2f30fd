"""The step before a sequence's lanes: a source or a reserve may answer a request itself."""

from app.common.errors import InvalidRequest
from app.tickets.requests.request import Ids, TicketRequest


class Supply:
    """The supply of a sequence of plain tickets: it passes every request on to the lanes.

    Subclasses hand out ids themselves, or turn the lanes' tickets into ids.

    `gives_plain_tickets`: whether its ids are the lanes' tickets as they are.
    """

    gives_plain_tickets = True

    @property
    def issued(self) -> int:
        """How many ids it has handed out, less those that the lanes have counted as handed out."""
        return 0

    def takes(self, request: TicketRequest) -> bool:
        """Whether it takes the request. If not, the caller asks the lanes.

        A request that it takes is settled by the supply, now or later, or passed on with `fail_over`. The supply is
        asked again with each new round of the lanes.
        """
        if request.address is None:
            return False
        request.desk.refuse(request, InvalidRequest(f"{request.sequence} is of kind ticket, which has no shards"))
        return True

    def ready(self, count: int, singly: bool) -> Ids | None:
        """`count` ids that are in memory now, increasing, all from one database; None if it has not got them.

        `singly`: the ids may come from several databases; those from one database increase.
        """
        del count, singly
        return None
