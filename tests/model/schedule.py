"""What happens in the model, and in which order: a schedule that a seed decides."""

import random
from collections import Counter
from collections.abc import Callable

from tests.fakes.ticket_database import FakeServer
from tests.model.world import SEQUENCES, Host, World

MOMENTS = (0.0, 0.0, 0.001, 0.002, 0.003, 0.005, 0.01, 0.05)
FAULTS: dict[str, Callable[[FakeServer], object]] = {
    "down": lambda server: setattr(server, "down", True),
    "hangs": FakeServer.hang,
    "read-only": lambda server: setattr(server, "read_only", True),
    "ledger fails": lambda server: setattr(server, "ledger_fails", True),
    "misconfigured": lambda server: setattr(server, "misconfigured", "has another offset"),
    "wrong residue": lambda server: setattr(
        server, "draws_as", (server.offset % server.increment + 1, server.increment)
    ),
    "increment 1": lambda server: setattr(server, "draws_as", (1, 1)),
    "deadlocks": lambda server: setattr(server, "deadlocks", 4),
    "loses replies": lambda server: setattr(server, "loses_replies", 2),
    "photos locked": lambda server: server.lock("photos"),
    "accounts locked": lambda server: server.lock("accounts"),
    "restarted": FakeServer.restart,
}
LOSSES = ("truncate", "drop", "remake")
QUIET_AFTER = 25
"""Steps that are taken at least before everything is left to quiet down, which takes long."""


class Schedule:
    """Steps in a world, chosen at random. `log` is what was done."""

    def __init__(self, seed: int, done: Counter[str]) -> None:
        self._chance = random.Random(seed)
        self._done = done
        self._steps_since_quiet = 0
        self.log: list[str] = []
        self.world = World(
            databases=self._chance.choice([2, 2, 2, 3]), ticket_servers=self._chance.choice([2, 2, 3]), seed=seed
        )
        steps = {
            self._take: 30,
            self._take_block: 8,
            self._go_away: 4,
            self._bump: 2,
            self._wait: 6,
            self._restart: 3,
            self._freeze: 4,
            self._unfreeze: 6,
            self._break: 9,
            self._heal: 8,
            self._cut: 2,
            self._mend: 4,
            self._copy: 4,
            self._restore: 4,
            self._relapse: 4,
            self._replace: 2,
            self._lose_table: 1,
            self._quiet_down: 1,
            self._put_all_right: 3,
        }
        self._choices = list(steps)
        self._weights = list(steps.values())

    def run(self, steps: int) -> None:
        """Take so many steps, then put all right and see that all is well."""
        try:
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
            self.world.end()

    def _did(self, kind: str, what: object = "", *, then: float | None = None) -> None:
        self._done["steps"] += 1
        self._done[kind] += 1
        self._steps_since_quiet += 1
        self.log.append(f"{self.world.clock.now:.6f} {kind} {what}".rstrip())
        self.world.take_note_of_health()
        self.world.pass_time(self._chance.choice(MOMENTS) if then is None else then)

    def _host(self) -> Host:
        return self._chance.choice(self.world.hosts)

    def _server(self) -> FakeServer:
        return self._chance.choice(self.world.servers)

    def _sequence(self) -> str:
        return self._chance.choice(["photos", "photos", "photos", "accounts", "small"])

    # --- use -------------------------------------------------------------------------------------------------------

    def _take(self) -> None:
        sequence, count = self._sequence(), self._chance.choice([1, 1, 1, 2, 50, 1000])
        hosts = [self._host() for _ in range(self._chance.randint(1, 4))]
        for host in hosts:
            self.world.request(host, sequence, count, whole=False)
        self._did("take", f"{count} of {sequence} from {[host.name for host in hosts]}")

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
        tables = [server.state.tables[sequence] for server in self.world.servers if sequence in server.state.tables]
        above = max([self.world.floors.get(sequence, 0), *(table.largest for table in tables)])
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

    def _freeze(self) -> None:
        host = self._host()
        if not all(other.frozen for other in self.world.hosts if other is not host):
            host.frozen = True
            self._did("freeze", host.name)

    def _unfreeze(self) -> None:
        host = self._host()
        if host.frozen:
            host.frozen = False
            self._did("unfreeze", host.name)

    # --- databases -------------------------------------------------------------------------------------------------

    def _break(self) -> None:
        server, fault = self._server(), self._chance.choice(list(FAULTS))
        if not self.world.spared(server):
            FAULTS[fault](server)
            self._did(fault, server.name)

    def _heal(self) -> None:
        server = self._server()
        if not server.well:
            server.heal()
            self._did("heal", server.name)

    def _cut(self) -> None:
        host, server = self._host(), self._server()
        if not self.world.spared(server):
            host.client(server).cut = True
            self._did("cut", f"{host.name} from {server.name}")

    def _mend(self) -> None:
        host = self._host()
        if any(client.cut for client in host.clients):
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
        self.world.go_back(server, lambda: getattr(server, how)(sequence))
        self._did(how, f"{sequence} on {server.name}")

    # --- what has to hold ------------------------------------------------------------------------------------------

    def _quiet_down(self) -> None:
        if self._steps_since_quiet >= QUIET_AFTER:
            self._did("quiet down", then=0.0)
            self._steps_since_quiet = 0
            self.world.quiet_down()

    def _put_all_right(self) -> None:
        if self._steps_since_quiet >= QUIET_AFTER:
            for server in self.world.servers:
                server.heal()
            for host in self.world.hosts:
                host.frozen = False
                host.mend()
            self._did("put all right", then=0.0)
            self._steps_since_quiet = 0
            self.world.quiet_down()
