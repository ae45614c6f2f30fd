"""Ticket servers as processes that are killed and stand still, forget, lose a link or all databases, and bump."""

import subprocess
import sys
from typing import Any

import pytest

from tests.load import Load
from tests.servers import Engine
from tests.servers_processes import DEADLINE, wait_until
from tests.ticketd import QUICK, TicketServer
from tests.torture.faults import Faults
from tests.torture.stage import Stage

FAULTS = [("restore_unseen", 1), ("restore_forgotten", 0), ("break_link", 0), ("end_server", 0), ("stop_server", 1)]
"""What happens, and to which database or server."""


@pytest.fixture(scope="module")
def databases() -> tuple[Engine, Engine]:
    return "mariadb", "postgresql"


@pytest.mark.parametrize(("name", "number"), FAULTS)
def test_a_fault_breaks_no_promise(stage: Stage, faults: Faults, name: str, number: int) -> None:
    with Load(*stage.servers, mixed=True) as load:
        load.wait(100)
        getattr(faults, name)(number)
        stage.recover(load)
    load.check(errors=name != "break_link")


def test_a_killed_server_repeats_nothing_and_skips_nothing(stage: Stage) -> None:
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
        load.wait(100)
        bump = "POST", "/sequence/photos/bump"
        server = stage.servers[0]
        wait_until(lambda: server.request(*bump, json={"above": above}).is_success, DEADLINE, "the bump")
        load.floors["photos"] = above
        load.wait(100)
    load.check(errors=True)


@pytest.mark.timeout(400)
def test_a_short_torture_finds_no_violation() -> None:
    """So the program itself keeps working. `python -m tests.torture` is the long one."""
    command = [sys.executable, "-m", "tests.torture", "--engine", "sqlite", "--seconds", "1", "--callers", "6"]
    done = subprocess.run([*command, "--seed", "8"], capture_output=True, text=True, check=False, timeout=390)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "violations 0" in done.stdout
