"""Whatever happens in whatever order: every request is settled once and in time, no ticket comes twice, nothing sticks.

The model (tests/model) asks this of the protocol between databases; here it is asked of lanes, issuer and front desk,
with errors of every kind in every place, in one process. Failures name their seed.
"""

import asyncio
import random
from itertools import pairwise

import pytest

from app.common.errors import (
    ColumnExhausted,
    MarkRefused,
    RingChanged,
    SequenceMissing,
    SequenceUnavailable,
    SequenceWentBack,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseMisconfigured,
    TicketDatabaseUnavailable,
    TicketError,
)
from app.tickets.lanes.id_guard import WrongResidue
from app.tickets.lanes.lane import Lane
from app.tickets.requests.request import TicketRequest, Tickets
from tests.fakes.ticket_database import FailingDraws, FakeServer
from tests.fakes.ticket_server import REQUEST_TIMEOUT, FakeTicketServer, latency, record_ring
from tests.fakes.virtual_time import virtual_time

SEEDS = range(25)
STEPS = 120
SLACK = 0.1
"""Seconds after its time in which a request is settled at the latest."""
ERRORS = (
    ColumnExhausted,
    MarkRefused,
    RingChanged,
    SequenceMissing,
    SequenceUnavailable,
    SequenceWentBack,
    TicketDatabaseBusy,
    TicketDatabaseHung,
    TicketDatabaseMisconfigured,
    TicketDatabaseUnavailable,
    WrongResidue,
)
EVENTS = {
    "ask": 40.0,
    "leave": 10,
    "thaw": 8,
    "up": 8,
    "faults": 4,
    "hang": 2,
    "lock": 2,
    "close": 2,
    "down": 1,
    "restart": 1,
    "lose": 1,
    "suspend": 1,
    "exhaust": 0.5,
    "mark down": 0.5,
    "stall": 0.5,
    "forget": 0.3,
}
"""What happens, and how often."""
LONGEST_STALL = 3.0
"""Seconds for which the process stands still."""


class Faulty(FailingDraws):
    """Answers some draws with an error, made or not; marks too."""

    chance: random.Random
    faults = 0.0

    def fault(self) -> TicketDatabaseError | None:
        """See FailingDraws.fault."""
        if self.chance.random() >= self.faults:
            return None
        kind = self.chance.choice(ERRORS)
        # one in many: a lane that is exhausted stays so
        return TicketDatabaseBusy() if kind is ColumnExhausted and self.chance.random() < 0.9 else kind()

    async def _statement(self, execute, **how):  # type: ignore[no-untyped-def]
        answer = await super()._statement(execute, **how)
        if how.get("ledger") and (error := self.fault()) is not None:
            raise error
        return answer


class Client(TicketRequest):
    """Notes what it is told, asks once more within the call or not, raises or not."""

    def __init__(self, play: "Play", sequence: str, count: int, *, whole: bool) -> None:
        super().__init__(sequence, count, whole=whole)
        self.play = play
        self.began = asyncio.get_running_loop().time()
        self.told: list[Tickets | TicketError] = []
        self.told_at = 0.0
        self.gone_at: float | None = None

    def give(self, tickets: Tickets) -> None:
        self._tell(tickets)

    def refuse(self, error: TicketError) -> None:
        self._tell(error)

    def _tell(self, what: Tickets | TicketError) -> None:
        assert self.gone_at is None
        self.told.append(what)
        self.told_at = asyncio.get_running_loop().time()
        if self.play.asks_again and self.play.chance.random() < 0.3:
            self.play.ask()
        if self.play.chance.random() < 0.02:
            raise ZeroDivisionError

    def leave(self) -> None:
        if not self.settled:
            self.abandon()
            self.gone_at = asyncio.get_running_loop().time()


