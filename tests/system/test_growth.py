"""`ticketd grow`: a ring that changes while no ticket server runs, and everything that must stop it."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.commands import clean_environment, command_line
from tests.harness.engine import Engine
from tests.harness.load import Load, Want
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair
from tests.harness.processes import ChildProcess, wait_until
from tests.harness.rings import WATCHFUL, Issued, Rings, grow, last_error
from tests.harness.ticketd import REPOSITORY, TicketServer

PAUSE = 0.05
MIX = ("photos", Want("photos", "count", 5), Want("photos", "block", 100), "accounts")


def left_to_do(output: list[str]) -> list[str]:
    """What `grow` says stands in its way."""
    return [line.removeprefix("left to do: ") for line in output if line.startswith("left to do: ")]


def test_from_two_to_three_by_the_runbook_with_drift_of_millions(engine: Engine, issued: Issued) -> None:
    with ExitStack() as stack:
        pair = stack.enter_context(MySQLPair(engine))
        servers = [stack.enter_context(TicketServer(pair.urls, settings=WATCHFUL)) for _ in range(2)]
        for server in servers:
            server.wait_health("pass")
        with Load(
            [server.address for server in servers], clients=8, mix=MIX, pause=PAUSE, record=issued.record
        ) as load:
            load.run_for(1)
        pair.even.freeze()
        servers[0].wait_database(pair.even.name, "down")
        for _ in range(150):
            issued.take_block(servers[0])  # three million ids of the odd side
        pair.even.thaw()
        for server in servers:
            server.wait_health("pass")
            issued.take(server, 4)
        assert not issued.failed
        assert abs(pair.odd.largest_id("photos") - pair.even.largest_id("photos")) > 2_000_000
        for server in servers:
            server.terminate()

        third = stack.enter_context(TicketMySQL(engine, offset=3, increment=3))
        for database in pair:
            database.increment = 3
            database.restart()
        urls = f"{pair.urls} {third.url}"
        done = grow(urls, 3)
        assert (done.status, done.errors) == (0, ""), done
        before, issued.tickets = issued.tickets, 0
        issued.from_now_on()
        new = [stack.enter_context(TicketServer(urls, settings=WATCHFUL)) for _ in range(2)]
        for server in new:
            server.wait_health("pass")
        with Load([server.address for server in new], clients=8, mix=MIX, pause=PAUSE, record=issued.record) as load:
            wait_until(lambda: issued.tickets > 3_000, 30, "tickets of the new ring")
        assert not issued.failed
        assert issued.residues(3) == issued.residues(3, "accounts") == {0, 1, 2}
        assert before > 1_500_000


def test_with_room_to_grow_a_third_joins_under_running_servers(rings: Rings, issued: Issued) -> None:
    with TicketServer(rings.urls(1, 2), settings=WATCHFUL) as server:
        server.wait_health("pass")
        rings.drift(2, 5_000_000)
        issued.take(server, 10)
        server.terminate()
    rings.configure(4, 1, 2)
    assert grow(rings.urls(1, 2), 4).status == 0
    assert (rings.record(1) or ())[1:] == (4, "1,2", 1, "drawn")

    with ExitStack() as stack:
        servers = [stack.enter_context(TicketServer(rings.urls(1, 2), settings=WATCHFUL)) for _ in range(2)]
        for server in servers:
            server.wait_health("pass")
            issued.take(server, 10)
        assert issued.residues(4) >= {1, 2}
        for _ in range(20):
            issued.take_block(servers[0])
        highest = issued.highest()
        with Load(
            [server.address for server in servers], clients=4, mix=MIX, pause=PAUSE, record=issued.record
        ) as load:
            for server in servers:  # one by one, and for a while the lists differ
                load.run_for(0.3)
                server.terminate()
                server.environment["TICKETS_DATABASES"] = rings.urls(1, 2, 3)
                server.start()
                server.wait_ready()
                server.wait_database(rings.name(3), "up")
        unexpected = [each for each in issued.failed if each.status and "shutting down" not in each.error]
        assert not unexpected
        issued.from_now_on()
        for server in servers:
            server.wait_health("pass")
            issued.take(server, 9)
        assert issued.residues(4) == {1, 2, 3}
        assert all(each > highest for each in issued.ids() if each % 4 == 3)


def test_the_last_database_leaves_and_then_the_increment_shrinks(rings: Rings, issued: Issued) -> None:
    rings.configure(3, 1, 2, 3)
    with TicketServer(rings.urls(1, 2, 3), settings=WATCHFUL) as server:
        server.wait_health("pass")
        rings.drift(3, 2_000_000)  # the one that leaves is far ahead
        issued.take(server, 30)
    assert grow(rings.urls(1, 2), 3).status == 0
    with TicketServer(rings.urls(1, 2), settings=WATCHFUL) as server:
        server.wait_health("pass")
        issued.from_now_on()
        issued.take(server, 10)
        issued.take_block(server)
        assert issued.residues(3) == {1, 2}
    with TicketServer(rings.urls(1, 2, 3), settings=WATCHFUL) as server:  # it comes back: above what left it behind
        server.wait_health("pass")
        issued.take(server, 9)
    rings.configure(2, 1, 2)
    assert grow(rings.urls(1, 2), 2).status == 0
    with TicketServer(rings.urls(1, 2), settings=WATCHFUL) as server:
        server.wait_health("pass")
        issued.from_now_on()
        issued.take(server, 10)
        assert issued.residues(2) == {0, 1}
    assert (rings.record(1) or ())[1:] == (2, "1,2", 1, "drawn")


def test_another_in_the_middle_cannot_leave(rings: Rings, issued: Issued) -> None:
    rings.configure(3, 1, 2, 3)
    with TicketServer(rings.urls(1, 2, 3), settings=WATCHFUL) as server:
        server.wait_health("pass")
        issued.take(server, 9)
    refused = grow(rings.urls(1, 3), 3)
    assert refused.status == 1
    assert any(rings.name(3) in line and "auto_increment_offset=3" in line for line in left_to_do(refused.lines))
    rings.set_globals(3, 3, 2)
    refused = grow(rings.urls(1, 3), 3)
    assert refused.status == 1
    left = left_to_do(refused.lines)
    assert any("drawn at offset 3" in line and "only the last can be removed" in line for line in left)


def test_the_same_increment_again_is_harmless(rings: Rings, issued: Issued) -> None:
    with TicketServer(rings.urls(1, 2), settings=WATCHFUL) as server:
        server.wait_health("pass")
        issued.take(server, 10)
    for _ in range(2):
        assert grow(rings.urls(1, 2), 2).status == 0
    with TicketServer(rings.urls(1, 2), settings={**WATCHFUL, "TICKETS_INCREMENT": 2}) as server:
        server.wait_health("pass")
        issued.from_now_on()
        issued.take(server, 10)
        assert issued.residues(2) == {0, 1}
        assert min(issued.ids()) < 100_000  # not much is skipped


@pytest.mark.parametrize(
    "frozen", [pytest.param(False, id="running", marks=pytest.mark.long), pytest.param(True, id="frozen")]
)
def test_a_ticket_server_that_is_alive_stops_it(rings: Rings, issued: Issued, *, frozen: bool) -> None:
    settings = {**WATCHFUL, "TICKETS_PROBE_INTERVAL": 3600}
    with TicketServer(rings.urls(1, 2), settings=settings) as server:
        server.wait_health("pass")
        issued.take(server, 4)
        rings.configure(3, 1, 2, 3)
        before = [rings.record(offset) for offset in (1, 2)]
        if frozen:
            server.freeze()
        refused = grow(rings.urls(1, 2, 3), 3)
        assert (refused.status, refused.errors) == (1, "")
        assert {line.split(" ")[0] for line in left_to_do(refused.lines)} == {rings.name(1), rings.name(2)}
        assert all("is in use by a connection of ticketd" in line for line in left_to_do(refused.lines))
        assert [rings.record(offset) for offset in (1, 2)] == before
        assert rings.execute(3, "SHOW TABLES LIKE '\\_ring'") == [] or rings.record(3) is None
        server.thaw()
        issued.take(server, 4)


def test_what_stands_in_the_way_is_said_a_line_each(rings: Rings, issued: Issued) -> None:
    with TicketServer(rings.urls(1, 2), settings=WATCHFUL) as server:
        server.wait_health("pass")
        issued.take(server, 10)

    def refused(urls: str, increment: int = 3) -> list[str]:
        ran = grow(urls, increment)
        assert (ran.status, ran.errors) == (1, ""), ran
        assert "done" not in ran.output
        return left_to_do(ran.lines)

    for found, line in zip((2, 2, 4), refused(rings.urls(1, 2, 3)), strict=True):
        assert f"has auto_increment_increment={found}, expected 3: set it in its configuration" in line
    rings.configure(3, 1, 2)
    rings.set_globals(3, 3, 2)
    (wrong_offset,) = refused(rings.urls(1, 2, 3))
    assert wrong_offset.startswith(f"{rings.name(3)} has auto_increment_offset=2, expected 3")
    rings.configure(3, 3)
    assert len(refused(rings.urls(2, 1, 3))) == 4  # their offsets, and where they were drawn
    rings.set_globals(1, 3, 2)
    rings.set_globals(2, 3, 1)
    swapped = refused(rings.urls(2, 1, 3))
    assert [line.startswith((rings.name(2), rings.name(1))) for line in swapped] == [True, True]
    assert all("was drawn at offset" in line for line in swapped)
    rings.configure(3, 1, 2)
    assert any("two of the URLs lead to one server" in line for line in refused(rings.urls(1, 2, 2)))
    away = rings.urls(1, 2).rsplit(":", 1)[0] + ":1/" + rings.schema
    assert any("every database of the new ring has to be up" in line for line in refused(away))
    assert [(rings.record(offset) or ())[1:] for offset in (1, 2)] == [(2, "1,2", each, "drawn") for each in (1, 2)]

    rings.configure(2, 1, 2)
    with TicketServer(rings.urls(1, 2), settings=WATCHFUL) as server:  # nothing was changed
        server.wait_health("pass")
        issued.from_now_on()
        issued.take(server, 10)
        assert issued.residues(2) == {0, 1}


SEQUENCES = 60


@pytest.mark.parametrize(
    "said",
    [pytest.param(3, marks=pytest.mark.long), 4, pytest.param(6, marks=pytest.mark.long)],
    ids=lambda lines: f"after {lines} lines",
)
def test_killed_half_way_nobody_draws_until_it_has_been_run_again(
    rings: Rings, issued: Issued, tmp_path: Path, said: int
) -> None:
    for offset in (1, 2):
        for number in range(SEQUENCES):
            rings.execute(offset, f"CREATE TABLE s_{number} LIKE Tickets64")
    with TicketServer(rings.urls(1, 2), settings=WATCHFUL) as server:
        server.wait_health("pass")
        rings.drift(1, 1_000_001, "s_59")
        for sequence in ("photos", "s_0", "s_59"):
            issued.take(server, 6, sequence)
    rings.configure(3, 1, 2, 3)
    urls = rings.urls(1, 2, 3)
    output = tmp_path / "output"
    growing = ChildProcess(
        command_line("grow", "--increment", 3),
        stdout=output,
        stderr=output,
        cwd=REPOSITORY,
        env=clean_environment({"TICKETS_DATABASES": urls, "PYTHONUNBUFFERED": 1}),
    )
    wait_until(lambda: output.read_text(encoding="utf-8").count("\n") >= said, 60, f"{said} lines of grow")
    growing.kill()
    assert growing.returncode == -9, output.read_text(encoding="utf-8")

    for list_, settings in ((urls, {"TICKETS_INCREMENT": 3}), (rings.urls(1, 2), {})):
        with TicketServer(list_, settings={**WATCHFUL, **settings}) as server:
            server.wait_health("fail")
            assert server.get("/ticket/photos").status == 503
            assert "run `ticketd grow` again" in last_error(server, rings.name(1))
    assert grow(urls, 3).status == 0
    with TicketServer(urls, settings=WATCHFUL) as server:
        server.wait_health("pass")
        issued.from_now_on()
        for sequence in ("photos", "s_0", "s_59"):
            issued.take(server, 9, sequence)
            assert issued.residues(3, sequence) == {0, 1, 2}


@pytest.mark.parametrize(
    ("increment", "alone"),
    [
        pytest.param({}, False, id="with marks-unset"),
        pytest.param({"TICKETS_INCREMENT": 2}, True, id="unprotected-2"),
        pytest.param({"TICKETS_INCREMENT": 2}, False, id="with marks-2", marks=pytest.mark.long),
        pytest.param({}, True, id="unprotected-unset", marks=pytest.mark.long),
    ],
)
def test_one_that_was_frozen_all_the_while_hands_out_nothing_of_the_old_ring(
    rings: Rings, issued: Issued, increment: dict[str, object], *, alone: bool
) -> None:
    """`grow` would refuse while it sees it, so its connections are ended as a network does that forgets them.

    It draws in the new ring afterwards, though it may be set to the increment of before, which is a note.
    """
    with ExitStack() as stack:
        urls = rings.urls(1, 2)
        if alone:  # the other one is where nobody listens: no mark is kept, and each draw is checked by itself
            urls = f"{rings.urls(1)} {rings.urls(2).rsplit(':', 1)[0]}:1/{rings.schema}"
            stack.enter_context(TicketServer(rings.urls(1, 2), settings=WATCHFUL)).wait_health("pass")
            stack.pop_all().close()  # the ring of both is recorded
        late = stack.enter_context(TicketServer(urls, settings={**WATCHFUL, **increment}))
        late.wait_ready()
        if not alone:
            late.wait_health("pass")
        with Load([late.address], clients=8, mix=MIX, pause=PAUSE, record=issued.record) as load:
            load.run_for(1)
            late.freeze()
            for offset in (1, 2):
                rings.pair[offset - 1].end_connections()
            rings.configure(3, 1, 2, 3)
            done = grow(rings.urls(1, 2, 3), 3)
            assert done.status == 0, done
            new = stack.enter_context(TicketServer(rings.urls(1, 2, 3), settings=WATCHFUL))
            new.wait_health("pass")
            for _ in range(20):
                issued.take(new, 3)
                issued.take_block(new, 1000)
            late.thaw()
            load.run_for(1)
            issued.take(new, 30)
        late.wait_ready()
        assert issued.take_block(late, 100).step == 3
        assert len(late.get("/healthz").json()["notes"]) == len(increment)
        assert issued.residues(3) == {0, 1, 2}
