"""Ticket servers as processes on real databases that are killed, frozen, emptied, and put back as they were."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.load import Load
from tests.servers import Engine, engines
from tests.servers_processes import DEADLINE, wait_until
from tests.ticketd import QUICK, TicketServer
from tests.torture.faults import Faults
from tests.torture.stage import Stage

PAIRS: list[tuple[Engine, Engine]] = [("mariadb", "postgresql"), *(("redis", engine) for engine in engines("mysql"))]
FAULTS = [
    *((name, number) for name in ("freeze_database", "restore", "remove_counter") for number in (0, 1)),
    *(("restore_forgotten", 0), ("restore_unseen", 1), ("break_link", 0), ("end_server", 0), ("stop_server", 1)),
]
"""What happens, and to which database or server."""
COSTS_NO_REQUEST = "freeze_database", "break_link"


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def started(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(stack, request.param, 2)


@pytest.fixture
def stage(started: Stage) -> Stage:
    """Two ticket servers on databases of two engines. All is well, whatever a test before has left."""
    for process in (*started.databases, *started.servers):
        if not process.running:
            process.start()
    started.settle()
    return started


@pytest.fixture(scope="module")
def faults(started: Stage, tmp_path_factory: pytest.TempPathFactory) -> Faults:
    return Faults(started, random.Random(5), tmp_path_factory.mktemp("copies"), pace=0.3)


@pytest.mark.parametrize(("name", "number"), FAULTS)
def test_a_fault_breaks_no_promise(stage: Stage, faults: Faults, name: str, number: int) -> None:
    with Load(*stage.servers, mixed=True) as load:
        load.wait(100)
        getattr(faults, name)(number)
        stage.recover(load)
    load.check(errors=name not in COSTS_NO_REQUEST)


def test_a_killed_database_costs_no_request_and_is_told(stage: Stage) -> None:
    with Load(*stage.servers) as load:
        for database, order in zip(stage.databases, (("down", "up"), ("up", "down")), strict=True):
            database.kill()
            stage.sees(*order)
            for server in stage.servers:
                assert any("unprotected" in each["reason"] for each in server.health()["warnings"])
            database.start()
            stage.recover(load)
    load.check()


def test_an_empty_database_is_taken_in_and_repeats_nothing(stage: Stage, faults: Faults) -> None:
    with Load(*stage.servers) as load:
        load.wait(500)
        faults.empty(1)
        stage.settle()
        load.wait(500)
        load.wait_for_each()
    load.check(errors=True)


def test_a_killed_ticket_server_repeats_nothing_and_skips_nothing(stage: Stage) -> None:
    server = stage.servers[0]
    before = server.take("photos", 100) + server.take("photos", 100)
    server.kill()
    server.start()
    after = server.take("photos", 100) + server.take("photos", 100)
    assert not set(before) & set(after)
    for side in (0, 1):
        first, last = ([each for each in ids if each % 2 == side] for ids in (before, after))
        assert max(last) < max(first) + 1000


def test_without_any_database_requests_get_503_until_one_is_back(stage: Stage) -> None:
    server = stage.servers[0]
    for database in stage.databases:
        database.kill()
    server.wait_for("/readyz", 503)
    refused = server.get("/ticket/photos")
    assert (refused.status_code, refused.json()["code"]) == (503, "no-database")
    assert int(refused.headers["Retry-After"]) > 0
    assert server.get("/livez").status_code == 200
    stage.databases[1].start()
    server.wait_for("/readyz")
    server.wait_for("/ticket/photos")
    stage.sees("down", "up")


def test_a_bump_holds_on_every_server_once_it_is_answered(stage: Stage) -> None:
    above = max(stage.servers[0].take("photos", 100)) + 1_000_000
    settings: dict[str, Any] = QUICK | {"reserve_seconds": 5}
    with TicketServer(stage.urls(*stage.links[0]), **settings) as stocked, Load(stocked, *stage.servers) as load:
        load.wait(300)
        bump = "POST", "/sequence/photos/bump"
        server = stage.servers[0]
        wait_until(lambda: server.request(*bump, json={"above": above}).is_success, DEADLINE, "the bump")
        load.floors["photos"] = above
        load.wait(300)
    load.check(errors=True)


@pytest.mark.timeout(400)
def test_a_short_torture_finds_no_violation() -> None:
    """So the program itself keeps working. `python -m tests.torture` is the long one."""
    command = [sys.executable, "-m", "tests.torture", "--engine", "sqlite", "--seconds", "1", "--callers", "6"]
    done = subprocess.run([*command, "--seed", "8"], capture_output=True, text=True, check=False, timeout=390)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "violations 0" in done.stdout
