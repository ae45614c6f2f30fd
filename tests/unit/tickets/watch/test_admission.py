"""How databases are taken in while one of those that are up fails."""

import asyncio
from collections.abc import Iterable

from app.common.errors import TicketDatabaseUnavailable
from app.databases.protocol import RingRecord, Table
from app.tickets.ring.ring import Member, Status
from tests.fakes.ticket_server import Site
from tests.fakes.virtual_time import virtual_time


def test_one_that_fails_while_the_ring_is_agreed_on_leaves_it_at_once() -> None:
    """A database wants to join, and the one that is up is asked what it holds: nothing is drawn from that one any more
    until it has been probed again."""

    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            first, second = site.servers
            first.state.ring = RingRecord(2, 2, 2, (1,), own=1)  # it has grown, by the place that the second takes
            second.state.ring = None
            second.down = True
            server = await site.ticket_server()
            one, other = server.ring.members
            assert one.up
            tables = one.database.tables

            async def broken(names: Iterable[str]) -> dict[str, Table]:
                if other.status is not Status.QUARANTINED and not second.down:
                    raise TicketDatabaseUnavailable("broke off while it was asked")
                return await tables(names)

            one.database.tables = broken  # type: ignore[method-assign]
            seen: list[tuple[Status, str | None]] = []

            def changed(member: Member) -> None:
                if member is other and member.status is Status.QUARANTINED:
                    seen.append((one.status, one.last_error))

            server.ring.follow(changed)
            second.down = False
            while not seen:
                await server.ring.wait_for_change(5, expected=True)
            assert seen[0] == (Status.DOWN, "broke off while it was asked")
            assert "has to start above" in str(other.last_error)
            await asyncio.sleep(3)
            assert [member.status for member in server.ring.members] == [Status.UP, Status.UP]

    scenario()


@virtual_time
async def test_one_that_comes_and_cannot_say_what_it_keeps_is_down_for_that_reason() -> None:
    """Operators read the reason; it is not up, so it does not go on drawing like one that is."""
    async with Site(2) as site:
        site.servers[1].state.ring = None
        site.servers[1].ledger_fails = True
        server = await site.ticket_server()
        second = server.ring.members[1]
        assert second.status is Status.DOWN
        assert second.last_error == "has a damaged table for it"
        site.servers[1].ledger_fails = False
        await asyncio.sleep(2)
        assert second.up
