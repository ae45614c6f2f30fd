"""The ring record of the embedded pair: growth, contradictions, and the files that release 0.1.0 left."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.harness.commands import forked_ticketd
from tests.harness.rings import WATCHFUL, Issued, refused
from tests.harness.ticketd import TicketServer


def embedded_record(data: Path, name: str) -> tuple[object, ...]:
    with closing(sqlite3.connect(data / name)) as file:
        (row,) = file.execute("SELECT increment_of, offsets, own_offset, state FROM _ring").fetchall()
        return tuple(row)


def test_the_embedded_pair_grows_and_holds_its_contradictions(tmp_path: Path, issued: Issued) -> None:
    data = tmp_path / "ticket-data"
    with TicketServer(settings=WATCHFUL, data_dir=data) as server:
        server.wait_health("pass")
        issued.take(server, 20)
        issued.take_block(server)
        refused_ = forked_ticketd("grow", "--increment", 4, settings={"TICKETS_DATA_DIR": data})
        assert (refused_.status, refused_.errors) == (1, "")
        assert "left to do: odd.sqlite3 is in use" in refused_.output
        server.terminate()
        server.environment["TICKETS_INCREMENT"] = "4"
        server.start()
        server.wait_alive()
        server.wait_looked()
        refused(server, "the recorded increment of the ring is 2, and TICKETS_INCREMENT is 4")
    done = forked_ticketd("grow", "--increment", 4, settings={"TICKETS_DATA_DIR": data})
    assert (done.status, done.errors) == (0, ""), done
    assert embedded_record(data, "odd.sqlite3") == (4, "1,2", 1, "drawn")
    for increment in ({}, {"TICKETS_INCREMENT": 4}):
        with TicketServer(settings={**WATCHFUL, **increment}, data_dir=data) as server:
            server.wait_health("pass")
            issued.from_now_on()
            issued.take(server, 20)
            issued.take_block(server)
            assert issued.residues(4) == {1, 2}
    with TicketServer(settings={**WATCHFUL, "TICKETS_INCREMENT": 2}, data_dir=data) as server:
        (note,) = server.wait_health("pass")["notes"]
        assert "TICKETS_INCREMENT is 2, which the ring had before" in note["reason"]
        issued.from_now_on()
        issued.take(server, 20)
        assert issued.residues(4) == {1, 2}
    with TicketServer(settings={**WATCHFUL, "TICKETS_INCREMENT": 3}, data_dir=data) as server:
        refused(server, "the recorded increment of the ring is 4, and TICKETS_INCREMENT is 3")
    assert forked_ticketd("grow", "--increment", 2, settings={"TICKETS_DATA_DIR": data}).status == 0
    with TicketServer(settings=WATCHFUL, data_dir=data) as server:
        server.wait_health("pass")
        issued.from_now_on()
        issued.take(server, 20)
        assert issued.residues(2) == {0, 1}


def test_a_frozen_server_on_the_embedded_pair_stops_growth(tmp_path: Path, issued: Issued) -> None:
    data = tmp_path / "ticket-data"
    with TicketServer(settings=WATCHFUL, data_dir=data) as server:
        server.wait_health("pass")
        issued.take(server, 20)
        server.freeze()
        stopped = forked_ticketd("grow", "--increment", 4, settings={"TICKETS_DATA_DIR": data})
        assert (stopped.status, stopped.errors) == (1, "")
        # where it stood still in the middle of writing, the lock that it holds is what is said
        found = r"left to do: (odd.sqlite3 is in use|(odd|even).sqlite3 is locked by another process)"
        assert re.search(found, stopped.output), stopped.output
        server.thaw()
        issued.take(server, 20)


def test_the_embedded_pair_of_0_1_0_serves_at_once(tmp_path: Path, issued: Issued) -> None:
    data = tmp_path / "ticket-data"
    data.mkdir()
    for (offset, name), last in zip(((1, "odd.sqlite3"), (2, "even.sqlite3")), (4001, 4100), strict=True):
        other = 3 - offset
        with closing(sqlite3.connect(data / name)) as file:
            file.executescript(
                "PRAGMA journal_mode = WAL;"
                "CREATE TABLE _database (id INTEGER PRIMARY KEY CHECK (id = 1), life TEXT NOT NULL, "
                "offset INTEGER NOT NULL, increment INTEGER NOT NULL, probed REAL NOT NULL);"
                "CREATE TABLE _sequences (name TEXT NOT NULL PRIMARY KEY, bits INTEGER NOT NULL, "
                "last INTEGER NOT NULL, created TEXT NOT NULL);"
                "CREATE TABLE _high_water (sequence TEXT NOT NULL, offset_of INTEGER NOT NULL, "
                "increment_of INTEGER NOT NULL, mark INTEGER NOT NULL, issued INTEGER NOT NULL, token TEXT NOT NULL, "
                "PRIMARY KEY (sequence, offset_of, increment_of));"
                f"INSERT INTO _database VALUES (1, '0123456789abcdef0123456789abcdef', {offset}, 2, 0);"
                f"INSERT INTO _sequences VALUES ('photos', 64, {last}, '0123456789ab');"
                f"INSERT INTO _high_water VALUES ('photos', {other}, 2, 6000, 4100, '0123456789abcdef-1.0123:89ab');"
                "PRAGMA user_version = 1;"
            )
    with TicketServer(settings=WATCHFUL, data_dir=data) as server:
        server.wait_health("pass")
        tickets = issued.take(server, 10)
        assert issued.residues(2) == {0, 1}
        assert 6000 < min(tickets) <= max(tickets) < 6100
    assert embedded_record(data, "even.sqlite3") == (2, "1,2", 2, "drawn")
