"""`ticketd doctor` on the embedded pair: what is wrong with its files, and that it changes none of them."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from tests.harness.doctor import doctor, notes, server_over, wrong


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of an embedded pair that has drawn a few tickets."""
    data = tmp_path / "data"
    with server_over(None, data) as server:
        server.wait_ready()
        for _ in range(4):
            server.ticket("photos")
        server.terminate()
    return data


def change(folder: Path, file: str, statement: str) -> None:
    """One statement on a file of the pair."""
    with contextlib.closing(sqlite3.connect(folder / file)) as connection:
        connection.execute(statement)
        connection.commit()


def test_the_embedded_pair(folder: Path) -> None:
    ran = doctor(None, data_dir=folder)
    assert wrong(ran) == []
    assert [line.split(":")[1].strip() for line in ran.lines[:-1]] == ["odd.sqlite3", "even.sqlite3"]
    (note,) = notes(ran)
    assert note.startswith(f"these are the two embedded ticket databases, in the folder {folder};")

    change(folder, "odd.sqlite3", "UPDATE _sequences SET last = 1 WHERE name = 'photos'")
    (line,) = wrong(doctor(None, data_dir=folder))
    assert line.startswith(
        "odd.sqlite3: photos: is below its high-water mark: the next id would be 2, but even.sqlite3"
    )

    change(folder, "odd.sqlite3", "UPDATE _sequences SET last = 4200000001 WHERE name IN ('photos', 'Tickets32')")
    change(folder, "even.sqlite3", "DELETE FROM _sequences WHERE name = 'accounts'")
    change(folder, "even.sqlite3", "UPDATE _sequences SET bits = 32 WHERE name = 'groups'")
    found = wrong(doctor(None, data_dir=folder))
    assert found[0].startswith("odd.sqlite3: Tickets32: 97 % of its ids are used up")
    assert found[1].startswith("even.sqlite3: accounts: has no table for it")
    assert found[2].startswith("even.sqlite3: groups: its id is 32 bits here and 64 bits on odd.sqlite3")
    assert len(found) == 3


def test_an_embedded_pair_that_is_not_there_yet_is_not_made(tmp_path: Path) -> None:
    ran = doctor(None, data_dir=tmp_path / "data")
    assert (ran.status, len(ran.lines)) == (0, 3), ran
    assert "is not there yet" in ran.lines[0]
    assert list(tmp_path.iterdir()) == []


def test_embedded_files_that_are_no_ticket_databases(folder: Path) -> None:
    change(folder, "odd.sqlite3", "PRAGMA user_version = 99")
    (folder / "even.sqlite3").write_bytes(b"not a database at all" * 100)
    for extra in folder.glob("even.sqlite3-*"):
        extra.unlink()
    odd, even = wrong(doctor(None, data_dir=folder))
    assert odd.startswith("odd.sqlite3: has own tables of version 99")
    assert even.startswith("even.sqlite3: is damaged, or not a ticket database")


def test_embedded_files_for_another_increment_and_one_file_twice(folder: Path) -> None:
    for line in wrong(doctor(None, data_dir=folder, increment=4)):
        assert "the recorded increment of the ring is 2, and TICKETS_INCREMENT is 4: unset it" in line
    (folder / "even.sqlite3").unlink()
    (folder / "even.sqlite3").hardlink_to(folder / "odd.sqlite3")
    found = wrong(doctor(None, data_dir=folder))
    assert found[0].startswith("even.sqlite3: is the same file as odd.sqlite3")
    assert found[1].startswith("even.sqlite3: was made for offset 1, expected 2, which odd.sqlite3 has too")
