"""The queue of a lane: the requests that wait, and the batch that one statement serves."""

from collections import deque
from collections.abc import Sequence

from app.tickets.requests.request import TicketRequest, Tickets

SINGLY = 64
"""The longest list that is drawn one ticket at a time, if it is not certain that all its tickets are left."""

MOST_REQUESTS = 512
"""The most requests that one statement serves. Answering them takes a few milliseconds, and delays everything else."""

Batch = Sequence[TicketRequest]


class LaneQueue:
    """Requests, first come, first served. A request waits here as long as its `lane` is the queue's.

    Near the end of a sequence, a batch that does not fit into one statement is drawn in parts: several requests one by
    one, a short list ticket by ticket.

    `under_way`: the batch that the present statement draws for.
    """

    def __init__(self, lane: object) -> None:
        self.under_way: Batch = ()
        self._lane = lane
        self._waiting: deque[TicketRequest] = deque()
        self._alone = 0
        """How many of the next requests are drawn for one by one."""
        self._collected: list[int] | None = None
        """The tickets drawn so far for the list under way; None unless it is drawn ticket by ticket."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: TicketRequest) -> None:
        """Queue a request."""
        request.lane = self._lane
        self._waiting.append(request)

    def next_batch(self, limit: int) -> tuple[Batch, int]:
        """The next requests that a statement of `limit` tickets can serve, and the number of tickets to draw for them.

        The batch is under way from now on. A request for more than the limit is sent on to the next lane.
        """
        if self._collected is not None:
            if self.under_way[0].lane is self._lane:
                return self.under_way, 1
            self._collected = None
        waiting, alone = self._waiting, self._alone > 0
        batch: list[TicketRequest] = []
        total = 0
        while waiting and len(batch) < MOST_REQUESTS:
            if batch and (alone or total + waiting[0].count > limit):
                break
            request = waiting.popleft()
            if alone:
                self._alone = max(self._alone - 1, 0)
            if request.lane is not self._lane:
                continue
            if request.count > limit:
                request.answer(None)
                continue
            batch.append(request)
            total += request.count
        self.under_way = batch
        return batch, total

    # --- sending on ------------------------------------------------------------------------------------------------

    def fail_over(self, requests: Batch) -> None:
        """Send the requests of a batch that still wait here on to the next lane."""
        for request in requests:
            if request.lane is self._lane:
                request.answer(None)

    def fail_over_expired(self, now: float) -> None:
        """Send on every request whose `until` is not after `now`, in the event loop's time."""
        self.fail_over([request for request in (*self.under_way, *self._waiting) if request.until <= now])

    def fail_over_all(self) -> None:
        """Send every request on. The tickets of the statement under way become a gap."""
        waiting = (*self.under_way, *self._waiting)
        self._waiting.clear()
        self._alone = 0
        self.fail_over(waiting)

    def forget_statement(self) -> None:
        """Forget the batch under way: its requests have been sent on."""
        self.under_way = ()
        self._collected = None

    # --- close to the end ------------------------------------------------------------------------------------------

    @property
    def is_collecting(self) -> bool:
        """Whether a list is being drawn ticket by ticket."""
        return self._collected is not None

    def draw_one_by_one(self, batch: Batch) -> None:
        """Draw for each of these requests by itself, before all others."""
        self._waiting.extendleft(reversed(batch))
        self._alone = len(batch)

    def draw_ticket_by_ticket(self) -> None:
        """Collect the tickets of the one request under way."""
        self._collected = []

    def stop_collecting(self) -> None:
        """Make the collected tickets a gap."""
        self._collected = None

    def collect(self, ticket: int) -> Tickets | None:
        """Add a ticket to the list. Returns the list when it is complete, else None."""
        collected = self._collected
        assert collected is not None
        collected.append(ticket)
        if len(collected) < self.under_way[0].count:
            return None
        self._collected = None
        return collected
