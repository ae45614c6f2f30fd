"""The steps of the model and their order: a schedule that a seed decides."""

import random
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from unittest import mock

from tests.fakes.ticket_database import FakeServer
from tests.model.clock_steps import ClockSteps
from tests.model.faults import FAULTS, LOSSES, STALLS
from tests.model.host import Host
from tests.model.quiet import quiet_down
from tests.model.ring_steps import RingSteps
from tests.model.sequences import SEQUENCES
from tests.model.world import MIXED, ROWS, TABLES, World

MOMENTS = (0.0, 0.0, 0.001, 0.002, 0.003, 0.005, 0.01, 0.05)
AN_HOUR = 3_600.0
RING_CHANGES = 0.5
"""The share of schedules in which the ring changes."""
STEPS = 100
"""Chosen for each schedule; some three in four of them can be taken."""
RESERVES = (0.0, 0.0, 0.5, 2.0, 10.0, 60.0)
"""TICKETS_RESERVE_SECONDS, of all ticket servers of a schedule."""
QUIET_AFTER = 25
"""Steps that are taken at least before everything is left to quiet down, which takes long."""


class Schedule:
    """Steps in a world, chosen at random. `more`: other weights for some of them. `log`: the steps taken so far.

    `kinds`: the names of its sequences of other kinds than `ticket`. `right_clocks`: whether all clocks are right.
    `reserve_seconds`: TICKETS_RESERVE_SECONDS. `engines`: of the databases. The seed decides each that is not given.
    """

    def __init__(
        self,
        seed: int,
        done: Counter[str],
        databases: int | None = None,
        *,
        changes_ring: bool | None = None,
        more: Mapping[str, int] | None = None,
        kinds: Sequence[str] | None = None,
        right_clocks: bool | None = None,
        reserve_seconds: float | None = None,
        engines: str | None = None,
    ) -> None:
        self._chance = random.Random(seed)
        self._done = done
        self._steps_since_quiet = 0
        self.log: list[str] = []
        either = self._chance.choice([2, 2, 2, 3])
        ticket_servers = self._chance.choice([2, 2, 3])
        reserve = random.Random(f"{seed} reserve").choice(RESERVES)
        changes = self._chance.random() < RING_CHANGES if changes_ring is None else changes_ring
        size = databases or either
        self.world = World(
            size,
            ticket_servers,
            seed,
            increment=size + self._chance.choice([0, 0, 1]) if changes else size,
            spare=changes,
            reserve_seconds=reserve if reserve_seconds is None else reserve_seconds,
            engines=engines or random.Random(f"{seed} engines").choice((TABLES, ROWS, MIXED)),
        )
        self._ring_steps = RingSteps(self.world, self._chance, self._did, self._take)
        self._clock_steps = ClockSteps(
            self.world, self._chance, self._did, self._host, self._take, names=kinds, right=right_clocks
        )
        self._nonces = random.Random(seed)
        steps = {
            self._take: 30,
            self._take_block: 8,
            self._go_away: 4,
            self._bump: 2,
            self._wait: 6,
            self._restart: 3,
            self._stop: 1,
            self._leave: 2,
            self._start: 4,
            self._freeze: 2,
            self._unfreeze: 6,
            self._stall: 14,
            self._stall_all: 1,
            self._night: 2,
            self._break: 9,
            self._heal: 8,
            self._cut: 2,
            self._slow: 2,
            self._mend: 5,
            self._copy: 4,
            self._restore: 3,
            self._relapse: 4,
            self._relapse_behind_its_back: 6,
            self._replace: 2,
            self._lose_table: 1,
            self._quiet_down: 1,
            self._put_all_right: 3,
        }
        steps |= self._clock_steps.weights
        if changes:
            steps |= self._ring_steps.weights
        for step in steps:
            steps[step] = (more or {}).get(step.__name__.lstrip("_"), steps[step])
        self._choices = list(steps)
        self._weights = list(steps.values())

    def run(self, steps: int) -> None:
        """Take so many steps, then put all right and see that all is well."""
        try:
            with mock.patch.object(secrets, "token_hex", lambda size: self._nonces.randbytes(size).hex()):
                self.world.pass_time(0.3)
                for _ in range(steps):
                    (step,) = self._chance.choices(self._choices, self._weights)
                    step()
                self._steps_since_quiet = QUIET_AFTER
                self._put_all_right()
        except BaseException as error:
            error.add_note("what was done:\n" + "\n".join(self.log))
            raise
        finally:
            self._done.update(self.world.outcomes)
            self._done["excepted"] += self.world.record.excepted
            self.world.end()

    def _did(self, kind: str, what: object = "", *, then: float | None = None) -> None:
        self._done["steps"] += 1
        self._done[kind] += 1
        self._steps_since_quiet += 1
        self.log.append(f"{self.world.clock.now:.6f} {kind} {what}".rstrip())
        self.world.pass_time(self._chance.choice(MOMENTS) if then is None else then)

    def _host(self) -> Host:
        """A ticket server that runs, chosen at random."""
        if not self.world.running:
            for host in self.world.hosts:
                host.restart()
            self._did("start", "all", then=0.0)
        return self._chance.choice(self.world.running)

    def _server(self) -> FakeServer:
        return self._chance.choice(self.world.ring)

    def _sequence(self) -> str:
        return self._chance.choice(["photos", "photos", "photos", "accounts", "small"])

    # --- use -------------------------------------------------------------------------------------------------------

    def _take(self) -> None:
        sequence, count = self._sequence(), self._chance.choice([1, 1, 1, 2, 50, 1000])
        hosts = [self._host() for _ in range(self._chance.randint(1, 4))]
        for host in hosts:
            self.world.request(host, sequence, count, whole=False)
        self._did("take", f"{count} of {sequence} from {[host.name for host in hosts]}")

    def _take_from(self, host: Host) -> None:
        sequence = self._sequence()
        count = self._chance.choice([1, 50, 1000, 3_000, 10_000])
        self.world.request(host, sequence, count, whole=count > 1000 or self._chance.random() < 0.5)
        self._did("take", f"{count} of {sequence} from {host.name}")

    def _take_block(self) -> None:
        host, sequence, size = self._host(), self._sequence(), self._chance.choice([1, 65, 3_000, 10_000])
        self.world.request(host, sequence, size, whole=True)
        self._did("block", f"{size} of {sequence} from {host.name}")

    def _go_away(self) -> None:
        host, sequence = self._host(), self._sequence()
        requests = [self.world.request(host, sequence, 1, whole=False) for _ in range(3)]
        self.world.pass_time(self._chance.choice(MOMENTS))
        for request in requests[:2]:
            request.cancel()
        self._did("go away", f"from {host.name}")

    def _bump(self) -> None:
        host, sequence = self._host(), self._chance.choice(["photos", "accounts"])
        tables = [server.state.tables[sequence] for server in self.world.ring if sequence in server.state.tables]
        above = max([self.world.record.floors.get(sequence, 0), *(table.largest for table in tables)])
        above += self._chance.choice([1, 9_999])
        self.world.bump(host, sequence, above)
        self._did("bump", f"{sequence} above {above} from {host.name}")

    def _wait(self) -> None:
        self._did("wait", then=self._chance.choice([0.1, 0.3, 0.6, 1.1]))

    # --- ticket servers --------------------------------------------------------------------------------------------

    def _restart(self) -> None:
        host = self._host()
        host.restart()
        self._did("restart", host.name)

    def _stop(self) -> None:
        host = self._host()
        host.stop()
        self._did("stop", host.name)

    def _leave(self) -> None:
        """SIGTERM, which gives time for the last marks."""
        host = self._host()
        host.leave()
        self._did("leave", host.name)

    def _start(self) -> None:
        host = self._chance.choice(self.world.hosts)
        if host.stopped:
            host.start()
            self._did("start", host.name)

    def _freeze(self) -> None:
        host = self._host()
        if not all(other.stopped or other.frozen for other in self.world.hosts if other is not host):
            host.freeze()
            self._did("freeze", host.name)

    def _unfreeze(self) -> None:
        host = self._chance.choice(self.world.hosts)
        if host.frozen:
            host.thaw()
            self._did("unfreeze", host.name)

    def _stall(self) -> None:
        """In the midst of what comes now."""
        host, iterations, seconds = self._host(), self._iterations(), self._seconds()
        host.freeze_after(iterations, seconds)
        self._did("stall", f"{host.name} after {iterations} iterations for {seconds:.3f} s", then=0.0)
        if self._chance.random() < 0.5:
            self._take_from(host)

    def _iterations(self) -> int:
        return self._chance.randint(1, self._chance.choice([5, 20, 80]))

    def _seconds(self) -> float:
        return self._chance.uniform(*self._chance.choice(STALLS))

    def _stall_all(self) -> None:
        """The machine sleeps, and its databases, or whoever puts them back, do not."""
        seconds = self._chance.choice([0.4, 10.0, AN_HOUR])
        hosts = self.world.running
        for host in hosts:
            host.freeze_after(self._iterations(), seconds)
            self._take_from(host)
        self.world.pass_time(self._chance.choice(MOMENTS))
        for host in hosts:
            host.disarm()
            host.freeze(seconds)
        self._did("sleep", f"{seconds} s", then=0.0)
        if self._chance.random() < 0.5:
            self._restore()
        self.world.pass_time(seconds)

    def _night(self) -> None:
        """All ticket servers stop, one database away before that, another one after it; and one may go back."""
        server, *others = self._chance.sample(self.world.ring, self.world.size)
        if not others:
            return
        copy = server.snapshot()
        if self._chance.random() < 0.6:
            others[0].down = True
        self._did("night", f"{server.name} draws, {others[0].name} is {'away' if others[0].down else 'there'}")
        for _ in range(self._chance.randint(1, 4)):
            self._take()
        kept = self._chance.random() < 0.2
        for host in self.world.hosts[int(kept) :]:
            host.stop()
        if kept:
            self.world.hosts[0].freeze()
        if self._chance.random() < 0.7:
            others[0].heal()
        others[-1].down = self._chance.random() < 0.5
        if self.world.may_go_back(server) and self._chance.random() < 0.7:
            self.world.go_back(server, lambda: server.restore(copy))
        self.world.pass_time(self._chance.choice([0.0, 1.0, AN_HOUR]))
        for host in self.world.hosts:
            if host.stopped:
                host.start()
        self._did("morning", f"{others[-1].name} is {'away' if others[-1].down else 'there'}", then=0.4)
        for _ in range(self._chance.randint(1, 3)):
            self._take()

    # --- databases -------------------------------------------------------------------------------------------------

    def _break(self) -> None:
        server, fault = self._server(), self._chance.choice(list(FAULTS))
        FAULTS[fault](server)
        self._did(fault, server.name)

    def _heal(self) -> None:
        server = self._server()
        if not server.well:
            server.heal()
            self._did("heal", server.name)

    def _cut(self) -> None:
        host, server = self._host(), self._server()
        client = host.client(server)
        if client is None:
            return
        client.cut = True
        self._did("cut", f"{host.name} from {server.name}")

    def _slow(self) -> None:
        """Packets are lost and sent again."""
        host, server = self._host(), self._server()
        host.slow.add(server)
        self._did("slow", f"{host.name} to {server.name}")

    def _mend(self) -> None:
        host = self._chance.choice(self.world.hosts)
        if not host.reaches_all:
            host.mend()
            self._did("mend", host.name)

    def _copy(self) -> None:
        server = self._server()
        self.world.snapshots[server] = [*self.world.snapshots[server][-2:], server.snapshot()]
        self._did("copy", server.name, then=0.0)

    def _restore(self) -> None:
        server = self._server()
        if self.world.may_go_back(server):
            snapshot = self._chance.choice(self.world.snapshots[server])
            self.world.go_back(server, lambda: server.restore(snapshot))
            self._did("restore", server.name)

    def _relapse(self) -> None:
        """Back to a copy of a moment ago: what was drawn since then is in few ticket servers' memory yet."""
        server = self._server()
        copy = server.snapshot()
        for _ in range(self._chance.randint(1, 3)):
            self._take()
        if self._chance.random() < 0.3:
            self._restart()
        if self.world.may_go_back(server):
            self.world.go_back(server, lambda: server.restore(copy))
            self._did("relapse", server.name)

    def _relapse_behind_its_back(self) -> None:
        """A relapse while one ticket server stands still with tickets that it drew, and the others go on drawing."""
        server, host, sequence = self._server(), self._host(), self._sequence()
        if not self.world.may_go_back(server) or len(self.world.running) < 2:
            return
        copy = server.snapshot()
        if self._chance.random() < 0.3:
            host.slow.update(self.world.ring)
        iterations, seconds = self._chance.randint(1, 25), max(self._seconds(), self._chance.uniform(0.0, 0.45))
        host.freeze_after(iterations, seconds)
        for each in [sequence, sequence, *self._chance.choices(list(SEQUENCES), k=self._chance.randint(0, 4))]:
            self.world.request(host, each, self._chance.choice([1, 3_000, 10_000, 10_000]), whole=True)
        self._did(
            "stall", f"{host.name} after {iterations} iterations for {seconds:.3f} s, drawing {sequence}", then=0.02
        )
        self.world.go_back(server, lambda: server.restore(copy))
        self._did("relapse behind its back", server.name)
        for other in self.world.running:
            if other is not host:
                for _ in range(self._chance.randint(2, 6)):
                    self.world.request(other, sequence, self._chance.choice([1, 50, 1_000]), whole=False)
        self._did("take", f"{sequence} from the others", then=min(self._chance.random(), seconds))

    def _replace(self) -> None:
        server = self._server()
        if self.world.may_go_back(server):
            self.world.go_back(server, server.replace_by_empty)
            self._did("replace by an empty one", server.name)

    def _lose_table(self) -> None:
        """No connection breaks then: what was issued since the last probe is not known to every ticket server."""
        server, sequence = self._server(), self._chance.choice(list(SEQUENCES))
        how = self._chance.choice(LOSSES)
        self._steps_since_quiet = QUIET_AFTER
        self._put_all_right()
        if not self.world.may_go_back(server):
            return
        self.world.go_back(server, lambda: getattr(server, how)(sequence))
        self._did(how, f"{sequence} on {server.name}")

    # --- what has to hold ------------------------------------------------------------------------------------------

    def _quiet_down(self) -> None:
        if self._steps_since_quiet >= QUIET_AFTER:
            self._did("quiet down", then=0.0)
            self._steps_since_quiet = 0
            quiet_down(self.world)

    def _put_all_right(self) -> None:
        if self._steps_since_quiet >= QUIET_AFTER:
            for server in self.world.servers:
                server.heal()
            for host in self.world.hosts:
                host.mend()
                host.disarm()
                host.thaw()
            self._clock_steps.put_right()
            self._did("put all right", then=0.0)
            self._ring_steps.operator.put_right()
            self._steps_since_quiet = 0
            quiet_down(self.world)
