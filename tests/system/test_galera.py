"""A Galera cluster of three MariaDB nodes as one ticket database."""

import asyncio
import contextlib
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pymysql
import pytest

from app.databases.database import Database
from app.databases.mysql.session import connect
from app.databases.mysql.url import parse
from app.databases.session import Book, Mark, Marked, Note, Residue, Want, Write
from app.errors import DatabaseFailed, SequenceBusy
from tests.load import Load
from tests.servers import DatabaseServer
from tests.servers_processes import DEADLINE, free_port, wait_until
from tests.servers_shared import FreshDatabase
from tests.ticketd import OF_NODES, TicketServer, pair

NUMBERS = "has wsrep_auto_increment_control=ON, so its Galera cluster numbers the ids: set it to OFF on every node"
PROVIDER = "/usr/lib/galera/libgalera_smm.so"
HAND_OVER = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
    --role) role=$2 ;; --address) address=$2 ;; --datadir) data=$2 ;; --gtid) gtid=$2 ;; --bypass) bypass=1 ;;
  esac
  shift
done
if [ $role = joiner ]; then
  rm -f $data/position
  echo "ready $data/position"
  until [ -f $data/position ]; do sleep 0.05; done
  cat $data/position
else
  [ "$bypass" ] || exit 22
  echo continue
  echo $gtid >$address.new
  mv $address.new $address
  echo "done $gtid"
fi
"""
"""What Galera calls for a state transfer: it only tells the joining node where it stands. A node begins with a copy of
the first one's data, and what comes after that is sent by the nodes themselves."""


class GaleraNode(DatabaseServer):
    """One node of a Galera cluster."""

    def __init__(self, group: int, groups: Sequence[int]) -> None:
        """Make a node that talks to the others on the port `group`; `groups` are these ports of all nodes."""
        if not Path(PROVIDER).exists():
            raise FileNotFoundError("no Galera on this machine: apt-get install galera-4, or `make databases`")
        provider = (
            f"base_host=127.0.0.1;base_port={group};gmcast.listen_addr=tcp://127.0.0.1:{group};"
            f"ist.recv_addr=127.0.0.1:{free_port()};gcache.size=16M"
        )
        options = [
            *("--wsrep-on=ON", f"--wsrep-provider={PROVIDER}", f"--wsrep-provider-options={provider}"),
            f"--wsrep-cluster-address=gcomm://{','.join(f'127.0.0.1:{each}' for each in groups)}",
            *("--wsrep-node-address=127.0.0.1", "--wsrep-sst-method=handover", "--wsrep-auto-increment-control=OFF"),
            *("--binlog-format=ROW", "--innodb-autoinc-lock-mode=2"),
        ]
        super().__init__("mariadb", offset=1, increment=2, options=options)
        self.address = f"127.0.0.1:{self.port}"
        script = self.home / "wsrep_sst_handover"
        script.write_text(HAND_OVER, encoding="utf-8")
        script.chmod(0o755)

    def start(self, *options: str) -> None:
        """Start it, after a kill too, and return when it takes part in the cluster."""
        environment = os.environ | {"PATH": f"{self.home}{os.pathsep}{os.environ['PATH']}"}
        command = [*self._command(), *options]
        look = [*command, "--wsrep-recover"]
        said = subprocess.run(look, cwd=self.home, capture_output=True, text=True, check=True, timeout=110).stderr
        position = re.findall(r"Recovered position: *(\S+)", said)[-1]
        self.launch([*command, f"--wsrep-start-position={position}"], environment)
        self.until(self.takes_part, "to take part in the cluster")

    def takes_part(self) -> bool:
        """Whether it has everything that the cluster has committed."""
        with contextlib.suppress(OSError, pymysql.MySQLError):
            return "Synced" in str(self.execute("SHOW STATUS LIKE 'wsrep_local_state_comment'"))
        return False


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[GaleraNode]]:
    """Three nodes that take part in one cluster."""
    with ExitStack() as stack:
        groups = [free_port() for _ in range(3)]
        found = [GaleraNode(group, groups) for group in groups]
        for node in found:
            stack.callback(node.close)
        found[0].start("--wsrep-new-cluster")
        found[0].create_database("tickets")
        found[0].stop()
        for node in found:
            node.options.append("--init-file=")  # the copied data have the user
        for node in found[1:]:
            node.restore_data(found[0].data_dir)
        found[0].start("--wsrep-new-cluster")
        for node in found[1:]:
            node.start()
        yield found


