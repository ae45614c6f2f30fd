"""The model of *one offset, one body of data*, and of sequences that several servers are asked to make at once.

Two or three ticket databases, and another body of data for offset 1, empty or a copy of the first. Ticket servers are
led to either by a list or by a name, cut off from it, restarted, and stand still for 10 ms, 400 ms, 7 s or an hour
after any number of iterations of their event loops: so at each of their waits, those in the midst of taking a body in,
of announcing it and of claiming a name among them.

Every server reaches the database of offset 2 all the while. One that reached no database that has heard of the
replacement could not tell a replaced body from the one in use; the contract excepts that.
"""

import asyncio
import random
import secrets
from collections.abc import Sequence
from typing import Any
from unittest import mock

from app.common.errors import SequenceConflict, TicketError
from app.common.sequences import Width
from tests.fakes.ticket_database import FakeServer
from tests.fakes.ticket_server import PROBE_INTERVAL, REQUEST_TIMEOUT, FakeTicketServer
from tests.fakes.virtual_time import VirtualClock
from tests.model.process import Process

STANDS = (0.01, 0.4, 7.0, 3600.0)
"""Seconds for which a server stands still: less than a probe takes, less than one comes round, and longer than
announcements stand."""
EVENTS = 20
MOST_CHANGES = 5
"""Of bodies, after one event: each server may take one in, and once more where it was slower than another."""
DEFINITIONS: Sequence[tuple[str | None, dict[str, int]]] = (
    (None, {"start": 5}),
    (None, {"start": 1_000_000}),
    (None, {"bits": 53}),
    ("ticket", {}),
    ("uuid4", {}),
    ("instagram", {"epoch": 1_600_000_000_000}),
)


class Server(Process):
    """A ticket server's process, again and again. `listed`: its list of databases at the next start."""

    def __init__(self, name: str, surroundings: "Bodies", listed: Sequence[FakeServer]) -> None:
        super().__init__(name, surroundings)
        self.listed = listed
        self.begun = 0
        self.start()

    def start(self) -> None:
        self.begun += 1
        self.begin(self.listed, None)
        self.server = self.loop.run_until_complete(self._make())
        self.spawn(self._serve())

    def warns_of(self, ticket: int) -> bool:
        """Whether /healthz says that the database of this ticket is unprotected."""
        members = self.server.ring.members
        member = next(each for each in members if (ticket - each.database.offset) % each.database.increment == 0)
        return not member.up or any(self.server.ledger.unprotected(member))

    @property
    def reaches_common(self) -> bool:
        """Whether it draws from the database of offset 2: else a PUT reaches no database in common with others."""
        return self.server.ring.members[1].up

    async def _make(self) -> FakeTicketServer:
        return FakeTicketServer(self.clients, clock=self.loop.time, boot_clock=self._surroundings.clock)

    async def _serve(self) -> None:
        self.server.domain.start()


