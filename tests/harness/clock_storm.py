"""Sequences of kinds on real databases, drawn from servers whose clocks are wrong, while databases die.

`python -m tests.long.clocks` runs it for longer than the tests do.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.harness.id_load import IdLoad
from tests.harness.pair import Schema
from tests.harness.processes import wait_until
from tests.harness.shifted_clock import ShiftedClock
from tests.harness.ticketd import TicketServer

HOUR, DAY, YEAR = 3600.0, 86_400.0, 31_536_000.0
INSTAGRAM_EPOCH_MS = 1_314_220_021_721
NEAR_MS = 1000
"""How near the time in an id is to the true time of its draw, where the clocks were right."""
SETTINGS: dict[str, object] = {"TICKETS_PROBE_INTERVAL": 0.5}


@dataclass
class Stage:
    """Three ticket servers, each under a clock of its own."""

    schema: Schema
    servers: list[TicketServer] = field(default_factory=list)
    clocks: list[ShiftedClock] = field(default_factory=list)

    def make(self, sequence: str, kind: str, parameters: Mapping[str, int]) -> None:
        """Make a sequence, and see that every server knows it."""
        reply = self.servers[0].put(f"/sequence/{sequence}", json={"kind": kind, **parameters})
        assert reply.status == 201, reply.text
        for server in self.servers:
            wait_until(lambda server=server: server.get(f"/ticket/{sequence}").status == 200, 20, "the sequence")  # type: ignore[misc]


@contextlib.contextmanager
def stage(schema: Schema, shifts: tuple[float, ...] = (-0.2, 0.0, 0.2)) -> Iterator[Stage]:
    """The servers, with their clocks shifted by so many seconds."""
    made = Stage(schema)
    with contextlib.ExitStack() as stack:
        for shift in shifts:
            clock = stack.enter_context(ShiftedClock(shift))
            made.clocks.append(clock)
            made.servers.append(stack.enter_context(TicketServer(schema.urls, settings=SETTINGS | clock.environment)))
        for server in made.servers:
            server.wait_ready()
        yield made


def far_from_the_truth(load: IdLoad, servers: list[TicketServer]) -> list[str]:
    """Of these servers' instagram ids, those whose time is not near the true one."""
    names = {server.name for server in servers}
    found = []
    for drawn in load.drawn:
        if drawn.server in names:
            found += [
                f"{drawn.server}: {ms - drawn.asked_ms:+.0f} ms from when it was asked"
                for ms in ((int(id_) >> 23) + INSTAGRAM_EPOCH_MS for id_ in drawn.ids)
                if not drawn.asked_ms - NEAR_MS <= ms <= drawn.arrived_ms + NEAR_MS
            ]
    return found


def disorder(load: IdLoad) -> list[str]:
    """Of each server, an answer that was asked for when another had come, and has a smaller id than it."""
    found = []
    for server in {drawn.server for drawn in load.drawn}:
        answers = sorted(
            (each for each in load.drawn if each.server == server and each.ids), key=lambda each: each.asked_ms
        )
        arrived = iter(sorted(answers, key=lambda each: each.arrived_ms))
        next_ = next(arrived, None)
        highest = -1
        for each in answers:
            while next_ is not None and next_.arrived_ms < each.asked_ms:
                highest = max(highest, *map(int, next_.ids))
                next_ = next(arrived, None)
            if min(map(int, each.ids)) < highest:
                found.append(f"{server}: {each.ids[0]} after {highest}")
    return found


def instagram(schema: Schema, seconds: float, *, shards: int, pause: float = 0) -> IdLoad:
    """Draw instagram ids while a clock goes back by an hour, another ahead by an hour and by a year, and a database is
    killed and comes back older. Raises AssertionError where a promise is broken.

    `pause`: seconds that each client waits after an answer; 0 is full rate.
    """
    parameters = {"shards": max(shards, 2)}
    name = f"likes_{shards}"
    targets = [f"/ticket/{name}?shard={shard}&count=10" for shard in range(min(shards, 2000))]
    with stage(schema) as made:
        made.make(name, "instagram", parameters)
        _, right, ahead = made.servers
        database = schema.pair[1]
        saved = database.save_data_directory()
        with IdLoad(made.servers, targets, pause=pause) as load:
            step = seconds / 5
            time.sleep(step)
            made.clocks[0].set(-HOUR)
            time.sleep(step)
            made.clocks[2].set(HOUR)
            time.sleep(step)
            made.clocks[2].set(YEAR)
            time.sleep(step)
            database.kill()
            database.restore_data_directory(saved)
            database.start()
            time.sleep(step)
        assert load.duplicates() == []
        refused = load.refused(besides=[ahead])
        assert not refused, refused
        assert far_from_the_truth(load, [right]) == []
        assert load.refused()[ahead.name, 503] > 0
        return load


def snowflake(schema: Schema, seconds: float, *, pause: float = 0) -> IdLoad:
    """Draw snowflake ids while a server is killed and started again, another is frozen, a third has its clock set back
    by 5 s and by a day, and all databases are dead. Raises AssertionError where a promise is broken.

    `seconds`: how long the databases are dead, and together with a third of it for each of the other faults. `pause`:
    as for `instagram`.
    """
    with stage(schema) as made:
        made.make("posts", "snowflake", {})
        killed, frozen, behind = made.servers
        step = seconds / 3
        with IdLoad(made.servers, ["/ticket/posts?count=5"], clients=4, pause=pause) as load:
            time.sleep(step)
            killed.kill()
            killed.start()
            time.sleep(step)
            frozen.freeze()
            time.sleep(step)
            frozen.thaw()
            made.clocks[2].set(0.2 - 5)
            time.sleep(step)
            made.clocks[2].set(-DAY)
            time.sleep(step)
            made.clocks[2].set(0.2)
            wait_until(lambda: behind.get("/ticket/posts").status == 200, 20, "ids in spite of what the clock was")
            killed.wait_ready()
            dead_from = time.time() * 1000
            schema.pair.kill()
            time.sleep(seconds)
            dead_until = time.time() * 1000
            schema.pair.start()
            time.sleep(step)
        assert load.duplicates() == []
        failed = [each for each in load.drawn if dead_from <= each.asked_ms <= dead_until and each.status != 200]
        assert not failed, failed[:10]
        refused = load.refused(besides=[killed, frozen, behind])
        assert not refused, refused
        return load
