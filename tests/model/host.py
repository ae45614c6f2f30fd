"""Where one ticket server runs: its process, which may stand still, be stopped, killed, and started again."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, Protocol

from app.databases.protocol import Draw
from app.lane import Lane
from app.waiters import Tickets, Waiter
from tests.fakes.ticket_database import FakeServer, FakeTicketDatabase
from tests.fakes.ticket_server import FakeTicketServer
from tests.fakes.virtual_time import VirtualClock, VirtualLoop

LARGEST_BLOCK = 10_000


class Surroundings(Protocol):
    """What a host needs of the world."""

    clock: VirtualClock
    servers: list[FakeServer]
    errors: list[BaseException]

    def latency(self, *, slow: bool) -> tuple[float, float]: ...

    def toss_a_coin(self, heads: float = 0.5) -> bool: ...

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None: ...

    def in_trouble_since(self, host: "Host", server: FakeServer) -> float: ...

    def handed_out(self, host: "Host", lane: Lane, tickets: Tickets) -> None: ...


class Drawn(NamedTuple):
    """A draw, and which other databases this ticket server could ask, and knew that it could, when it was made."""

    draw: Draw
    at: float
    witnesses: tuple[tuple[FakeServer, str], ...]


class WatchedLane(Lane):
    """A lane that tells the world of all it hands out, at that moment."""

    def __init__(self, host: "Host", *of_a_lane: Any) -> None:
        super().__init__(*of_a_lane)
        self._host = host
        self._number = host.number_of_a_lane()

    def __hash__(self) -> int:
        """Not of its place in memory: sets of lanes have the order that the seed gives."""
        return self._number

    def ask(self, waiter: Waiter) -> None:
        super().ask(_Watched(waiter, partial(self._host.handed_out, self)))


class _Watched:
    """A waiter whose tickets are noted before it gets them."""

    __slots__ = ("_note", "_waiter", "count", "until", "whole")

    def __init__(self, waiter: Waiter, note: Callable[[Tickets], None]) -> None:
        self.count = waiter.count
        self.whole = waiter.whole
        self.until = waiter.until
        self._waiter = waiter
        self._note = note

    def is_gone(self) -> bool:
        return self._waiter.is_gone()

    def answer(self, tickets: Tickets | None) -> None:
        if tickets is not None:
            self._note(tickets)
        self._waiter.answer(tickets)


class Host:
    """One ticket server's process, again and again. `refuses`: TICKETS_UNVERIFIED=refuse."""

    def __init__(self, number: int, world: Surroundings, *, refuses: bool) -> None:
        self.number = number
        self.name = f"tickets-{number}"
        self.refuses = refuses
        self.slow: set[FakeServer] = set()
        self.stands_until = 0.0
        self.well_since = 0.0
        self.answers = 0
        self.stopped = True
        self._lanes = 0
        self._wakes_at = 0.0
        self._armed: tuple[int, float] | None = None
        self._world = world
        self.start()

    def number_of_a_lane(self) -> int:
        self._lanes += 1
        return self._lanes

    # --- its process -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        world = self._world
        self.loop = VirtualLoop(world.clock)
        self.loop.set_exception_handler(world.on_loop_error)
        self.clients = [self._client(server) for server in world.servers]
        self.server = FakeTicketServer(
            self.clients, clock=world.clock, refuse_unverified=self.refuses, lane=partial(WatchedLane, self)
        )
        self.drawn: dict[tuple[str, int], list[Drawn]] = {}
        self.highest: dict[tuple[str, int], tuple[int, bool]] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.stopped = False
        self.stands_until = 0.0
        self._armed = None
        self.well_since = world.clock.now
        self.tasks.discard(
            self.spawn(self.server.start())
        )  # no client waits for that, and over a slow network it lasts

    def _client(self, server: FakeServer) -> FakeTicketDatabase:
        world = self._world
        client = FakeTicketDatabase(
            server,
            largest_block=LARGEST_BLOCK,
            latency=lambda: world.latency(slow=server in self.slow),
            draws_at_once=world.toss_a_coin,
            connects=lambda: world.toss_a_coin(0.1),
            on_draw=lambda sequence, draw: None if client.closed else self._drew(server, sequence, draw),
        )
        return client

    def stop(self) -> None:
        """SIGKILL: whatever it has not sent stays unsent."""
        if self.stopped:
            return
        self.stopped = True
        self.well_since = math.inf
        self.loop.iterations_left = None
        for client in self.clients:
            client.closed = True
        self.loop.run_until_idle()  # what was about to begin finds everything closed
        for _ in range(3):
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_idle()
        self.loop.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(partial(self._done, self.loop))
        self._wakes_at = 0.0
        return task

    def _done(self, loop: VirtualLoop, task: "asyncio.Task[None]") -> None:
        if loop is self.loop:
            self.tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None and not self.stopped:
                self._world.errors.append(error)

    # --- its time --------------------------------------------------------------------------------------------------

    @property
    def frozen(self) -> bool:
        return self._world.clock.now < self.stands_until

    def freeze(self, seconds: float = math.inf) -> None:
        """SIGSTOP, between two iterations of its event loop."""
        self.stands_until = max(self.stands_until, self._world.clock.now + seconds)
        self.well_since = math.inf

    def freeze_after(self, iterations: int, seconds: float) -> None:
        """The same in the midst of what it does: after so many iterations more."""
        if not self.stopped:
            self._armed = (iterations, seconds)
            self.loop.iterations_left = iterations

    def disarm(self) -> None:
        self._armed = None
        self.loop.iterations_left = None

    def thaw(self) -> None:
        self.stands_until = 0.0
        self._awake()

    def _awake(self) -> None:
        if self.well_since == math.inf and not self.stopped:
            self.well_since = self._world.clock.now
            self._wakes_at = 0.0

    @property
    def has_received(self) -> bool:
        """Whether something has come that it can look at now."""
        return self.loop.has_received and not self.stopped and not self.frozen

    def look_again(self) -> None:
        """Something was done to it from outside."""
        self._wakes_at = 0.0

    def run(self) -> float:
        """Do what can be done now; returns when there is something to do again, if nothing comes from outside."""
        now = self._world.clock.now
        if self.stopped:
            return math.inf
        if now < self.stands_until:
            return self.stands_until
        self._awake()
        if self._wakes_at <= now + 1e-9 or self.loop.has_received:
            self._wakes_at = self.loop.run_until_idle()
            if self._armed is not None and self.loop.iterations_left is not None and self.loop.iterations_left <= 0:
                seconds = self._armed[1]
                self.disarm()
                self._wakes_at = 0.0
                self.freeze(seconds)
                return self.stands_until
        return self._wakes_at

    # --- its network -----------------------------------------------------------------------------------------------

    def client(self, server: FakeServer) -> FakeTicketDatabase:
        return self.clients[server.offset - 1]

    def reaches(self, server: FakeServer) -> bool:
        return not self.client(server).cut and server not in self.slow

    @property
    def reaches_all(self) -> bool:
        return not self.slow and not any(client.cut for client in self.clients)

    def mend(self) -> None:
        """All its networks work again."""
        self.slow.clear()
        for client in self.clients:
            client.cut = False

    # --- what it knew and what it said -----------------------------------------------------------------------------

    def _drew(self, server: FakeServer, sequence: str, draw: Draw) -> None:
        ring = self.server.ring
        keepers = [self._world.servers[m.database.offset - 1] for m in ring.keepers(ring.members[server.offset - 1])]
        witnesses = tuple((other, other.incarnation) for other in keepers if other.well and self.reaches(other))
        self.drawn.setdefault((sequence, server.offset), []).append(Drawn(draw, self._world.clock.now, witnesses))

    def witnesses(self, sequence: str, server: FakeServer, ticket: int) -> list[FakeServer]:
        """Which databases this server knew when the ticket was drawn, and could have asked ever since."""
        for draw, at, witnesses in reversed(self.drawn.get((sequence, server.offset), ())):
            if draw.first <= ticket <= draw.last:
                return [
                    other
                    for other, incarnation in witnesses
                    if other.incarnation == incarnation and self._world.in_trouble_since(self, other) < at
                ]
        return []

    def warns_of(self, server: FakeServer) -> bool:
        """Whether /healthz says now that this database is unprotected."""
        return any(
            warning["database"] == server.name and warning["reason"].startswith("unprotected")
            for warning in self.server.overseer.health()["warnings"]
        )

    def handed_out(self, lane: Lane, tickets: Tickets) -> None:
        if not self.stopped:
            self._world.handed_out(self, lane, tickets)
