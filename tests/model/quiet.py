"""When all is quiet, whoever can serve has to: the model looks at every ticket server, lease and warning."""

import itertools
from typing import Any

from app.common.sequences import counter_table, number_leased
from app.databases.protocol import USE_INTERVALS
from app.kinds.definition import Definition
from app.tickets.watch.chores import LISTING_SECONDS
from tests.fakes.ticket_database import FakeServer
from tests.fakes.ticket_server import PROBE_INTERVAL, REQUEST_TIMEOUT
from tests.model.clocks import RIGHT_SECONDS
from tests.model.host import Host
from tests.model.sequences import SEQUENCES
from tests.model.stamps import LEASE_MS, timed
from tests.model.world import World

PROBED = 2.2
"""Seconds after which every database has been probed, taken in, and its suspended lanes have been tried."""
LISTED = LISTING_SECONDS + PROBED
"""Seconds after which the tables have been listed too, and made where they were missing."""
LONGEST_ANSWER = REQUEST_TIMEOUT + 0.1
FAR_AHEAD = 200 * 86_400.0
"""Seconds: a clock that is so far ahead is near the end of the 388 days that ids of 25 bits of seconds last."""


def quiet_down(world: World) -> None:
    """Let every request end and every background loop go round; then whoever can serve has to.

    The faults that there are stay; nobody is stopped in the midst of it. While the ring is not what the operator
    wants it to be, nobody has to serve; nor on a database alone that has never been in it.
    """
    for host in world.running:
        host.disarm()
    patience = LISTED if world.lost_a_table else PROBED
    patience += USE_INTERVALS * PROBE_INTERVAL * _another_body_is_announced(world)
    members = [server for server in world.ring if server.state.ring is not None]
    held = {name: [server for server in members if name in server.state.tables] for name in SEQUENCES}
    world.pass_time(patience)
    long_ago = world.clock.now - patience + 0.001
    ready = [host for host in world.running if host.well_since <= long_ago]
    for host in ready:
        assert not host.tasks, f"{host.name} never ended {host.tasks}: {world.report(host)}"
    if not world.settings_right:
        return
    well = [server for server in world.ring if world.reachable(server) and world.well_since[server] <= long_ago]
    all_well = len(well) == world.size
    well = well if all_well else _recorded(world, well)
    if not well:
        return
    _check_leases(world)
    requested = 2 * world.size
    for host, sequence in itertools.product(ready, ("photos", "accounts")):
        if not all_well and (host.refuses or not set(well) & set(held[sequence])):
            continue  # a table that is gone is made again above what the others can say of it
        before = host.answers
        for _ in range(requested):
            world.request(host, sequence, 1, whole=False)
        _pass_time_until_answered(world, ready)
        served = host.answers - before
        assert served == requested, f"{host.name} served {served} of {requested} in {sequence}: {world.report(host)}"
    for host, definition in itertools.product(ready, world.kinds.values()):
        _serves_kind(world, host, definition, well, all_well=all_well)
    if all_well and ready and len(ready) == len(world.running):
        for host in ready:
            for _ in range(requested):
                world.request(host, "small", 1, whole=False)
        _pass_time_until_answered(world, ready)
        world.pass_time(PROBED)
        for host in ready:
            _is_well(world, host)
        world.returning = None
        world.lost_a_table = False
        world.record.all_is_well(world.ring, lambda *of: any(host.holds(*of) for host in world.hosts))


def _another_body_is_announced(world: World) -> bool:
    """Whether a server said that it uses another body of data than the one that the operator wants at its offset,
    one that has ended without a word included."""
    words = {i: server.state.ring.body if server.state.ring else "" for i, server in enumerate(world.ring, start=1)}
    announced = {use for server in world.ring for use in server.uses(None, world.clock.now)}
    return any(words.get(use.offset, use.word) != use.word for use in announced)


def _recorded(world: World, servers: list[FakeServer]) -> list[FakeServer]:
    """The databases that record the ring. A new one joins the ring once the servers can ask the others."""
    numbers = {server: server.state.ring.number if server.state.ring else 0 for server in world.ring}
    return [server for server in servers if numbers[server] == max(numbers.values())]


def _serves_kind(world: World, host: Host, definition: Definition, well: list[FakeServer], *, all_well: bool) -> None:
    name = definition.sequence
    kept = (server.state.kinds.get(name) for server in well)
    known = [each for each in kept if each is not None and each.decided]
    if not host.wall.right or not any(abs(server.clock_offset) <= RIGHT_SECONDS for server in well):
        return
    if not known or (not all_well and host.refuses) or _stands_ahead(world, host, definition):
        return
    before = host.answers
    world.request_of_kind(host, name, 1, None)
    _pass_time_until_answered(world, [host])
    assert host.answers == before + 1, (
        f"{host.name} did not serve {name}: {world.outcomes} {world.report(host)} {host.server.lease.lease} "
        f"{host.server.clock.ahead}"
    )
    world.outcomes[f"{definition.kind} served"] += 1


def _check_leases(world: World) -> None:
    """Check that no lease ends later than a right clock allows, plus the time that a server may be ahead of it."""
    limit = world.true_ms + LEASE_MS + world.allowed_ahead_ms
    for server in world.servers:
        for mark in server.state.marks.values():
            if number_leased(mark.sequence) is not None:
                assert mark.mark <= limit, f"{mark} on {server.name} is {mark.mark - limit:.0f} ms too far ahead"


def _stands_ahead(world: World, host: Host, definition: Definition) -> bool:
    """Whether ids of this sequence lie further in the future than may be waited for, since clocks were wrong."""
    kind = timed(definition)
    latest = world.true_ms + 300
    if kind.parts != "shard":
        return host.last_ms > latest
    table = counter_table(definition.sequence)
    ticks = [s.state.tables[table].counter for s in world.servers if table in s.state.tables]
    ticks += [mark.mark for s in world.servers for mark in s.state.marks.values() if mark.sequence == table]
    return kind.time_of(definition.parameters, max(ticks, default=0)) > latest


def _pass_time_until_answered(world: World, hosts: list[Host]) -> None:
    began = world.clock.now
    while any(host.tasks for host in hosts):
        world.pass_time(0.02)
        assert world.clock.now < began + LONGEST_ANSWER, "a request is stuck"


def _is_well(world: World, host: Host) -> None:
    health = host.server.admin.health()
    warnings = [w for w in health["warnings"] if not _is_expected(w, ahead=host.wall.off)]
    down = [database for database in health["databases"] if database["status"] != "up"]
    assert not warnings, f"{host.name} warns: {warnings}"
    assert not down, f"{host.name} has not taken in {down}"


def _is_expected(warning: dict[str, Any], *, ahead: float) -> bool:
    """Whether a warning may stand when all is well, on a server whose clock is so many seconds ahead: by that it tells
    which ids end soon."""
    expected = ["clock is", "in reserve", *(["its ids end at"] if ahead > FAR_AHEAD else [])]
    return warning["sequence"] == "small" or any(words in warning["reason"] for words in expected)
