"""One ticket database of several nodes: the server follows the one that can write."""

import contextlib
import shutil
import subprocess
from typing import Any

import redis

from tests.load import Load
from tests.servers import DatabaseServer
from tests.servers_processes import DEADLINE, Process, free_port, wait_until
from tests.servers_programs import as_unprivileged, new_home, program
from tests.servers_shared import FreshDatabase, OwnServer
from tests.ticketd import TicketServer, pair, settled


def nodes(server: TicketServer) -> list[Any]:
    return [each.get("node") for each in server.health()["databases"]]


class Sentinel(Process):
    """A Redis Sentinel that watches one primary as `tickets`, and decides alone."""

    def __init__(self, primary: DatabaseServer) -> None:
        super().__init__(new_home("redis"))
        self.port = free_port()
        self._file = self.home / "sentinel.conf"
        self._file.write_text(
            f"port {self.port}\nbind 127.0.0.1\nsentinel monitor tickets 127.0.0.1 {primary.port} 1\n"
            "sentinel down-after-milliseconds tickets 1000\nsentinel failover-timeout tickets 10000\n",
            encoding="utf-8",
        )

    def start(self) -> None:
        """Start it."""
        self.launch([program("redis"), str(self._file), "--sentinel"])

    def is_ready(self) -> bool:
        """Whether it knows the replica, for which it asks the primary every ten seconds, and the other Sentinel."""
        with contextlib.suppress(redis.RedisError):
            found: Any = redis.Redis(port=self.port, socket_timeout=5).sentinel_master("tickets")
            return (found["num-slaves"], found["num-other-sentinels"]) == (1, 1)
        return False


def test_tickets_go_on_when_sentinels_promote_a_replica(own_server: OwnServer, fresh_database: FreshDatabase) -> None:
    primary, replica = own_server("redis"), own_server("redis")
    replica.execute(f"REPLICAOF 127.0.0.1 {primary.port}")
    with Sentinel(primary) as first, Sentinel(primary) as second:
        wait_until(lambda: first.is_ready() and second.is_ready(), DEADLINE, "the Sentinels")
        urls = [fresh_database("redis"), f"redis+sentinel://127.0.0.1:{first.port},127.0.0.1:{second.port}/tickets/0"]
        with pair(urls) as servers, Load(*servers) as load:
            load.wait(100)
            primary.kill()
            load.wait(100)
            wait_until(lambda: "'master'" in str(replica.execute("INFO replication")), DEADLINE, "the promotion")
            settled(*servers)
            first.kill()
            load.wait(100)
            load.wait_for_each()
        load.check()


def test_servers_use_the_node_that_writes_and_follow_a_promotion(
    own_server: OwnServer, fresh_database: FreshDatabase
) -> None:
    primary, standby = own_server("postgresql"), own_server("postgresql")
    standby.stop()
    shutil.rmtree(standby.data_dir)
    copy = [program("postgresql", "pg_basebackup"), "-R", "-D", str(standby.data_dir), "-c", "fast"]
    source = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres"]
    subprocess.run([*as_unprivileged(), *copy, *source], check=True, capture_output=True, timeout=120)
    standby.start()
    listed = f"127.0.0.1:{standby.port},127.0.0.1:{primary.port}"
    primary.create_database("tickets")
    with pair([f"postgresql://postgres@{listed}/tickets", fresh_database("redis")]) as (first, second):
        assert nodes(first) == nodes(second) == [f"127.0.0.1:{primary.port}", None]
        assert first.health()["databases"][0]["name"] == f"127.0.0.1:{standby.port}"
        assert "node" not in first.health()["databases"][1]
        with Load(first, second) as load:
            load.wait(100)
            primary.kill()
            load.wait(100)
            assert nodes(first)[0] is None
            standby.execute("SELECT pg_promote()")
            settled(first, second)
            load.wait(100)
            assert nodes(first) == nodes(second) == [f"127.0.0.1:{standby.port}", None]
            load.wait_for_each()
        load.check()
