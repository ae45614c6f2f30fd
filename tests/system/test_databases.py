"""Ticket servers as processes on real databases that are killed, frozen, emptied, and put back as they were."""

import pytest

from tests.load import Load
from tests.servers import Engine, engines
from tests.torture.faults import Faults
from tests.torture.stage import Stage

PAIRS: list[tuple[Engine, Engine]] = [("mariadb", "postgresql"), *(("redis", engine) for engine in engines("mysql"))]
FAULTS = [
    *((name, number) for name in ("freeze_database", "restore", "remove_counter") for number in (0, 1)),
    ("empty", 1),
]
"""What happens, and to which database."""


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def databases(request: pytest.FixtureRequest) -> tuple[Engine, Engine]:
    pair: tuple[Engine, Engine] = request.param
    return pair


@pytest.mark.parametrize(("name", "number"), FAULTS)
def test_a_fault_breaks_no_promise(stage: Stage, faults: Faults, name: str, number: int) -> None:
    with Load(*stage.servers, mixed=True) as load:
        if name == "restore":
            faults.kill_database(number)  # its data are copied: what is drawn from here on will be missing
            stage.recover(load)
        load.wait(100)
        getattr(faults, name)(number)
        stage.recover(load)
        load.wait_for_each()
    load.check(errors=name != "freeze_database")


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
