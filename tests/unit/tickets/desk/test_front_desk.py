"""The front desk: every request is counted and settled once, whatever becomes of it."""

import asyncio

import pytest

from app.common.errors import Draining, InvalidRequest, NoTicketDatabase, OutOfTime, TicketError, UnknownSequence
from app.tickets.requests.request import TicketRequest, Tickets
from tests.fakes.ticket_server import REQUEST_TIMEOUT, FakeTicketServer, Site
from tests.fakes.virtual_time import settled, virtual_time


class Noted(TicketRequest):
    """Notes every call."""

    def __init__(self, sequence: str = "photos", count: int = 1, *, whole: bool = False) -> None:
        super().__init__(sequence, count, whole=whole)
        self.given: list[Tickets | TicketError] = []

    def give(self, tickets: Tickets) -> None:
        self.given.append(tickets)

    def refuse(self, error: TicketError) -> None:
        self.given.append(error)


def counted(server: FakeTicketServer) -> dict[tuple[str, str], int]:
    assert server.metrics.in_flight == 0
    return dict(server.metrics.requests)


@virtual_time
async def test_an_answer_is_counted_with_its_time() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await server.desk.take("photos")
        await server.desk.take("photos", 5)
        await server.desk.take("photos", 5, whole=True)
        assert counted(server) == {("ticket", "ok"): 2, ("block", "ok"): 1}
        assert sum(server.metrics.issue_seconds.counts) == 3


@virtual_time
async def test_each_refusal_has_its_own_word() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        with pytest.raises(InvalidRequest):
            await server.desk.take("no name")
        with pytest.raises(UnknownSequence):
            await server.desk.take("nosuch", whole=True)
        for database in site.servers:
            database.down = True
        with pytest.raises(NoTicketDatabase):
            await server.desk.take("photos")
        server.desk.closed = True
        with pytest.raises(Draining):
            await server.desk.take("photos")
        server.desk.turn_away("ticket", "denied")
        words = [("ticket", word) for word in ("invalid", "unavailable", "draining", "denied")]
        assert counted(server) == dict.fromkeys([*words, ("block", "unknown")], 1)
        assert sum(server.metrics.issue_seconds.counts) == 0


@virtual_time
async def test_out_of_time_is_a_refusal_too() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await server.desk.take("photos", 2)
        began = asyncio.get_running_loop().time()
        for database in site.servers:
            database.hang()
        with pytest.raises((OutOfTime, NoTicketDatabase)):
            await server.desk.take("photos")
        assert asyncio.get_running_loop().time() - began <= REQUEST_TIMEOUT + 0.1
        assert sum(counted(server).values()) == 1 or counted(server)["ticket", "ok"] == 1


@pytest.mark.parametrize("steps", range(0, 12))
def test_one_that_is_abandoned_at_any_moment_is_settled_and_its_ticket_is_nobodys(steps: int) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2, ["photos", "other"]) as site:
            server = await site.ticket_server()
            request = Noted("other" if steps % 2 else "photos")
            server.desk.accept(request)
            await asyncio.sleep(0.001 * steps)
            was_given = list(request.given)
            request.abandon()
            request.abandon()
            await asyncio.sleep(1)
            assert request.given == was_given
            assert server.metrics.in_flight == 0
            ids = [await server.desk.take(request.sequence) for _ in range(4)]
            assert len({ticket for tickets in [*ids, *was_given] for ticket in tickets}) == 4 + len(was_given)  # type: ignore[union-attr]

    scenario()


@virtual_time
async def test_a_task_that_is_cancelled_abandons_its_request() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        task = asyncio.create_task(server.desk.take("photos"))
        await settled()
        assert server.metrics.in_flight == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert server.metrics.in_flight == 0


@virtual_time
async def test_requests_fail_over_from_one_lane_to_the_next_and_are_settled_once() -> None:
    async with Site(3) as site:
        server = await site.ticket_server()
        await server.desk.take("photos", 2)
        requests = [Noted() for _ in range(30)]
        for database in site.servers[:2]:
            database.hang()
        for request in requests:
            server.desk.accept(request)
        await asyncio.sleep(REQUEST_TIMEOUT + 0.5)
        assert all(len(request.given) == 1 for request in requests)
        tickets = [request.given[0] for request in requests]
        assert all(isinstance(each, range) and each[0] % 3 == 0 for each in tickets)
        site.servers[0].thaw()
        site.servers[1].thaw()
        await asyncio.sleep(1)
        assert all(len(request.given) == 1 for request in requests)
        assert server.metrics.in_flight == 0


class Raises(Noted):
    """Cannot be told anything."""

    def give(self, tickets: Tickets) -> None:
        super().give(tickets)
        raise ZeroDivisionError

    def refuse(self, error: TicketError) -> None:
        super().refuse(error)
        raise ZeroDivisionError


@pytest.mark.parametrize("healthy", [True, False])
def test_who_raises_when_it_is_told_loses_nobody_elses_answer(healthy: bool) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            server = await site.ticket_server()
            await server.desk.take("photos", 2)
            for database in site.servers:
                database.down = not healthy
            requests = [Raises() if number % 3 == 0 else Noted() for number in range(30)]
            for request in requests:
                server.desk.accept(request)
            await asyncio.sleep(REQUEST_TIMEOUT + 0.5)
            assert [len(request.given) for request in requests] == [1] * 30
            assert all(isinstance(request.given[0], range) is healthy for request in requests)
            assert server.metrics.in_flight == 0
            if healthy:  # nobody was sent on to be drawn for once more
                assert len({request.given[0][0] for request in requests}) == 30  # type: ignore[index]
                assert sum(drawn.size for database in site.servers for _, drawn, _ in database.draws) == 2 + 30

    scenario()


@virtual_time
async def test_an_observer_that_raises_costs_nobody_an_answer() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()

        def breaks(*_: object) -> None:
            raise ZeroDivisionError

        server.metrics.requests_answered = breaks  # type: ignore[assignment,method-assign]
        server.metrics.requests_refused = breaks  # type: ignore[assignment,method-assign]
        async with asyncio.timeout(REQUEST_TIMEOUT):
            assert await server.desk.take("photos") is not None
            with pytest.raises(UnknownSequence):
                await server.desk.take("nosuch")
        assert server.metrics.in_flight == 0


@pytest.mark.parametrize("sequence", ["photos", "nosuch"])
@pytest.mark.parametrize("steps", range(0, 8))
def test_the_end_of_the_server_refuses_who_still_waits(steps: int, sequence: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            server = await site.ticket_server()
            for database in site.servers:
                database.hang()
            request = Noted(sequence)
            server.desk.accept(request)
            await asyncio.sleep(0.1 * steps)
            for database in site.servers:
                database.thaw()
            late = Noted("nosuch")
            server.desk.accept(late)
            await server.issuer.close()
            await server.stop()
            await asyncio.sleep(REQUEST_TIMEOUT + 1)
            assert len(request.given) == len(late.given) == 1
            assert isinstance(late.given[0], Draining)
            assert server.metrics.in_flight == 0

    scenario()
