"""Clocks that go wrong, ids of other kinds, and absences longer than a lease, as steps of a schedule."""

import random
from collections.abc import Callable, Sequence

from tests.model.clocks import DRIFTS, JUMPS, RIGHT_SECONDS
from tests.model.host import Host
from tests.model.ring_steps import Did
from tests.model.sequences import KINDS_MADE
from tests.model.stamps import timed
from tests.model.world import World

ABSENCES = (20.0, 119.0, 122.0, 200.0, 3_600.0, 86_400.0)
"""Seconds: also a little less, and a little more, than a lease lasts."""
OUTAGES = (20.0, 60.0, 60.0, 130.0)
DATABASE_JUMPS = (-86_400.0, -3_600.0, -5.0, -1.5, -0.4, 0.4, 0.9, 1.5, 5.0)
"""Seconds: no further ahead, since ids that were stamped so far ahead are then waited for, and rightly so."""
KINDS_AT_ONCE = (0, 0, 1, 1, 2)
"""How many sequences of other kinds than `ticket` a schedule has."""
RIGHT_CLOCKS = 0.35
"""The share of schedules in which all clocks are right."""


class ClockSteps:
    """Steps that set clocks wrong and right, take ids of other kinds, and suspend, freeze and cut off for long."""

    def __init__(
        self,
        world: World,
        chance: random.Random,
        did: Did,
        a_host: Callable[[], Host],
        take: Callable[[], None],
        *,
        names: Sequence[str] | None,
        right: bool | None,
    ) -> None:
        self._world = world
        self._chance = chance
        self._did = did
        self._host = a_host
        self._take = take
        some = chance.sample(sorted(KINDS_MADE), chance.choice(KINDS_AT_ONCE))
        self.names = some if names is None else [*names]
        self.weights: dict[Callable[[], None], int] = {self._suspend: 2}
        for name in self.names:
            if chance.random() < 0.7:
                self.define(name)
        if self.names:
            self.weights |= {
                self._make_kind: 3,
                self._take_of_kind: 22,
                self._stall_in_a_renewal: 4,
                self._absence: 3,
                self._outage: 1,
            }
        if chance.random() > RIGHT_CLOCKS if right is None else not right:
            self.weights |= {
                self._jump: 5,
                self._drift: 2,
                self._set_right: 4,
                self._database_jump: 3,
                self._database_set_right: 3,
            }

    def define(self, name: str) -> None:
        """It was made long ago."""
        definition = self._world.kinds[name] = KINDS_MADE[name]
        for server in self._world.servers:
            if server.state.tables:
                server.state.kinds[name] = definition

    # --- ids of other kinds ------------------------------------------------------------------------------------------

    def _make_kind(self) -> None:
        host, name = self._host(), self._chance.choice(self.names)
        self._world.make_kind(host, KINDS_MADE[name])
        self._did("make", f"{name} by {host.name}")

    def _take_of_kind(self) -> None:
        name = self._chance.choice(self.names)
        hosts = [self._host() for _ in range(self._chance.randint(1, 4))]
        count = self._take_from(hosts, name)
        self._did("take", f"{count} of {name} from {[host.name for host in hosts]}")

    def _take_from(self, hosts: list[Host], name: str) -> int:
        if name not in self._world.kinds:
            self._world.make_kind(hosts[0], KINDS_MADE[name])
        parts = timed(KINDS_MADE[name]).parts
        counts = {"shorts": [1, 1, 2, 4], "likes": [1, 1, 10, 60]}.get(name, [1, 1, 3, 1_000])
        count = self._chance.choice(counts)
        for host in hosts:
            shard = self._chance.choice([None, 0, 3]) if parts == "shard" else None
            self._world.request_of_kind(host, name, count, shard)
        return count

    def _take_some(self, hosts: list[Host]) -> None:
        for host in hosts:
            self._take_from([host] * self._chance.randint(1, 2), self._chance.choice(self.names))

    # --- clocks ------------------------------------------------------------------------------------------------------

    def _jump(self) -> None:
        host = self._chance.choice(self._world.hosts)
        by = self._chance.choice(JUMPS) * self._chance.choice([-1, 1])
        if self._chance.random() < 0.5:
            self._take_some_of_kind(host)
        host.wall.set(host.wall.off + by)
        self._did("clock", f"of {host.name} set by {by:+g} s, to {host.wall.off:+.3f} s")
        self._take_some_of_kind(host)

    def _take_some_of_kind(self, host: Host) -> None:
        if self.names and not host.stopped:
            self._take_some([host])

    def _drift(self) -> None:
        host, ppm = self._chance.choice(self._world.hosts), self._chance.choice(DRIFTS)
        host.wall.drift(ppm)
        self._did("drift", f"of {host.name}: {ppm:+g} ppm", then=self._chance.choice([0.0, 1.0]))

    def _set_right(self) -> None:
        host = self._chance.choice(self._world.hosts)
        host.wall.set(self._a_little())
        self._did("clock right", f"of {host.name}: {host.wall.off:+.3f} s")
        self._take_some_of_kind(host)

    def _a_little(self) -> float:
        return 0.9 * RIGHT_SECONDS * (2 * self._chance.random() - 1)

    def _database_jump(self) -> None:
        server, off = self._chance.choice(self._world.servers), self._chance.choice(DATABASE_JUMPS)
        self._world.set_clock(server, off)
        self._did("database's clock", f"of {server.name}: {off:+g} s", then=self._chance.choice([0.0, 1.2]))

    def _database_set_right(self) -> None:
        server = self._chance.choice(self._world.servers)
        self._world.set_clock(server, self._a_little())
        self._did("database's clock right", server.name)

    def put_right(self) -> None:
        """All clocks. One that was right stays as it is, so that the small differences between them do, too."""
        for host in self._world.hosts:
            if not host.wall.right:
                host.wall.set(self._a_little())
        for server in self._world.servers:
            if abs(server.clock_offset) > RIGHT_SECONDS:
                self._world.set_clock(server, self._a_little())

    # --- absences ----------------------------------------------------------------------------------------------------

    def _suspend(self) -> None:
        """A virtual machine, and all that runs in it: its monotonic clock, too, stands still."""
        host, seconds = self._host(), self._chance.choice([0.01, 0.4, 1.5, 20.0])
        if self._chance.random() < 0.7:
            self._take_some_of_kind(host)
            self._take()
        host.suspend(seconds)
        self._did("suspend", f"{host.name} for {seconds:g} s")

    def _stall_in_a_renewal(self) -> None:
        """A database comes up, or the lease is asked for, and the server stops somewhere in what follows."""
        host = self._host()
        iterations = self._chance.randint(1, 30)
        seconds = self._chance.choice([0.01, 0.4, 0.6, 2.0, 20.0])
        if self._chance.random() < 0.4:
            self._chance.choice(self._world.ring).restart()
        host.loop.call_soon(host.server.lease.renews_soon)
        host.look_again()
        host.freeze_after(iterations, seconds)
        self._did("stall in a renewal", f"{host.name} after {iterations} iterations for {seconds:g} s", then=0.01)
        self._take_some([host])

    def _absence(self) -> None:
        """All are away, and come back one by one, some after a restart. Who comes late finds others in its place."""
        world = self._world
        running = world.running
        if not running:
            return
        seconds = self._chance.choice(ABSENCES)
        self._take_some(running)
        world.pass_time(self._chance.choice([0.0, 0.003, 0.02]))
        suspended = self._chance.random() < 0.5
        late = self._chance.choice(running)
        copies = {server: server.snapshot() for server in world.ring}
        for host in world.hosts:
            if host in running:
                host.disarm()
                (host.suspend if suspended else host.freeze)(seconds + (5.0 if host is late else 0.0))
        self._did("absence", f"of {seconds:g} s, {late.name} 5 s longer, suspended: {suspended}", then=0.0)
        world.pass_time(seconds)
        server = self._chance.choice(world.ring)
        if self._chance.random() < 0.2 and world.may_go_back(server):
            world.go_back(server, lambda: server.restore(copies[server]))
        for host in world.hosts:
            if host is not late and host in running and self._chance.random() < 0.6:
                host.restart()
        self._did("back", f"all but {late.name}", then=self._chance.choice([0.05, 0.5, 2.5]))
        others = [host for host in world.running if host is not late]
        self._take_some(others)
        world.pass_time(self._chance.choice([0.01, 2.5]))
        late.thaw()
        if self._chance.random() < 0.3:
            late.wall.set(late.wall.off - self._chance.choice([5.0, 120.0, seconds]))
        self._did("back", late.name, then=0.0)
        for _ in range(3):
            self._take_some(world.running)
            world.pass_time(self._chance.choice([0.0, 0.02, 0.3]))

    def _outage(self) -> None:
        """No database answers. What is made in memory goes on."""
        world = self._world
        down = [server for server in world.servers if not server.down]
        for server in down:
            server.down = True
        seconds = self._chance.choice(OUTAGES)
        self._did("outage", f"of {seconds:g} s", then=0.0)
        until = world.clock.now + seconds
        while world.clock.now < until:
            self._take_some(world.running)
            world.pass_time(seconds / 4)
        for server in down:
            server.down = False
        self._did("databases back")
