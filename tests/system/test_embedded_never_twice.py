"""The embedded pair after SIGKILL: one of its two databases comes back older than it was, and no ticket comes twice."""

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.load import Load
from tests.harness.notebook import Notebook
from tests.harness.ticketd import PATIENT, TicketServer

SETTINGS = PATIENT | {"TICKETS_PROBE_INTERVAL": 30}
"""The last probe is long ago: what was issued since then is known to nobody but the file."""
ODD = "odd.sqlite3"


def save(folder: Path) -> Path:
    """A copy of every file of the odd database."""
    saved = folder / "saved"
    saved.mkdir()
    for path in folder.glob(f"{ODD}*"):
        shutil.copy2(path, saved)
    return saved


def remove(folder: Path, *endings: str) -> None:
    for ending in endings:
        (folder / f"{ODD}{ending}").unlink(missing_ok=True)


def put_back(folder: Path, saved: Path) -> None:
    remove(folder, "", "-wal", "-shm")
    for ending in ("", "-wal"):
        shutil.copy2(saved / f"{ODD}{ending}", folder)


def put_back_over_it(folder: Path, saved: Path) -> None:
    """The same inode."""
    remove(folder, "-shm")
    for ending in ("", "-wal"):
        shutil.copyfile(saved / f"{ODD}{ending}", folder / f"{ODD}{ending}")


def put_every_file_back(folder: Path, saved: Path) -> None:
    remove(folder, "", "-wal", "-shm", "-life")
    for path in saved.iterdir():
        shutil.copy2(path, folder)


def put_back_without_its_life(folder: Path, saved: Path) -> None:
    put_back(folder, saved)
    remove(folder, "-life")


def put_back_with_an_empty_life(folder: Path, saved: Path) -> None:
    put_back(folder, saved)
    (folder / f"{ODD}-life").write_bytes(b"")


def play_the_log_into_the_file(folder: Path) -> None:
    """As SQLite does every thousand pages: the file is then younger than the marks about it that were written last."""
    with contextlib.closing(sqlite3.connect(folder / ODD)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def lose_the_log(folder: Path, _: Path) -> None:
    remove(folder, "-wal", "-shm")


@pytest.mark.parametrize(
    "harm",
    [
        put_back,
        put_back_over_it,
        put_every_file_back,
        put_back_without_its_life,
        put_back_with_an_empty_life,
        lose_the_log,
    ],
)
def test_a_file_that_went_back_after_the_server_was_killed(harm: Callable[[Path, Path], None], tmp_path: Path) -> None:
    with TicketServer(data_dir=tmp_path, settings=SETTINGS) as server:
        server.wait_ready()
        with Load([server.address], clients=4, mix=["photos", "accounts"], pause=0.005) as load:
            load.run_until_tickets(100)
            server.freeze()
            play_the_log_into_the_file(tmp_path)
            saved = save(tmp_path)
            server.thaw()
            load.run_until_tickets(200)
            server.kill()
            harm(tmp_path, saved)
            server.start()
            server.wait_ready()
            load.run_until_tickets(400)
    load.result.check()


def test_every_file_as_the_last_clean_stop_left_it(tmp_path: Path) -> None:
    """What the files say of themselves holds, and is old: that they were put back has to be enough."""
    notebook = Notebook()
    with TicketServer(data_dir=tmp_path, settings=SETTINGS) as server:
        server.wait_ready()
        notebook.take_all_kinds(server)
        server.terminate()
        saved = save(tmp_path)
        server.start()
        server.wait_ready()
        notebook.take_all_kinds(server)
        server.kill()
        for path in saved.iterdir():
            shutil.copyfile(path, tmp_path / path.name)
        remove(tmp_path, "-wal", "-shm")
        server.start()
        server.wait_ready()
        notebook.take_all_kinds(server)
    notebook.check()


def test_a_clean_stop_skips_nothing_and_the_check_up_between_changes_nothing(tmp_path: Path) -> None:
    """Neither its way of reading the files, nor the second server, which goes while the first one stays."""
    taken: list[int] = []
    with (
        TicketServer(data_dir=tmp_path, settings=PATIENT) as server,
        TicketServer(data_dir=tmp_path, settings=PATIENT) as other,
    ):
        for each in (server, other):
            each.wait_ready()
            taken += [each.ticket("photos") for _ in range(10)]
        other.terminate()
        taken += [server.ticket("photos") for _ in range(10)]
        for _ in range(2):
            server.restart()
            server.wait_ready()
            taken += [server.ticket("photos") for _ in range(10)]
    assert sorted(taken) == sorted({*taken})
    assert max(taken) <= 60, "ids were skipped"


def test_servers_that_are_stopped_at_once_leave_a_file_that_goes_on(tmp_path: Path) -> None:
    servers = [TicketServer(data_dir=tmp_path, settings=PATIENT) for _ in range(3)]
    taken: list[int] = []
    try:
        for _ in range(3):
            for server in servers:
                server.start()
            for server in servers:
                server.wait_ready()
                taken += [server.ticket("photos") for _ in range(4)]
            for server in servers:
                server.signal_terminate()
            for server in servers:
                assert server.wait() == 0
    finally:
        for server in servers:
            server.close()
    assert len({*taken}) == 36
    assert max(taken) <= 80, "ids were skipped"
