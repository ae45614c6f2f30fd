"""The runbook that moves a ring to other engines, one database after the other, while tickets are drawn."""

from tests.load import Load
from tests.servers import Engine
from tests.servers_shared import SharedServers
from tests.ticketd import pair, settled

MOVES: tuple[tuple[int, Engine], ...] = ((2, "postgresql"), (1, "mariadb"))
"""The offsets that get an empty database, one after the other, and its engine."""


def test_a_ring_moves_to_other_engines_while_tickets_are_drawn(shared_servers: SharedServers) -> None:
    def empty(offset: int, engine: Engine) -> str:
        return shared_servers.database(engine, offset=offset, increment=2)

    listed = [empty(1, "redis"), empty(2, "mariadb")]
    with pair(listed, drain_seconds=0.5, database_timeout=5) as (first, second):
        with Load(first, second) as load:
            for offset, engine in MOVES:
                listed[offset - 1] = empty(offset, engine)
                for server in (first, second):
                    server.settings["databases"] = " ".join(listed)
                    server.stop()
                    server.start()
                    if server is first:
                        assert server.health()["databases"][offset - 1]["status"] != "up"  # the other one uses the old
                settled(first, second)
                load.wait_for_each()
        load.check(errors=True)
        assert [each for each in load.errors if "status" in each and "draining" not in each] == []
