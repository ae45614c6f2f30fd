"""Blocks, lists and bumps close to the end of a column: what does not fit is refused, and uses up nothing."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.harness.notebook import Notebook
from tests.harness.pair import Schema
from tests.harness.ticketd import PATIENT, TicketServer

CEILING = 2**32 - 1
SIZE = 10_000


@pytest.fixture
def server(fresh_schema: Schema) -> TicketServer:
    return TicketServer(fresh_schema.urls, settings=PATIENT | {"TICKETS_PROBE_INTERVAL": 0.2})


def make(schema: Schema, name: str, *left: int) -> None:
    """A sequence with so many numbers left on the first database, on the second, and so on."""
    for index, numbers in enumerate(left):
        schema.execute(
            index,
            f"CREATE TABLE `{name}` (id INT UNSIGNED NOT NULL AUTO_INCREMENT, "
            "stub CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '', "
            f"PRIMARY KEY (stub), KEY id (id)) ENGINE=InnoDB AUTO_INCREMENT={CEILING - numbers + 1}",
        )


def counters(schema: Schema, name: str) -> list[int]:
    """The live AUTO_INCREMENT of each database."""
    found = []
    for index in (0, 1):
        with schema.pair[index].connect(schema.name) as connection, connection.cursor() as cursor:
            cursor.execute(f"SHOW CREATE TABLE `{name}`")
            ((_, definition),) = cursor.fetchall()
            found.append(int(definition.partition("AUTO_INCREMENT=")[2].split()[0]))
    return found


def take_all(notebook: Notebook, server: TicketServer) -> list[int]:
    taken: list[int] = []
    while (answer := notebook.ask(server)).status == 200:
        taken += answer.ids
    assert answer.status == 410, answer
    return taken


@pytest.mark.parametrize("size", [SIZE, 1_000, 65])
def test_a_block_that_does_not_certainly_fit_is_refused_and_uses_up_nothing(
    fresh_schema: Schema, server: TicketServer, new_name: Callable[[], str], size: int
) -> None:
    name = new_name()
    make(fresh_schema, name, 2 * 2 * size, 2 * 2 * size)
    notebook = Notebook(name)
    with server:
        server.wait_health("warn")
        before = counters(fresh_schema, name)
        for asked in range(size, size - 3, -1):
            assert notebook.ask(server, "block", asked).status == 410
        for after, counter in zip(counters(fresh_schema, name), before, strict=True):
            assert after - counter <= 20
        notebook.take(server)
        notebook.take(server, "block", size // 4)
        notebook.take(server, "count", 10)
        notebook.take(server)
    notebook.check()


def test_blocks_are_drawn_until_three_times_their_size_are_left(
    fresh_schema: Schema, server: TicketServer, new_name: Callable[[], str]
) -> None:
    name = new_name()
    make(fresh_schema, name, 20 * SIZE, 20 * SIZE)
    notebook = Notebook(name)
    with server:
        server.wait_health("warn")
        while (answer := notebook.ask(server, "block", SIZE)).status == 200:
            pass
        assert answer.status == 410, answer
        for counter in counters(fresh_schema, name):
            assert 2 * SIZE < CEILING - counter <= 2 * 4 * SIZE + 100
        notebook.take(server, "block", SIZE // 2)
        assert len(notebook.take(server, "count", 1_000)) == 1_000
    notebook.check()


def test_servers_that_draw_at_the_same_time_do_not_run_into_the_end(
    fresh_schema: Schema, new_name: Callable[[], str]
) -> None:
    """None knows how far the others have come; single tickets go on where the blocks end, and to the very end."""
    name = new_name()
    size = 2_000
    make(fresh_schema, name, 30 * size, 30 * size)
    settings = PATIENT | {"TICKETS_PROBE_INTERVAL": 30}
    with (
        TicketServer(fresh_schema.urls, settings=settings) as one,
        TicketServer(fresh_schema.urls, settings=settings) as other,
    ):
        books = [Notebook(name) for _ in range(6)]

        def draw(number: int) -> None:
            server = (one, other)[number % 2]
            while books[number].ask(server, "block", size).status == 200:
                pass

        with ThreadPoolExecutor(len(books)) as workers:
            list(workers.map(draw, range(len(books))))
        assert {book.answers[-1].status for book in books} == {410}
        for counter in counters(fresh_schema, name):
            assert CEILING - counter > size
        everything = Notebook(name)
        for book in books:
            everything.write_down(book.answers)
        for server in (one, other):
            for _ in range(5):
                everything.take(server)
                everything.take(server, "count", 20)
    everything.check()


def test_lists_of_several_servers_go_to_the_end_and_leave_the_last_to_single_tickets(
    fresh_schema: Schema, new_name: Callable[[], str]
) -> None:
    """A list that ran past the end would use up what is left: a server looks where the table stands before it draws."""
    name = new_name()
    left = 200
    make(fresh_schema, name, left, left)
    settings = PATIENT | {"TICKETS_PROBE_INTERVAL": 30}
    notebook = Notebook(name)
    with (
        TicketServer(fresh_schema.urls, settings=settings) as one,
        TicketServer(fresh_schema.urls, settings=settings) as other,
    ):
        notebook.take(one, "count", 2)
        notebook.take(other, "count", 2)
        for _ in range(4):  # the other does not hear of these
            notebook.take(one, "count", 40)
        assert notebook.ask(other, "count", 40).status == 410
        assert len(take_all(notebook, other)) >= left - 4 - 160 - 2 - 2  # checked when opened; kept back at the end
    notebook.check()


def test_a_bump_is_answered_though_one_side_is_at_its_end(
    fresh_schema: Schema, server: TicketServer, new_name: Callable[[], str]
) -> None:
    name = new_name()
    notebook = Notebook(name)
    with server:
        server.wait_health("pass")  # the ring is recorded: what is made now is not raised
        server.freeze()  # it makes by itself what it finds on one database alone
        make(fresh_schema, name, 10, 2_000_000_000)
        server.thaw()
        server.wait_health("warn")
        for _ in range(20):
            notebook.take(server)
        for restart in (False, True):
            if restart:
                server.restart()
                for database in fresh_schema.pair:
                    server.wait_database(database.name, "up")
            for above in (10, 3_000_000_000):
                reply = server.post(f"/sequence/{name}/bump", json={"above": above})
                assert reply.status == 200, f"{reply.text}\n{server.log_text()[-3000:]}"
            assert notebook.take(server)[0] > 3_000_000_000
        for above in (CEILING - 2, CEILING - 1):
            for _ in range(2):
                reply = server.post(f"/sequence/{name}/bump", json={"above": above, "force": True})
                assert reply.status == 200, reply.text
            for answer in (notebook.ask(server), notebook.ask(server)):
                assert answer.status == 410 or min(answer.ids) > above
    notebook.check()
