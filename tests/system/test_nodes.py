"""One ticket database of several nodes: the server follows the one that can write."""

import contextlib
import shutil
import subprocess
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from tests.load import Load
from tests.servers import DatabaseServer
from tests.servers_processes import DEADLINE, Process, free_port, wait_until
from tests.servers_programs import as_unprivileged, new_home, program
from tests.servers_shared import OwnServer
from tests.ticketd import OF_NODES, TicketServer, settled


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
        """Start it, and return when it answers."""
        self.launch([program("redis"), str(self._file), "--sentinel"])
        self.until(self._answers, "to answer")

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError):
            return bool(redis.Redis(port=self.port, socket_timeout=5).ping())
        return False

    def knows(self, replicas: int, sentinels: int) -> bool:
        """Whether it knows so many replicas of the primary, and so many other Sentinels."""
        found: Any = redis.Redis(port=self.port, socket_timeout=5).sentinel_master("tickets")
        return (found["num-slaves"], found["num-other-sentinels"]) == (replicas, sentinels)


@pytest.fixture
def three(own_server: OwnServer) -> list[DatabaseServer]:
    """Three Redis servers; the third one replicates the second one."""
    found = [own_server("redis") for _ in range(3)]
    found[2].execute(f"REPLICAOF 127.0.0.1 {found[1].port}")
    return found


def test_tickets_go_on_when_sentinels_promote_a_replica(three: list[DatabaseServer]) -> None:
    with ExitStack() as stack:
        sentinels = [stack.enter_context(Sentinel(three[1])) for _ in range(2)]
        listed = ",".join(f"127.0.0.1:{each.port}" for each in sentinels)
        urls = [three[0].url("0"), f"redis+sentinel://{listed}/tickets/0"]
        server, other = (stack.enter_context(TicketServer(urls, **OF_NODES)) for _ in range(2))
        server.request("PUT", "/sequence/photos").raise_for_status()
        settled(server, other)
        for sentinel in sentinels:  # they ask the primary for its replicas every ten seconds
            wait_until(lambda sentinel=sentinel: sentinel.knows(1, 1), DEADLINE, "the Sentinels")  # type: ignore[misc]
        with Load(server, other) as load:
            load.wait(200)
            three[1].kill()
            load.wait(200)
            wait_until(
                lambda: "'role': 'master'" in str(three[2].execute("INFO replication")), DEADLINE, "the promotion"
            )
            settled(server, other)
            sentinels[0].kill()
            load.wait(200)
            load.wait_for_each()
        load.check()


@pytest.fixture
def replicated(own_server: OwnServer) -> list[DatabaseServer]:
    """A PostgreSQL server, its standby, and a MariaDB server."""
    primary, standby = own_server("postgresql"), own_server("postgresql", starts=False)
    shutil.rmtree(standby.data_dir)
    copy = [program("postgresql", "pg_basebackup"), "-R", "-D", str(standby.data_dir), "-c", "fast"]
    source = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres"]
    subprocess.run([*as_unprivileged(), *copy, *source], check=True, capture_output=True, timeout=120)
    standby.start()
    return [primary, standby, own_server("mariadb")]


def test_servers_use_the_node_that_writes_and_follow_a_promotion(replicated: list[DatabaseServer]) -> None:
    primary, standby, other = replicated
    listed = f"127.0.0.1:{standby.port},127.0.0.1:{primary.port}"
    primary.create_database("tickets")
    urls = [f"postgresql://postgres@{listed}/tickets", other.create_database("tickets")]
    with TicketServer(urls, **OF_NODES) as first, TicketServer(urls, **OF_NODES) as second:
        first.request("PUT", "/sequence/photos").raise_for_status()
        settled(first, second)
        assert nodes(first) == nodes(second) == [f"127.0.0.1:{primary.port}", None]
        assert first.health()["databases"][0]["name"] == f"127.0.0.1:{standby.port}"
        assert "node" not in first.health()["databases"][1]
        with Load(first, second) as load:
            load.wait(200)
            primary.kill()
            load.wait(200)
            assert nodes(first)[0] is None
            standby.execute("SELECT pg_promote()")
            settled(first, second)
            load.wait(200)
            assert nodes(first) == nodes(second) == [f"127.0.0.1:{standby.port}", None]
            load.wait_for_each()
        load.check()
