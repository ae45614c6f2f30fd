"""Changes of the ring, as steps of a schedule: by the runbook, half-way, and by mistake."""

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from tests.fakes.ticket_database import FakeServer
from tests.model.host import Host
from tests.model.operator import Operator
from tests.model.world import World

LARGEST_INCREMENT = 5


class Did(Protocol):
    """Notes a step, and lets time pass."""

    def __call__(self, kind: str, what: object = "", *, then: float | None = None) -> None: ...


class RingSteps:
    """Steps that change who is in the ring, its increment, or what anybody believes of it."""

    def __init__(self, world: World, chance: random.Random, did: Did, take: Callable[[], None]) -> None:
        self._world = world
        self._chance = chance
        self._did = did
        self._take = take
        self.operator = Operator(world)
        self.weights: dict[Callable[[], None], int] = {
            self._grow_by_the_runbook: 3,
            self._grow_by_mistake: 2,
            self._change_without_grow: 3,
            self._set_a_host_wrong: 4,
            self._set_a_host_right: 4,
            self._configure_wrong: 2,
            self._configure_right: 2,
            self._lose_record: 2,
            self._add: 2,
        }

    # --- what is possible ------------------------------------------------------------------------------------------

    def _another_ring(self) -> tuple[list[FakeServer], int]:
        """Databases in their order, and an increment that has room for them."""
        world = self._world
        sizes = [world.size, *([world.size - 1] if world.size > 2 else []), *([world.size + 1] * 3)]
        listed = world.servers[: self._chance.choice(sizes)]
        return listed, self._chance.randint(len(listed), LARGEST_INCREMENT)

    def _a_list(self) -> list[FakeServer]:
        """One that somebody might set, right or wrong."""
        ring, world = self._world.ring, self._world
        lists = [ring, ring, ring[:1], ring[:-1] or ring, world.servers]
        if self._all_drawn(world.servers):
            lists += [ring[::-1], [*ring[:-1], world.servers[-1]]]
        return [*self._chance.choice(lists)]

    def _all_drawn(self, servers: Sequence[FakeServer]) -> bool:
        """Whether every one of these databases holds tickets; one that does not may take any place, and keeps it."""
        tables = [server.state.tables.get("photos") for server in servers]
        recorded = all(server.state.ring is not None for server in servers)
        return recorded and all(table is not None and table.counter > 1 for table in tables)

    def _one_looks_new(self) -> bool:
        """Whether a database that went back has no ring record: see `world`."""
        returning = self._world.returning
        return returning is not None and returning.state.ring is None

    def _an_increment(self) -> int | None:
        return self._chance.choice([None, None, self._world.increment, self._chance.randint(1, LARGEST_INCREMENT)])

    # --- growth ----------------------------------------------------------------------------------------------------

    def _grow_by_the_runbook(self) -> None:
        """All ticket servers stop, but for one that is frozen and loses its connections; then databases, then grow."""
        world = self._world
        listed, increment = self._another_ring()
        if not self.operator.may_grow(listed):
            return
        kept = self._stop_all()
        if self._chance.random() < 0.5:
            for server in listed:
                server.heal()
        self.operator.configure(listed, increment)
        for server in listed:
            if kept is not None and self._chance.random() < 0.8:
                self._chance.choice([server.restart, server.connected.clear])()
        self._grow(listed, increment)
        if len(listed) >= world.size or world.begun(increment):  # a database that has not left yet stays
            world.resize(len(listed), increment)
        for host in world.hosts:
            if host.stopped:
                self._set(host, listed if self._chance.random() < 0.8 else self._a_list())
                host.start()
        self._did("start all after a growth", then=self._chance.choice([0.05, 0.4]))
        if kept is not None and self._chance.random() < 0.6:
            kept.thaw()
            for _ in range(4):
                world.request(kept, "photos", self._chance.choice([1, 50]), whole=False)
            self._did("unfreeze", kept.name)
        for _ in range(self._chance.randint(1, 3)):
            self._take()

    def _stop_all(self) -> Host | None:
        """Stop every ticket server, but freeze one of them, maybe, in the midst of what it does."""
        world = self._world
        kept = self._chance.choice(world.hosts) if self._chance.random() < 0.5 else None
        if kept is not None and kept.stopped:
            kept = None
        if kept is not None and self._chance.random() < 0.5:
            for _ in range(2):
                self._take()
            kept.freeze_after(self._chance.randint(1, 30), 1_000.0)
            world.pass_time(self._chance.choice([0.0, 0.002, 0.01]))
            kept.disarm()
        for host in world.hosts:
            if host is kept:
                host.freeze()
            else:
                host.stop()
        self._did("stop all for a growth", f"but {kept.name}" if kept else "", then=0.0)
        return kept

    def _grow(self, listed: Sequence[FakeServer], increment: int) -> None:
        """Run it to its end, or kill it half-way, or let it stand still meanwhile, and maybe run it again."""
        world = self._world
        for _ in range(self._chance.choice([1, 1, 2, 3])):
            growing = self.operator.begin_to_grow(listed, increment)
            fate = self._chance.random()
            if fate < 0.5:
                world.pass_time(4.0 + self._chance.random() * 0.3)
            if fate < 0.25:
                growing.freeze(self._chance.choice([0.3, 5.0, 60.0]))
            began = world.clock.now
            limit = self._chance.random() * 0.3 if 0.25 < fate < 0.5 else 12.0
            while not growing.ended and world.clock.now < began + limit:
                world.pass_time(0.05 if limit < 1 else 0.5)
            said = "done" if growing.done else ", ".join(growing.left) or "killed"
            if not (growing.frozen and self._chance.random() < 0.5):
                self.operator.end_growing()
            kind = "grown" if growing.done else "refused to grow" if growing.left else "growth cut short"
            self._did(kind, f"{[s.name for s in listed]} to {increment}: {said}", then=0.0)
            if growing.done:
                return

    def _grow_by_mistake(self) -> None:
        """While ticket servers run, or stand still, or with another list and increment than anybody has set."""
        if self._one_looks_new():
            return
        world = self._world
        listed, increment = self._chance.choice([(world.ring, world.increment), self._another_ring()])
        if not self.operator.may_grow(listed):
            return
        asleep = self._chance.random() < 0.6
        if asleep:
            for host in world.running:
                host.freeze(self._chance.choice([6.0, 60.0]))
            for server in world.servers:
                if self._chance.random() < 0.8:
                    server.restart()
        before = world.ring
        growing = self.operator.begin_to_grow(listed, increment)
        self._did("grow by mistake", f"{[s.name for s in listed]} to {increment}", then=4.5)
        if growing.done and (len(listed), increment) != (len(before), world.increment):
            world.outcomes["grown by mistake"] += 1
            world.resize(len(listed), increment)

    # --- settings --------------------------------------------------------------------------------------------------

    def _set(self, host: Host, listed: Sequence[FakeServer]) -> None:
        host.listed = tuple(listed)
        host.increment = self._chance.choice([None, self._world.increment])

    def _set_a_host_wrong(self) -> None:
        if self._one_looks_new():
            return
        host = self._chance.choice(self._world.hosts)
        host.listed, host.increment = tuple(self._a_list()), self._an_increment()
        host.restart()
        self._did("settings", f"{host.name} {[s.name for s in host.listed]}, increment {host.increment}")

    def _set_a_host_right(self) -> None:
        wrong = [host for host in self._world.hosts if host.set_to[0] != tuple(self._world.ring)]
        if wrong:
            host = self._chance.choice(wrong)
            self._set(host, self._world.ring)
            host.restart()
            self._did("settings put right", host.name)

    def _configure_wrong(self) -> None:
        """One database or all of them, with another increment; or two that take each other's offset."""
        if self._one_looks_new():
            return
        world = self._world
        servers = [*self._chance.choice([world.ring, [self._chance.choice(world.ring)]])]
        increment = self._chance.choice([world.increment, self._chance.randint(1, LARGEST_INCREMENT)])
        offsets = [server.offset for server in servers]
        if self._all_drawn(servers):
            self._chance.shuffle(offsets)
        for offset, server in zip(offsets, servers, strict=True):
            server.configure(offset, increment)
        self._did("configuration", f"{[(s.name, s.offset, s.increment) for s in servers]}")

    def _configure_right(self) -> None:
        self.operator.configure(self._world.ring, self._world.increment)
        self._did("configuration put right")

    def _change_without_grow(self) -> None:
        """Databases and ticket servers get the settings of another ring, in some order, by restarts alone."""
        if self._one_looks_new():
            return
        world = self._world
        listed, increment = self._another_ring()
        if self._chance.random() < 0.3 and self._all_drawn(listed):
            listed = [*listed]
            self._chance.shuffle(listed)
        work: list[Host | FakeServer] = [*listed, *world.hosts]
        self._chance.shuffle(work)
        for each in work[: self._chance.randint(1, len(work))]:
            if isinstance(each, FakeServer):
                each.configure(listed.index(each) + 1, increment)
            else:
                each.listed, each.increment = tuple(listed), self._chance.choice([None, increment])
                each.restart()
            self._did("changed without grow", f"{each.name}: {[s.name for s in listed]}, {increment}")
            if self._chance.random() < 0.5:
                self._take()
                world.pass_time(self._chance.choice([0.05, 0.5, 1.2]))

    # --- databases -------------------------------------------------------------------------------------------------

    def _lose_record(self) -> None:
        """Not of one that was restored as it was before a growth: without the record its marks of another increment are
        refused until somebody runs `grow` once more."""
        server = self._chance.choice(self._world.ring)
        is_of_the_ring = all(mark.increment == self._world.increment for mark in server.state.marks.values())
        if is_of_the_ring and self._world.may_go_back(server):
            self._world.go_back(server, server.lose_ring_record)
            self._did("lose the ring record", server.name)

    def _add(self) -> None:
        """A database into a free offset: the next one, empty or as it was when it left, and restarts."""
        world = self._world
        if world.size == min(len(world.servers), world.increment):
            return
        server = world.servers[world.size]
        record = server.state.ring
        stranger = record is not None and record.own != world.size + 1  # its tickets are of another place
        if world.may_go_back(server) and (stranger or self._chance.random() < 0.5):
            world.go_back(server, server.replace_by_empty)
        elif stranger:
            return
        server.heal()
        server.configure(world.size + 1, world.increment)
        world.size += 1
        for host in world.hosts:
            if self._chance.random() < 0.8:
                self._set(host, world.ring)
                host.restart()
        self._did("add", f"{server.name} at {server.offset} of {world.increment}")
