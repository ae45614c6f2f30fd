"""An operator's changes to the ring: settings, configurations, `ticketd grow`, by the runbook and by mistake."""

from collections.abc import Sequence

from app.commands.grow import GrowthRefused, grow
from app.databases.protocol import TicketDatabase
from tests.fakes.ticket_database import FakeServer
from tests.model.process import Process
from tests.model.world import World

WATCHED = 4.0
"""Seconds for which `ticketd grow` watches the databases."""
SET_GLOBAL = 0.4
"""How often an operator sets the globals of a database that runs, and ends its connections, in place of a restart."""
LONGEST_GROWTH = 30.0
ADVICE = "ticketd grow"


class Growing(Process):
    """`ticketd grow`, in a process of its own. `done`: whether it has said so."""

    def __init__(self, world: World, listed: Sequence[FakeServer], increment: int) -> None:
        super().__init__("ticketd grow", world)
        self.done = False
        self.left: list[str] = []
        self.begin(listed, increment)
        self.spawn(self._grow(increment))

    async def _grow(self, increment: int) -> None:
        databases: list[TicketDatabase] = [*self.clients]
        try:
            await grow(databases, increment, lambda _: None, WATCHED)
            self.done = True
        except GrowthRefused as refused:
            self.left = refused.left
        finally:
            for client in self.clients:
                client.closed = True

    @property
    def ended(self) -> bool:
        return self.stopped or not self.tasks


class Operator:
    """Changes a world's ring."""

    def __init__(self, world: World) -> None:
        self._world = world

    def begin_to_grow(self, listed: Sequence[FakeServer], increment: int) -> Growing:
        """Run `ticketd grow`. A database of the ring that it leaves out is lost with what it alone knew."""
        world = self._world
        self.end_growing()
        for server in world.servers:
            if server not in listed and server in world.ring:
                world.go_back(server, lambda: None)
        world.operator = growing = Growing(world, listed, increment)
        return growing

    def may_grow(self, listed: Sequence[FakeServer]) -> bool:
        """Whether the databases that this leaves out may be lost."""
        lost = [server for server in self._world.ring if server not in listed]
        return not lost or (len(lost) == 1 and self._world.may_go_back(lost[0]))

    def end_growing(self) -> None:
        """Kill it, if it runs still."""
        if self._world.operator is not None:
            self._world.operator.stop()
            self._world.operator = None

    def configure(self, servers: Sequence[FakeServer], increment: int) -> None:
        """Set offsets in this order, and the increment, on each database that had others: by a restart, or without."""
        for offset, server in enumerate(servers, start=1):
            if (server.offset, server.increment) != (offset, increment):
                how = server.set_global if self._world.toss_a_coin(SET_GLOBAL) else server.configure
                how(offset, increment)

    def put_right(self) -> None:
        """What the runbook says, until every ticket server may draw in the ring that is requested.

        All faults have been mended. Raises AssertionError where that leads nowhere.
        """
        world = self._world
        self.end_growing()
        world.size = self._size_recorded()
        self.configure(world.ring, world.increment)
        for host in world.hosts:
            wrong = host.stopped or host.leaving or host.set_to[0] != tuple(world.ring)
            wrong = wrong or not (host.set_to[1] == world.increment or world.may_be_unset(host))
            host.listed = tuple(world.ring)
            host.increment = host.increment if host.increment == world.increment else world.own_increment
            if wrong:
                host.restart()
        told = self._told_to_grow()
        if self._size_recorded() > world.size:  # by a server whose list was longer, while it was being restarted
            self.put_right()
        elif world.ring_unfinished or told:
            self._grow()

    def _size_recorded(self) -> int:
        """How many databases the operator has to list: a database that was added by mistake stays."""
        return max(self._world.size, *(offset for server in self._world.ring for offset in self._offsets_of(server)))

    def _offsets_of(self, server: FakeServer) -> list[int]:
        """The offsets of the ring that a database records."""
        record = server.state.ring
        if record is None or record.increment != self._world.increment:
            return [0]
        return [offset for offset in record.offsets if offset <= len(self._world.servers)]

    def _told_to_grow(self) -> bool:
        self._world.pass_time(1.1)
        return any(ADVICE in (m.last_error or "") for h in self._world.hosts for m in h.server.ring.members if not m.up)

    def _grow(self) -> None:
        world = self._world
        for host in world.hosts:
            host.stop()
        world.outcomes["grown when put right"] += 1
        for _ in range(2):  # the first one may see what a ticket server has sent before it was killed
            growing = self.begin_to_grow(world.ring, world.increment)
            began = world.clock.now
            while not growing.ended:
                world.pass_time(0.5)
                assert world.clock.now < began + LONGEST_GROWTH, "ticketd grow is stuck"
            if growing.done:
                break
        assert growing.done, f"ticketd grow refuses: {growing.left}"
        self.end_growing()
        for host in world.hosts:
            host.start()