def awaits(servers: Sequence[TicketServer], database: int, reason: str) -> None:
    """Return when each server keeps the database in quarantine for this reason."""

    def quarantines(server: TicketServer) -> bool:
        found = server.health()["databases"][database]
        return (found["status"], found["last_error"]) == ("quarantined", reason)

    wait_until(lambda: all(map(quarantines, servers)), DEADLINE, "the quarantine")


@pytest.fixture
async def places(cluster: list[GaleraNode]) -> AsyncIterator[list[tuple[Database, str]]]:
    """The first two nodes, each as a database by itself, with its life."""
    found = [Database(parse(node.url("tickets")), connect, 20) for node in cluster[:2]]
    yield [(database, (await database.look("test", Note()))[1]) for database in found]
    for database in found:
        await database.close()


async def test_what_one_node_has_committed_is_read_from_another(
    places: list[tuple[Database, str]], cluster: list[GaleraNode]
) -> None:
    (writer, life), (reader, other) = places
    cluster[0].execute("CREATE TABLE slow (n INT) SELECT seq AS n FROM seq_1_to_3000", "tickets")
    cluster[0].execute("UPDATE slow SET n = -n", "tickets")  # without a key, another node looks for each row
    assert await writer.write([Write(Book.COUNTS, "waits", None, Note(high=7))], None, life) == [True]
    assert await reader.read(Book.COUNTS, ["waits"], other) == {"waits": Note(high=7)}


async def test_writes_that_collide_on_two_nodes_are_repeated_or_fail(places: list[tuple[Database, str]]) -> None:
    (first, life), _ = places
    await first.make("collisions", 64, 0, life)
    await first.write([Write(Book.MARKS, "collisions:1", None, Note(tenure="tenure"))], None, life)
    stamp, done = (await first.read_ring(life)).stamp, [0]

    async def collide(database: Database, life: str, limits: Iterable[int]) -> None:
        for limit in limits:
            with contextlib.suppress(DatabaseFailed):
                mark = Mark("collisions:1", "tenure", limit, 0, sure=False)
                assert await database.mark(mark, stamp, life) is Marked.DONE
                done.append(limit)
            with contextlib.suppress(SequenceBusy):
                await database.draw(Want("collisions", 1), Residue(1, 2), life)

    await asyncio.gather(*(collide(*place, range(start, 80, 2)) for start, place in enumerate(places)))
    for database, life in places:
        assert (await database.read(Book.MARKS, ["collisions:1"], life))["collisions:1"].high == max(done)
    assert len(done) > 40


def test_two_nodes_are_not_two_databases(cluster: list[GaleraNode]) -> None:
    with contextlib.closing(TicketServer([node.url("tickets") for node in cluster[1:]], **OF_NODES)) as server:
        server.start("/livez")
        awaits([server], 1, f"is the same data as {cluster[1].address}")


@pytest.mark.timeout(400)
def test_tickets_go_on_while_nodes_fail(cluster: list[GaleraNode], fresh_database: FreshDatabase) -> None:
    plain = fresh_database("redis")
    nodes = f"mysql://root@{','.join(each.address for each in cluster)}/tickets"
    with pair([nodes, plain]) as servers:

        def moved(*before: GaleraNode) -> GaleraNode:
            """Return the node that both servers use, as soon as all is well and it is another one than before."""
            found: list[str] = []

            def agree() -> bool:
                health = [each.health() for each in servers]
                assert {each["databases"][0]["name"] for each in health} == {cluster[0].address}
                used = {each["databases"][0]["node"] for each in health}
                found[:] = used - {each.address for each in before}
                return len(used) == len(found) == 1 and all(each["status"] == "pass" for each in health)

            wait_until(agree, DEADLINE, "both servers to use one node")
            return next(each for each in cluster if each.address in found)

        assert moved() is cluster[0]
        with Load(*servers) as load:
            load.wait(100)
            cluster[0].kill()
            moved(cluster[0])
            cluster[0].start()
            second = moved()
            second.freeze()
            moved(second)
            second.thaw()
            wait_until(second.takes_part, DEADLINE, "the node to come back")
            load.wait(100)
            moved()
            load.wait_for_each()
            for node in cluster:
                node.execute("SET GLOBAL wsrep_auto_increment_control = ON")
            awaits(servers, 0, NUMBERS)
            load.wait(100)
        load.check()
