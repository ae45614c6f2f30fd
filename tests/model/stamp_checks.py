"""The checks on each id that a ticket server stamps in the model."""

from typing import TYPE_CHECKING

from app.kinds.definition import Definition
from app.tickets.requests.request import Ids
from tests.fakes.ticket_database import FakeTicketDatabase
from tests.model.host import Asked, Host
from tests.model.stamps import LEASE_MS, tick_of, timed

if TYPE_CHECKING:
    from tests.model.world import World

STAMPED_AHEAD_MS = 500
"""As far ahead of the clocks may one server stamp ids that are counted in a database, or by a unit of their time."""


def check_stamps(world: "World", host: Host, definition: Definition, ids: Ids, asked: Asked) -> None:
    """Hold ids of a kind that a server has just stamped against the clocks, its lease, and what others stamped."""
    name, kind = definition.sequence, timed(definition)
    if kind.parts == "shard":
        last = tick_of(definition, ids[-1])[0]
    else:
        lease = host.server.lease.lease if kind.parts == "worker" else None
        database = None if lease is None else lease.member.database
        server = database.server if isinstance(database, FakeTicketDatabase) else None
        warned = server is not None and host.warns_of(server) and not host.refuses
        last = world.stamps.take(definition, ids, host.name, server, warned=warned)
        before = host.last_ids.get(name)
        assert before is None or ids[0] > before, f"{host.name} stamped {ids[0]} in {name} after {before}"
        host.last_ids[name] = ids[-1]
        if lease is not None:
            limit = world.true_ms + LEASE_MS + world.allowed_ahead_ms
            assert lease.until_ms <= limit, f"{host.name} holds {lease}, {lease.until_ms - limit} ms too far ahead"
    first_ms = kind.time_of(definition.parameters, tick_of(definition, ids[0])[0])
    last_ms = kind.time_of(definition.parameters, last)
    host.last_ms = max(host.last_ms, last_ms)
    ahead = last_ms - world.true_ms
    limit = world.allowed_ahead_ms
    if kind.parts == "shard":
        limit += (len(world.hosts) + 1) * max(STAMPED_AHEAD_MS, kind.unit_ms) + 1_500 * world.rewinds
    assert ahead <= limit, f"{host.name} stamped {name} {ahead:.0f} ms ahead of the true time, {limit:.0f} at most"
    if host.wall.jumps == asked.jumps:
        late = asked.wall_ms - kind.unit_ms - first_ms
        assert late <= 0, f"{host.name} stamped {name} {late} ms before it was asked for"