class Bodies:
    """The databases, the servers, and what they handed out."""

    def __init__(self, seed: int) -> None:
        self.clock = VirtualClock()
        self.chance = random.Random(seed)
        self.errors: list[BaseException] = []
        self.log: list[str] = []
        size = self.chance.choice([2, 2, 3])
        self.common = [FakeServer(offset, size, {"photos": Width.BIGINT}, self.clock) for offset in range(2, size + 1)]
        self.bodies = [FakeServer(1, size, {"photos": Width.BIGINT}, self.clock)]
        self.issued: dict[int, str] = {}
        self._unprotected: set[str] = set()
        """What was handed out while /healthz warned `unprotected`: it may come again from a body that was replaced."""
        self.answers: dict[str, list[object]] = {}
        self.servers = [Server(f"tickets-{n}", self, self._a_list()) for n in range(self.chance.choice([2, 2, 3]))]
        self._size = size

    # --- what a process needs --------------------------------------------------------------------------------------

    def latency(self, *, slow: bool) -> tuple[float, float]:
        return self.chance.random() * (0.3 if slow else 0.004), self.chance.random() * 0.004

    def toss_a_coin(self, heads: float = 0.5) -> bool:
        return self.chance.random() < heads

    def on_loop_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(context.get("exception") or RuntimeError(context["message"]))

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass for the databases, and for every server that does not stand still."""
        until = self.clock.now + seconds
        for server in self.servers:
            server.look_again()
        while True:
            self.clock.run_due()
            next_step = min([until, *(server.run() for server in self.servers)])
            if any(server.has_received for server in self.servers):
                continue
            if self.clock.now >= until:
                break
            self.clock.now = max(self.clock.now, min(next_step, self.clock.next_event))
        if self.errors:
            raise self.errors[0]

    # --- what servers are asked for --------------------------------------------------------------------------------

    def take(self, server: Server, count: int) -> None:
        server.spawn(self._take(server, count))

    async def _take(self, server: Server, count: int) -> None:
        life = server.begun
        try:
            tickets = await server.server.desk.take("photos", count)
        except TicketError:
            return
        if server.begun != life or server.stopped:
            return
        unprotected = server.warns_of(tickets[0])
        for ticket in tickets:
            before = self.issued.get(ticket)
            assert before is None or before in self._unprotected, (
                f"{server.name} gave {ticket}, which {before} had given"
            )
            self.issued[ticket] = by = f"{server.name} at {self.clock.now:.4f}"
            if unprotected:
                self._unprotected.add(by)

    def put(self, server: Server, name: str, kind: str | None, given: dict[str, int]) -> None:
        server.spawn(self._put(server, name, kind, given))

    async def _put(self, server: Server, name: str, kind: str | None, given: dict[str, int]) -> None:
        life, reached, until = server.begun, server.reaches_common, self.clock.now + REQUEST_TIMEOUT
        try:
            made, _ = await server.server.admin.make(name, kind, given)
        except SequenceConflict:
            return
        except TicketError as error:
            answer: object = str(error)
        else:
            answer = 201 if made else 200
        # later the client has been refused, and the server may have stood still since
        if reached and server.begun == life and not server.stopped and self.clock.now <= until:
            self.answers.setdefault(name, []).append(answer)
            assert self.answers[name].count(201) <= 1, f"{name}: {self.answers[name]}"

    # --- what happens ----------------------------------------------------------------------------------------------

    def attack(self) -> None:
        """Events at random; then one list everywhere, and all serve."""
        words = random.Random(self.chance.random())
        with mock.patch.object(secrets, "token_hex", lambda size: words.randbytes(size).hex()):
            try:
                self._attack()
            except AssertionError as error:
                raise AssertionError("\n".join([str(error), *self.log[-20:]])) from error
            finally:
                for server in self.servers:
                    server.stop()

    def _attack(self) -> None:
        self._load()
        self.pass_time(3.0)
        other = FakeServer(1, self._size, (), self.clock)
        other.name = "other1:3306"
        if self.toss_a_coin():
            other.restore(self.bodies[0].snapshot())
            self.log.append("the other body is a copy")
        self.bodies.append(other)
        for number in range(EVENTS):
            event = self.chance.choice(
                [
                    *(self._lead, self._lead, self._restart, self._end, self._cut, self._fail, self._wait),
                    *(self._make_at_once, self._replace_while_it_sleeps),
                ]
            )
            before = self._number()
            if self.toss_a_coin(0.7):
                self._stand_still()
            self._load()
            event(f"s{number}")
            self._load()
            self.pass_time(self.chance.choice([0.02, 0.3, 2.0, 8.0]))
            changes = self._number() - before
            assert changes <= MOST_CHANGES * len(self.servers), f"{changes} changes of body after {self.log[-1]}"
            self._mend()
        self._put_right()

    def _number(self) -> int:
        ring = self.common[0].state.ring
        return 0 if ring is None else ring.number

    def _a_list(self) -> list[FakeServer]:
        return [self.chance.choice(self.bodies), *self.common]

    def _load(self) -> None:
        for server in self.servers:
            for _ in range(2 if not server.stopped else 0):
                self.take(server, self.chance.choice([1, 10, 600]))

    def _did(self, what: str) -> None:
        self.log.append(f"{self.clock.now:.3f} {what}")

    def _stand_still(self) -> None:
        server, seconds = self.chance.choice(self.servers), self.chance.choice(STANDS)
        iterations = self.chance.randint(1, self.chance.choice([5, 20, 80]))
        server.freeze_after(iterations, seconds)
        self._did(f"{server.name} stands still after {iterations} iterations for {seconds} s")

    def _lead(self, _: str) -> None:
        server, body = self.chance.choice(self.servers), self.chance.choice(self.bodies)
        server.clients[0].server = body
        self._did(f"{server.name} is led to {body.name}")

    def _restart(self, _: str) -> None:
        database = self.chance.choice([*self.bodies, *self.common])
        database.restart()
        self._did(f"{database.name} is restarted")

    def _end(self, _: str) -> None:
        server = self.chance.choice(self.servers)
        server.stop()
        server.listed = self._a_list()
        self._did(f"{server.name} is killed, and lists {server.listed[0].name}")
        self.pass_time(self.chance.choice(STANDS[:3]))
        server.start()

    def _cut(self, _: str) -> None:
        server = self.chance.choice(self.servers)
        client = self.chance.choice([client for client in server.clients if client.server is not self.common[0]])
        client.cut = True
        self._did(f"{server.name} is cut off from {client.server.name}")

    def _fail(self, _: str) -> None:
        database = self.chance.choice([*self.bodies, *self.common[1:]])
        if self.toss_a_coin():
            database.hang()
        else:
            database.down = True
        self._did(f"{database.name} is down or hangs")

    def _wait(self, _: str) -> None:
        self._did("nothing")
        self.pass_time(7 * PROBE_INTERVAL)

    def _replace_while_it_sleeps(self, _: str) -> None:
        """One server stands still until its announcements have lapsed, and the others use another body by then."""
        server = self.chance.choice(self.servers)
        body = next(each for each in self.bodies if each is not server.clients[0].server)
        server.freeze_after(self.chance.randint(1, 20), 6.5 * PROBE_INTERVAL)
        self._did(f"{server.name} sleeps, and the others are led to {body.name}")
        self.pass_time(0.05)
        for other in self.servers:
            if other is not server:
                other.clients[0].server = body
        for _moment in range(4):
            self.pass_time(1.6 * PROBE_INTERVAL)
            self._load()

    def _make_at_once(self, name: str) -> None:
        for server in self.servers:
            self.put(server, name, *self.chance.choice(DEFINITIONS))
        self._did(f"{name} is made at once")

    def _mend(self) -> None:
        for database in (*self.bodies, *self.common):
            if self.toss_a_coin(0.7):
                database.heal()
        for server in self.servers:
            for client in server.clients:
                client.cut = client.cut and self.toss_a_coin(0.3)
            if server.frozen and self.toss_a_coin(0.7):
                server.thaw()

    def _put_right(self) -> None:
        body = self.chance.choice(self.bodies)
        for database in (*self.bodies, *self.common):
            database.heal()
        for server in self.servers:
            server.disarm()
            server.thaw()
            for client in server.clients:
                client.cut = False
            server.clients[0].server = body
        self._did(f"one list everywhere: {body.name}")
        self.pass_time(60 * PROBE_INTERVAL)
        told: set[str] = set()
        for server in self.servers:
            health = server.server.admin.health()
            told |= {each["sequence"] for each in health["warnings"]} - {None}
            troubles = [each for each in health["warnings"] if each["sequence"] is None]
            assert not troubles, health
            assert all(each["status"] == "up" for each in health["databases"]), health
        # whose makers reached no database in common, as when that was restarted, differ: /healthz names them
        for name in {definition.sequence for each in self.common for definition in each.state.kinds.values()} - told:
            kept = {repr(each.state.kinds.get(name)) for each in (body, *self.common)}
            assert len(kept) == 1, f"{name} is not the same everywhere: {kept}"
