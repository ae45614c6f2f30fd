"""A Galera cluster of three MariaDB nodes as one ticket database."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack

import pytest

from app.databases.database import Database
from app.databases.mysql.session import connect
from app.databases.mysql.url import parse
from app.databases.session import Book, Mark, Marked, Note, Residue, Want, Write
from app.errors import DatabaseFailed, SequenceBusy
from tests.load import Load
from tests.servers_galera import GaleraNode
from tests.servers_processes import DEADLINE, wait_until
from tests.servers_shared import OwnServer, SharedServers
from tests.ticketd import OF_NODES, TicketServer

NUMBERS = "has wsrep_auto_increment_control=ON, so its Galera cluster numbers the ids: set it to OFF on every node"


@pytest.fixture(scope="module")
def cluster(shared_servers: SharedServers) -> Iterator[list[GaleraNode]]:
    """Three nodes that take part in one cluster."""
    with ExitStack() as stack:
        found = [GaleraNode(shared_servers) for _ in range(3)]
        for node in found:
            stack.callback(node.close)
            node.join(found)
        found[0].start("--wsrep-new-cluster")
        found[0].create_database("tickets")
        found[0].stop()
        for node in found[1:]:
            node.restore_data(found[0].data_dir)
        found[0].start("--wsrep-new-cluster", "--init-file=")
        for node in found[1:]:
            node.start("--init-file=")
        yield found


def awaits(servers: list[TicketServer], database: int, reason: str) -> None:
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
def test_tickets_go_on_while_nodes_fail(cluster: list[GaleraNode], own_server: OwnServer) -> None:
    with ExitStack() as stack:
        plain = own_server("mariadb", offset=2, increment=2)
        urls = [f"mysql://root@{','.join(each.address for each in cluster)}/tickets", plain.create_database("tickets")]
        servers = [stack.enter_context(TicketServer(urls, **OF_NODES)) for _ in range(2)]
        servers[0].request("PUT", "/sequence/photos").raise_for_status()

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
            load.wait(200)
            cluster[0].kill()
            moved(cluster[0])
            cluster[0].start("--init-file=")
            second = moved()
            second.freeze()
            moved(second)
            second.thaw()
            wait_until(second.takes_part, DEADLINE, "the node to come back")
            load.wait(200)
            moved()
            load.wait_for_each()
            for node in cluster:
                node.execute("SET GLOBAL wsrep_auto_increment_control = ON")
            awaits(servers, 0, NUMBERS)
            load.wait(200)
        load.check()