class Play:
    """One order of events."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        count = chance.choice([2, 3])
        clock = asyncio.get_running_loop().time
        self.servers = [FakeServer(n, count, ["photos", "ending"], clock) for n in range(1, count + 1)]
        record_ring(self.servers)
        left = chance.choice([100, 1_000, 10_000])
        for server in self.servers:
            table = server.table("ending")
            table.advance(table.ceiling - left)
        self.clients = []
        for number, server in enumerate(self.servers):
            client = Faulty(
                server,
                largest_block=chance.choice([50, 1_000]),
                latency=latency(seed * 10 + number, chance.choice([0.002, 0.02, 0.15])),
            )
            client.chance = random.Random(seed * 100 + number)
            self.clients.append(client)
        self.server = FakeTicketServer(self.clients, clock=clock)
        self.requests: list[Client] = []
        self.lanes: dict[Lane, None] = {}
        self.asks_again = True

    def ask(self) -> None:
        chance = self.chance
        sequence = chance.choices(["photos", "ending", "nosuch", "no name"], [60, 40, 2, 1])[0]
        count = chance.choice([1, 1, 1, 2, 5, 20, 70])
        request = Client(self, sequence, count, whole=chance.random() < 0.2)
        self.requests.append(request)
        self.server.desk.accept(request)

    def happen(self) -> None:
        """Something, at this moment."""
        chance = self.chance
        self.lanes |= dict.fromkeys(self.server.catalog.lanes.values())
        what = chance.choices(list(EVENTS), list(EVENTS.values()))[0]
        if what == "ask":
            for _ in range(chance.choice([1, 1, 3, 30])):
                self.ask()
        elif what == "leave":
            for request in [*chance.sample(self.requests, min(3, len(self.requests))), *self.requests[-1:]]:
                request.leave()
        elif what == "stall":
            asyncio.get_running_loop().clock.now += chance.choice([0.1, 0.6, LONGEST_STALL])  # type: ignore[attr-defined]
        elif what == "forget":
            self.server.catalog.forget()
        elif what == "mark down":
            self.server.ring.mark_down(chance.choice(self.server.ring.members), "for a test")
        elif what in {"close", "suspend", "exhaust"}:
            self.happen_to_lane(what, chance.choice([*self.lanes]) if self.lanes else None)
        else:
            self.happen_to_database(what, chance.choice(self.clients))

    def happen_to_lane(self, what: str, lane: Lane | None) -> None:
        if lane is None:
            return
        if what == "close":
            lane.close()
        elif what == "suspend":
            lane.suspend((SequenceWentBack if self.chance.random() < 0.5 else SequenceUnavailable)("for a test"))
        else:
            lane.report(ColumnExhausted())

    def happen_to_database(self, what: str, client: Faulty) -> None:
        server = client.server
        if what == "hang":
            server.hang()
        elif what == "thaw":
            server.thaw()
            server.unlock()
        elif what == "lock":
            server.lock(self.chance.choice(["photos", "ending"]))
        elif what in {"down", "up"}:
            server.down = what == "down"
        elif what == "restart":
            server.restart()
        elif what == "faults":
            client.faults = self.chance.choice([0, 0, 0.05, 0.3])
        else:
            server.loses_replies += 1

    async def run(self) -> None:
        await self.server.start()
        for _ in range(STEPS):
            self.happen()
            await asyncio.sleep(self.chance.choice([0, 0, 0.001, 0.01, 0.1]))
        self.asks_again = False
        for server, client in zip(self.servers, self.clients, strict=True):
            client.faults = 0
            server.heal()
        if self.chance.random() < 0.3:  # the end comes before the last are answered
            await self.server.issuer.close()
            await self.server.stop()
        await asyncio.sleep(REQUEST_TIMEOUT + 4)  # a lane that is opened for somebody who has gone takes its time
        self.check()
        await self.server.stop()

    def check(self) -> None:
        server = self.server
        given: dict[str, set[int]] = {"photos": set(), "ending": set()}
        for request in self.requests:
            assert len(request.told) == (request.gone_at is None), request.told
            assert request.settled
            assert request.lane is None
            for tickets in request.told:
                assert request.told_at - request.began <= REQUEST_TIMEOUT + SLACK + LONGEST_STALL
                if isinstance(tickets, TicketError):
                    continue
                assert len(tickets) == request.count
                assert all(one < next_one for one, next_one in pairwise(tickets))
                assert len({ticket % len(self.servers) for ticket in tickets}) == 1
                assert not request.whole or isinstance(tickets, range)
                assert given[request.sequence].isdisjoint(tickets), "a ticket came twice"
                given[request.sequence].update(tickets)
        assert server.metrics.in_flight == 0
        self.lanes |= dict.fromkeys(server.catalog.lanes.values())
        for lane in self.lanes:
            assert repr(lane).endswith(f"{lane.state}, 0 waiting>")  # neither busy nor collecting a list
            assert not lane.waiting
        assert repr(server.issuer) == "<TicketIssuer 0 waiting, 0 places watched>"  # and its timer is not set


@pytest.mark.parametrize("seed", SEEDS)
def test_every_request_is_settled_once_whatever_happens(seed: int) -> None:
    @virtual_time
    async def scenario() -> None:
        await Play(seed).run()

    scenario()
