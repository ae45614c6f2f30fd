"""Who waits in a lane, and who is served by one statement."""

from collections import deque
from collections.abc import Sequence

from app.tickets.requests.request import TicketRequest, Tickets

SINGLY = 64
"""The longest list that is drawn one ticket at a time where several are not certain to fit."""

MOST_REQUESTS = 512
"""Requests that one statement serves: to answer them is a few milliseconds, in which nothing else happens."""

Batch = Sequence[TicketRequest]


class LaneQueue:
    """First come, first served. A request waits here as long as its `lane` is this queue's.

    `lane`: what a request's `lane` is while the request waits here.
    `under_way`: the batch that the present statement draws for. Close to the end of a sequence, what does not fit into
    one statement is drawn in parts: the next `_alone` requests one by one, and a list ticket by ticket (`_collected`).
    """

    def __init__(self, lane: object) -> None:
        self.under_way: Batch = ()
        self._lane = lane
        self._waiting: deque[TicketRequest] = deque()
        self._alone = 0
        self._collected: list[int] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: TicketRequest) -> None:
        """Queue a request."""
        request.lane = self._lane
        self._waiting.append(request)

    def next_batch(self, limit: int) -> tuple[Batch, int]:
        """As many of those who wait as a statement of `limit` tickets can serve, and how many it is to draw.

        They are under way from now on. A request for more than the limit is sent on to the next lane.
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
        """Send those of them who still wait here on to the next lane."""
        for request in requests:
            if request.lane is self._lane:
                request.answer(None)

    def fail_over_expired(self, now: float) -> None:
        """Send on every request whose time here is over; it need not be the oldest one."""
        self.fail_over([request for request in (*self.under_way, *self._waiting) if request.until <= now])

    def fail_over_all(self) -> None:
        """Send everybody on. What the statement under way draws becomes a gap."""
        waiting = (*self.under_way, *self._waiting)
        self._waiting.clear()
        self._alone = 0
        self.fail_over(waiting)

    def forget_statement(self) -> None:
        """Nothing that comes back is for anybody."""
        self.under_way = ()
        self._collected = None

    # --- close to the end ------------------------------------------------------------------------------------------

    @property
    def is_collecting(self) -> bool:
        """Whether a list is being drawn ticket by ticket."""
        return self._collected is not None

    def draw_one_by_one(self, batch: Batch) -> None:
        """Draw for each of these requests by itself, before anybody else."""
        self._waiting.extendleft(reversed(batch))
        self._alone = len(batch)

    def draw_ticket_by_ticket(self) -> None:
        """Collect the tickets of the one request that is under way."""
        self._collected = []

    def stop_collecting(self) -> None:
        """What was collected becomes a gap."""
        self._collected = None

    def collect(self, ticket: int) -> Tickets | None:
        """One more ticket of a list; all of them when it is complete."""
        collected = self._collected
        assert collected is not None
        collected.append(ticket)
        if len(collected) < self.under_way[0].count:
            return None
        self._collected = None
        return collected
