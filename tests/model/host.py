"""Where one ticket server runs: its process, which may stand still, be stopped, killed, and started again."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from app.databases.protocol import Draw
from app.kinds.definition import Definition
from app.tickets.lanes.lane import Lane
from app.tickets.requests.request import Ids, TicketRequest, Tickets
from app.tickets.reserve.reserve import Refill
from app.tickets.sources.instance_number import TABLE as INSTANCES
from tests.fakes.awaited import AwaitedRequest
from tests.fakes.ticket_database import FakeServer, FakeTicketDatabase
from tests.fakes.ticket_server import FakeTicketServer
from tests.model.clocks import RIGHT_SECONDS, Wall
from tests.model.process import Process, Surroundings
from tests.model.runs import Run, smallest_in_both


class HostSurroundings(Surroundings, Protocol):
    """The part of the world that a host uses."""

    reserve_seconds: float

    def in_trouble_since(self, host: "Host", server: FakeServer) -> float: ...

    def handed_out(self, host: "Host", lane: "WatchedLane", tickets: Tickets) -> None: ...

    def drew_instance(self, host: "Host", lane: "WatchedLane", number: int) -> None: ...

    def stamped(self, host: "Host", definition: Definition, ids: Ids, asked: "Asked") -> None: ...


class Drawn(NamedTuple):
    """A draw, and which other databases this ticket server could ask, and knew that it could, when it was made."""

    draw: Draw
    at: float
    witnesses: tuple[tuple[FakeServer, str], ...]


class WatchedLane(Lane):
    """A lane that tells the world of all it hands out, at that moment. `increment`: of the ring it was made for."""

    def __init__(self, host: "Host", *of_a_lane: Any) -> None:
        super().__init__(*of_a_lane)
        self.increment = self.member.database.increment
        self._host = host
        self._number = host.number_of_a_lane()
        self._warned_of: list[range] = []
        """What was drawn ahead while /healthz said that it is unprotected."""

    def __hash__(self) -> int:
        """Not of its place in memory: sets of lanes have the order that the seed gives."""
        return self._number

    def ask(self, request: TicketRequest) -> None:
        """A number for a life of the server is asked for by the server itself: it is watched as all tickets are."""
        if self.sequence == INSTANCES:
            request.answer = partial(self._answered, request.answer)  # type: ignore[method-assign]
        elif isinstance(request, Refill):
            request.answer = partial(self._refilled, request.answer)  # type: ignore[method-assign]
        super().ask(request)

    def _refilled(self, answer: Callable[[Tickets | None], None], tickets: Tickets | None) -> None:
        if isinstance(tickets, range) and self._host.warns_of_lane(self):
            self._warned_of.append(tickets)
        answer(tickets)

    def was_warned_of(self, ticket: int) -> bool:
        """Whether it was drawn ahead while /healthz said that it is unprotected."""
        return any(ticket in tickets for tickets in self._warned_of)

    def _answered(self, answer: Callable[[Tickets | None], None], tickets: Tickets | None) -> None:
        if tickets is not None:
            self._host.drew_instance(self, tickets)
        answer(tickets)


class Asked(NamedTuple):
    """When a request came: the true time, what the server's clock said (ms since 1970), and how often it was set."""

    at: float
    wall_ms: int
    jumps: int


Note = Callable[[WatchedLane, Tickets], None]


class WatchedRequest(AwaitedRequest):
    """A request whose tickets are noted at the moment when they are handed out. `lane_of`: of a sequence, the one that
    drew a ticket."""

    def __init__(
        self,
        note: Callable[["WatchedLane", Tickets], None],
        sequence: str,
        count: int,
        *,
        whole: bool,
        lane_of: "Callable[[str, int], WatchedLane] | None" = None,
    ) -> None:
        super().__init__(sequence, count, whole=whole)
        self._note = note
        self._lane_of = lane_of
        self._noted = False

    def answer(self, tickets: Tickets | None) -> None:
        lane = self.lane
        if tickets is not None:
            assert isinstance(lane, WatchedLane)
            self._note(lane, tickets)
            self._noted = True
        super().answer(tickets)

    def give(self, tickets: Ids) -> None:
        """What no lane has handed out comes from what was drawn ahead."""
        if not self._noted and self._lane_of is not None:
            self._note(self._lane_of(self.sequence, tickets[0]), tickets)
        super().give(tickets)


class KindRequest(WatchedRequest):
    """One for ids of another kind, which are noted at the moment when they are made."""

    def __init__(
        self,
        note: Callable[["WatchedLane", Tickets], None],
        made: Callable[[Ids], None],
        sequence: str,
        count: int,
        shard: int | None,
    ) -> None:
        super().__init__(note, sequence, count, whole=False)
        self._made = made
        if shard is not None:
            self.address = None, shard

    def give(self, tickets: Ids) -> None:
        self._made(tickets)
        super().give(tickets)


