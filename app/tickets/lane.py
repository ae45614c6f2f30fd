"""A lane: one sequence on one database, as this server draws and issues it (rules 1 to 4).

A lane is a list of requests and a task that serves them. The task opens the lane, draws with one statement for all that
wait, and issues what was drawn in the order of the requests. Ids drawn ahead are the lane's stock, filled by the same
statement; a request takes from the stock first.

A lane is open while the life of its database and the era of the sight are those that it was opened under. The lane
compares them itself, before each step and after each wait, so no other part has to close it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from app.databases.session import Mark, Residue, Want, most_ids
from app.errors import (
    DatabaseError,
    DatabaseFailed,
    Defect,
    InvalidRequest,
    NoAnswer,
    SequenceError,
    SequenceExhausted,
    SequenceMissing,
    TicketError,
    Unavailable,
    Unverified,
)
from app.tickets.marks import Outcome, mark_everywhere
from app.tickets.opening import LaneSpec, Opened, Opener
from app.tickets.request import Request
from app.tickets.step import Rate, Reserve
from app.tickets.stock import Stock
from app.tickets.tasks import Tasks

log = logging.getLogger(__name__)
Again = Callable[["Lane", Sequence[Request], TicketError], None]

NO_ROOM = 0.001  # seconds to wait where the kind's clock has no room for the ids that are wanted


class Lane:
    """One sequence on one database.

    spec: which lane. opener: of this server. again: called with the requests that this lane could not serve, and why.
    reserve: how many ids are drawn ahead. refuses: whether an unprotected lane issues nothing.
    given: how many ids were issued since the start. together: how many clients the last statement has answered.
    highest: the largest id that was drawn, 0 while the lane is closed.
    """

    def __init__(self, spec: LaneSpec, opener: Opener, again: Again, reserve: Reserve, *, refuses: bool) -> None:
        self.spec, self.member, self._opener, self._again = spec, spec.member, opener, again
        self._sight, self._floors = opener.sight, opener.floors
        self._reserve, self._refuses, self._longest_age = reserve, refuses, reserve.longest_age
        self._key = spec.sequence.lower()
        self.has_reserve = reserve.seconds > 0
        self.waiting: deque[Request] = deque()
        self.task: asyncio.Task[None] | None = None
        self._tasks = Tasks()
        self._marking: asyncio.Task[None] | None = None
        self._rate = Rate()
        self._opened: Opened | None = None
        self.stock = Stock(1)
        self.highest = self._remembered = self.given = self.together = 0
        self._limit = self._half = self._generation = self._low = 0
        self._wants_refill = self._near_end = False

    def __repr__(self) -> str:
        state = "closed" if self._opened is None else f"highest {self.highest} limit {self._limit_now}"
        return f"<lane {self.spec.row} {state} stock {self.stock.size} waiting {len(self.waiting)}>"

    @property
    def is_unprotected(self) -> bool:
        """Whether a database that comes back older could repeat what this lane issues now (rule 3)."""
        return self._sight.alone(self.member) or not (self._opened is None or self._opened.sure or self._sight.whole)

    # --- what the issuer calls ---------------------------------------------------------------------------------------

    def ask(self, requests: Iterable[Request], *, first: bool = False) -> None:
        """Let these requests wait for ids. first: before those that wait already, in the same order."""
        if first:
            self.waiting.extendleft(reversed(list(requests)))
        else:
            self.waiting.extend(requests)
        self._start()

    def ready(self) -> int | None:
        """Issue the next id in stock, outside of any request; None where a request would have to wait."""
        since = self._sight.clock() - self._longest_age
        issued = self.stock.pop(self._limit_now, since) if self._may_give() else None
        if issued is not None:
            self._note(1)
        return issued

    def serve(self, request: Request) -> bool:
        """Answer a request from the stock; False where it has to wait."""
        drawn = self.stock.take(request, self._limit_now) if self.in_stock and self._may_give() else None
        if drawn is None:
            return False
        self._note(request.count)
        request.finish(drawn)
        return True

    def _may_give(self) -> bool:
        return not self.waiting and self.stock.size > 0 and self._is_open() and self._may_issue()

    @property
    def in_stock(self) -> int:
        """How many ids may be issued without a database."""
        self._drop_old()
        return 0 if self._refuses and self.is_unprotected else self.stock.size

    def _drop_old(self) -> None:
        self.member.counts.gaps["too old"] += self.stock.drop_older(self._sight.clock() - self._longest_age)

    def close(self) -> None:
        """Close the lane and drop its stock. The next request opens it again."""
        self._opened, self._marking, self._near_end = None, None, False
        self._remembered = max(self._remembered, self.highest)
        self.member.counts.gaps["closed"] += self.stock.clear()
        self.highest = self._limit = 0

    async def end(self) -> None:
        """End the lane's tasks and close it."""
        if (task := self.task) is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._tasks.end()
        self.close()

    # --- serving -----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self.task is None and (self.waiting or self._wants_refill):
            self.task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        try:
            while self.waiting or self._wants_refill:
                try:
                    await self._serve()
                except SequenceExhausted as error:
                    self._come_to_the_end(error)
                except (DatabaseError, Unavailable) as error:
                    self._fail(error)
                except Exception:
                    log.exception("%r has met an error that it does not know", self)
                    self.close()
                    self._fail(Defect())
        finally:
            self.task = None

    async def _serve(self) -> None:
        """Make one step towards serving the first request that waits, or towards a full reserve."""
        if self.stock.size:
            self._drop_old()
        while self.waiting and self.waiting[0].is_over:
            self.waiting.popleft()
        if not (self.waiting or self._wants_refill):
            return
        if not self._is_open():
            self.close()
            self._take_up(await self._opener.open(self.spec, self._remembered))
        elif self._wants_refill or not self.stock.has(self.waiting[0]):
            if await self._draw():
                self._issue()
        elif not self._sight.is_fresh():
            await self._sight.moved()
        elif self._refuses and self.is_unprotected:
            raise Unverified
        elif not self._issue():
            await asyncio.shield(self._mark())

    def _is_open(self) -> bool:
        """Whether the lane may go on as it was opened, and no floor has passed what it gives next."""
        opened = self._opened
        return (
            opened is not None
            and self._sight.keeps(self.member, opened.life, opened.era, opened.sure)
            and self._floors.known.get(self._key, 0) < (self.stock.first or self.highest + 1)
        )

    def _is_of_now(self) -> bool:
        """Whether a failure says something of the database as it is now, not in an earlier life or ring."""
        opened, now = self._opened, (self._sight.era, self.member.life)
        return opened is None or (opened.era, opened.life) == now

    def _may_issue(self) -> bool:
        return self._sight.is_fresh() and not (self._refuses and self.is_unprotected)

    def _take_up(self, opened: Opened) -> None:
        """Go on with what the opener found."""
        if (record := self._sight.record) is None or opened.era != self._sight.era:
            return
        self._opened, self.stock = opened, Stock(record.increment)
        self.highest = self.stock.last = opened.highest
        self._set_limit(opened.limit, opened.generation)
        if opened.limit and opened.sure:
            self._mark()  # the first mark says that the lane is sure

    def _issue(self) -> bool:
        """Give the ids at or below the limit to the requests that wait; False where none was served.

        Once half of the limit is used up, the next mark is sent while ids are still issued. The lane is open.
        """
        if not self._may_issue():
            return False
        limit, waiting, stock, clients = self._limit_now, self.waiting, self.stock, 0
        clock, until, before = self._sight.clock, self._sight.fresh_until, stock.size
        while waiting and clock() <= until:  # the process may stand still between any two requests
            request = waiting[0]
            if not request.is_over:
                drawn = stock.take(request, limit)
                if drawn is None:
                    break
                clients += request.clients
                request.finish(drawn)
            waiting.popleft()
        served = before - stock.size
        self._note(served)
        self.together = clients
        if limit and self.highest > self._half:
            self._mark()
        return served > 0

    def _note(self, count: int) -> None:
        """Note that so many ids were issued; fill the reserve again where it is low."""
        self._rate.count += count
        self.given += count
        if self.stock.size < self._low and not self._wants_refill:
            self._wants_refill = True
            self._start()

    def _fail(self, error: TicketError) -> None:
        """Hand the requests on, after the lane's database or its table has failed them."""
        self._wants_refill = False
        if isinstance(error, SequenceError):
            if isinstance(error, SequenceMissing) and self._opened is not None:
                self.close()  # the next step opens it again, or finds that there is no table
                return
        elif isinstance(error, NoAnswer):
            self._sight.look_at(self.member)  # a locked table answers as little as a database that hangs
        elif isinstance(error, DatabaseError) and self.member.life is not None and self._is_of_now():
            self._sight.failed(self.member, error)
        self._hand_back(list(self.waiting), error)

    def _come_to_the_end(self, error: SequenceExhausted) -> None:
        """A draw did not fit: from now on each request is drawn for by itself, and fails if it does not fit either."""
        self._wants_refill = False
        if self._opened is not None and not self._near_end:
            self._near_end = True
        else:
            first = [request for request in list(self.waiting)[:1] if request.count > 1]
            self._hand_back(first or list(self.waiting), error)
            if not first:
                self.close()  # the next request reads the counter anew, whose end may have been put further up

    def _hand_back(self, requests: Sequence[Request], error: TicketError) -> None:
        for _ in requests:
            self.waiting.popleft()
        self._again(self, requests, error)

    # --- drawing -----------------------------------------------------------------------------------------------------

    async def _draw(self) -> bool:
        """Draw for all that wait, and for the reserve, with one statement; False where nothing came of it."""
        opened, step, clock, pace = self._opened, self.stock.step, self._sight.clock, self.spec.pace
        assert opened is not None
        began = clock()
        self._rate.measure(began)
        self._low, self._wants_refill = 0, False
        if self.member.life is None:
            raise DatabaseFailed(f"{self.member.name} is not in sight")
        if self.waiting and self.waiting[0].is_block and self.waiting[0].count > most_ids(step):
            self.waiting.popleft().fail(InvalidRequest(f"a block has {most_ids(step)} ids at most here"))
            return False
        above = max(opened.floor, pace.above())
        room = pace.room(max(self.highest, above), step)
        if self.waiting and room < self.waiting[0].count:
            await asyncio.sleep(NO_ROOM)
            return False
        counter, has_drawn = opened.counter, self.highest > opened.highest
        count, ceiling = min(self._how_many(), room), counter.ceiling
        want = Want(counter.name, count, above, self.highest, ceiling, has_drawn, counter.birth)
        drawn = await self.member.database.draw(want, Residue(self.member.offset, step), opened.life)
        counts, now, last = self.member.counts, clock(), drawn.first + step * (drawn.count - 1)
        counts.note_statement(now - began, drawn.count)
        if self._opened is not opened or not self._is_open():
            counts.gaps["closed"] += drawn.count
            return False
        if drawn.first <= self.highest or last > counter.ceiling:
            counts.violations["order" if drawn.first <= self.highest else "ceiling"] += 1
            self.close()  # the counter is not where it was
            return False
        self.highest = last
        self.stock.add(drawn.first, drawn.count, now)
        return True

    def _how_many(self) -> int:
        """How many ids to draw: for a block all of them anew, since they have to follow each other."""
        first = self.waiting[0].count if self.waiting else 1
        if self._near_end:
            return first
        reserve = self._reserve.size(self._rate.per_second, self._left())
        self._low = reserve // 2  # the reserve is filled again below that
        wanted = sum([request.count for request in self.waiting]) + reserve - self.stock.size
        return min(max(wanted, first), most_ids(self.stock.step))

    def _left(self) -> int:
        """How many ids the lane can still draw."""
        return (self._opened.counter.ceiling - self.highest) // self.stock.step if self._opened is not None else 0

    # --- limits ------------------------------------------------------------------------------------------------------

    @property
    def _limit_now(self) -> int:
        """The largest id that may be issued; 0 once a database has come into sight since the limit was set."""
        return self._limit if self._generation == self._sight.generation else 0

    def _set_limit(self, limit: int, generation: int) -> None:
        self._limit, self._generation = limit, generation
        self._half = (self.highest + limit) // 2

    def _mark(self) -> asyncio.Task[None]:
        """Raise the limit, unless that is under way already; return the task that does it."""
        if self._marking is None or self._marking.done():
            self._marking = self._tasks.start(self._raise_limit())
        return self._marking

    async def _raise_limit(self) -> None:
        """Send one mark, once no database is in doubt, and take up what became of it."""
        sight, opened = self._sight, self._opened
        await sight.confirmed()
        if opened is None or self._opened is not opened or not self._is_open():
            return
        step = self.spec.pace.step(self._rate.per_second, self._left(), self.stock.step)
        limit = min(self.highest + step, opened.counter.ceiling)
        generation, mark = sight.generation, Mark(self.spec.row, opened.tenure, limit, self.stock.last, opened.sure)
        outcome = await mark_everywhere(sight, self.member, mark, opened.era)
        if self._opened is not opened:
            pass
        elif outcome is Outcome.STANDS:
            self._set_limit(limit, generation)
        elif outcome is Outcome.LOST:
            self.member.counts.gaps["no mark"] += self.stock.drop_above(self._limit_now)
        elif outcome is Outcome.REFUSED:
            self.close()