class Host(Process):
    """One ticket server's process, again and again.

    `refuses`: TICKETS_UNVERIFIED=refuse. `listed`: TICKETS_DATABASES, `increment`: TICKETS_INCREMENT, both as they are
    set for its next start.
    """

    def __init__(
        self,
        number: int,
        world: HostSurroundings,
        listed: Sequence[FakeServer],
        increment: int | None,
        *,
        refuses: bool,
    ) -> None:
        super().__init__(f"tickets-{number}", world)
        self.number = number
        self.refuses = refuses
        self.listed = tuple(listed)
        self.increment = increment
        self.answers = 0
        self.leaving = False
        self._lanes = 0
        self._world = world
        off = RIGHT_SECONDS * (2 * world.chance.random() - 1)
        self.wall = Wall(world.clock, off)
        self.start()

    def number_of_a_lane(self) -> int:
        self._lanes += 1
        return self._lanes

    # --- its process -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.leaving = False
        self.set_to = self.listed, self.increment
        self.begin(self.listed, self.increment)
        self.server = self.loop.run_until_complete(self._make_server())
        self.drawn: dict[tuple[str, FakeServer], list[Drawn]] = {}
        self.highest: dict[tuple[str, FakeServer, bool], tuple[int, bool]] = {}
        self.last_ids: dict[str, Any] = {}
        self.last_ms = 0
        self.spawn(self._serve())

    async def _make_server(self) -> FakeTicketServer:
        return FakeTicketServer(
            self.clients,
            clock=self.loop.time,
            wall=self.wall,
            refuse_unverified=self.refuses,
            increment=self.increment,
            lane=partial(WatchedLane, self),
            reserve_seconds=self._world.reserve_seconds,
            boot_clock=self._world.clock,
        )

    def lane_of(self, sequence: str, ticket: int) -> WatchedLane:
        """The lane that drew a ticket of a sequence of plain tickets, in its present ring."""
        for lane in self.server.catalog.entries[sequence].rotation.lanes:
            assert isinstance(lane, WatchedLane)
            if (ticket - lane.member.database.offset) % lane.increment == 0:
                return lane
        raise AssertionError(f"{ticket} in {sequence} is of no database")

    async def _serve(self) -> None:
        """Nobody waits for the databases: a server listens before it has looked at them."""
        self.server.domain.start()

    def connect(self, server: FakeServer, offset: int, increment: int) -> FakeTicketDatabase:
        """A side of the database that needs new connections now and then, and tells what it drew."""
        world = self._world
        client: FakeTicketDatabase = self._client(
            server,
            offset,
            increment,
            connects=lambda: world.toss_a_coin(0.1),
            on_draw=lambda sequence, draw: None if client.closed else self._drew(server, sequence, draw),
        )
        return client

    def restart(self) -> None:
        self.stop()
        self.start()

    def leave(self) -> None:
        """SIGTERM, at the end of the drain: what is under way ends, and the last marks are written."""
        self.leaving = True
        self.spawn(self.server.stop())

    def run(self) -> float:
        """See Process.run. One that leaves is gone when it has written its last marks."""
        wakes_at = super().run()
        if self.leaving and not self.stopped and not self.tasks:
            self.stop()
        return wakes_at

    # --- its network -----------------------------------------------------------------------------------------------

    def client(self, server: FakeServer) -> FakeTicketDatabase | None:
        """Its side of this database, None where it does not list it."""
        return next((client for client in self.clients if client.server is server), None)

    def reaches(self, server: FakeServer) -> bool:
        client = self.client(server)
        return client is not None and not client.cut and server not in self.slow

    @property
    def reaches_all(self) -> bool:
        return not self.slow and not any(client.cut for client in self.clients)

    def mend(self) -> None:
        """All its networks work again."""
        self.slow.clear()
        for client in self.clients:
            client.cut = False

    # --- what it knew and what it said -----------------------------------------------------------------------------

    def up_witnesses(self, server: FakeServer) -> list[FakeServer]:
        """The databases that it knows to keep marks about this one now."""
        ring = self.server.ring
        listed = [client.server for client in self.clients]
        member = ring.members[listed.index(server)]
        return [listed[other.database.offset - 1] for other in ring.witnesses(member)]

    def _drew(self, server: FakeServer, sequence: str, draw: Draw) -> None:
        up = self.up_witnesses(server)
        witnesses = tuple((other, other.incarnation) for other in up if other.well and self.reaches(other))
        self.drawn.setdefault((sequence, server), []).append(Drawn(draw, self._world.clock.now, witnesses))

    def witnesses(self, sequence: str, server: FakeServer, ticket: int) -> list[FakeServer]:
        """Which databases this server knew when the ticket was drawn, and could have asked ever since."""
        for draw, at, witnesses in reversed(self.drawn.get((sequence, server), ())):
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
            for warning in self.server.admin.health()["warnings"]
        )

    def warns_of_lane(self, lane: WatchedLane) -> bool:
        """The same, of a lane's database."""
        database = lane.member.database
        assert isinstance(database, FakeTicketDatabase)
        return self.warns_of(database.server)

    def holds_unprotected(self, lane: WatchedLane) -> bool:
        """Whether tickets of its lie in reserve that nobody kept a mark of."""
        entry = self.server.catalog.entries.get(lane.sequence)
        reserve = None if entry is None else entry.reserve
        return reserve is not None and any(member is lane.member for member, _ in reserve.unprotected())

    def holds(self, sequence: str, run: Run) -> bool:
        """Whether any of these lie in reserve."""
        entry = None if self.stopped else self.server.catalog.entries.get(sequence)
        if entry is None or entry.reserve is None:
            return False
        pieces = [piece for shelf in entry.reserve.shelves for piece in shelf.left() if piece.size]
        lie = (Run(piece.next_id, piece.end - piece.step, piece.step) for piece in pieces)
        return any(smallest_in_both(run, each) is not None for each in lie)

    def drew_instance(self, lane: WatchedLane, tickets: Tickets) -> None:
        if not self.stopped:
            self._world.handed_out(self, lane, tickets)
            self._world.drew_instance(self, lane, tickets[0])

    def stamped(self, definition: Definition, asked: Asked, ids: Ids) -> None:
        """It has made ids. What a killed one made is nobody's."""
        if not self.stopped:
            self._world.stamped(self, definition, ids, asked)

    def handed_out(self, lane: WatchedLane, tickets: Tickets) -> None:
        if not self.stopped:
            self._world.handed_out(self, lane, tickets)
