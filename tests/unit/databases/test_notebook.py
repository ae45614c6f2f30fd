"""What every engine of rows goes by: what a write does to a note that is kept already, and a probe at one moment."""

import asyncio
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from app.databases.notebook import NotebookDatabase, Write, after
from app.databases.protocol import Mark, RingRecord, ServerEntry, Use
from app.databases.sqlite.connection import FileConnection
from app.databases.sqlite.database import SQLiteDatabase
from app.kinds.definition import Definition
from tests.fakes.ticket_database import FakeServer
from tests.fakes.ticket_database.rows import RowTicketDatabase
from tests.fakes.virtual_time import VirtualLoop, virtual_time

T = TypeVar("T")

MARK = Mark("photos", 1, 2, mark=100, issued=50, token="life:1")
RING = RingRecord(3, 2, 1, (1, 2), own=1)
CLAIM = Definition("photos", "ticket", {"bits": 64}, decided=False, by="a1")


def test_a_mark_that_nothing_is_kept_of_is_kept() -> None:
    assert after(None, Write(MARK)) == MARK
    assert after(None, Write(MARK, MARK)) is None, "the row that it was to replace is gone"


@pytest.mark.parametrize(("mark", "issued", "then"), [(200, 10, (200, 50)), (10, 200, (100, 200)), (10, 10, (100, 50))])
def test_under_its_own_token_a_mark_only_rises(mark: int, issued: int, then: tuple[int, int]) -> None:
    kept = after(MARK, Write(replace(MARK, mark=mark, issued=issued)))
    assert kept == replace(MARK, mark=then[0], issued=then[1])


def test_under_another_token_a_mark_changes_nothing() -> None:
    assert after(MARK, Write(replace(MARK, mark=900, issued=900, token="life:2"))) == MARK


@pytest.mark.parametrize(
    ("kept", "replaces"),
    [
        (MARK, True),
        (replace(MARK, mark=99), True),
        (replace(MARK, issued=70), True),
        (replace(MARK, mark=101), False),  # a server has kept a higher one meanwhile
        (replace(MARK, token="life:3"), False),
    ],
)
def test_a_token_is_superseded_unless_the_row_has_changed(kept: Mark, replaces: bool) -> None:
    new = replace(MARK, mark=80, issued=60, token="life:2")
    expected = replace(new, issued=max(60, kept.issued)) if replaces else kept
    assert after(kept, Write(new, MARK)) == expected


def test_the_ring_record_replaces_what_it_was_made_from_and_nothing_else() -> None:
    new = replace(RING, number=4)
    assert after(None, Write(new)) == new
    assert after(RING, Write(new, RING)) == new
    assert after(RING, Write(new)) == RING
    assert after(replace(RING, body="ab"), Write(new, RING)) == replace(RING, body="ab")
    assert after(None, Write(new, RING)) is None


def test_a_definition_that_is_decided_stays() -> None:
    decided = replace(CLAIM, decided=True)
    assert after(None, Write(CLAIM)) == CLAIM
    assert after(CLAIM, Write(decided, CLAIM)) == decided
    assert after(CLAIM, Write(replace(decided, by="b2"), replace(CLAIM, by="b2"))) == CLAIM
    assert after(decided, Write(CLAIM, decided)) == decided
    assert after(decided, Write(None, CLAIM)) == decided
    assert after(CLAIM, Write(None, CLAIM)) is None


def test_an_engine_of_rows_writes_ten_methods() -> None:
    """And its name for traces, how many connections it has, and where it is."""
    written = NotebookDatabase.__abstractmethods__ | {"start_draw", "make", "advance", "forget_connections", "close"}
    assert len(written) == 10


@virtual_time
async def test_a_probe_in_which_the_server_stands_still_shows_what_others_announce() -> None:
    """If the announcements were read at another moment than the clock, none of them would stand after an hour."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    clock, server = loop.clock, FakeServer(1, 2, ("photos",), loop.clock, is_rows=True)
    use = Use(1, "ab12", "other:3306", "host1:8000")
    standstills = iter([0.0, *[3600.0] * 9])

    def stands_still_before_every_statement_but_the_first() -> tuple[float, float]:
        clock.now += next(standstills)
        server.probes(ServerEntry("0b", "0.3.0", ("ticket",), 1.0, uses=(use,)), clock.now)
        return 0.0, 0.0

    database = RowTicketDatabase(server, latency=stands_still_before_every_statement_but_the_first)
    assert (await database.probe()).uses == (use,)


async def test_a_probe_of_a_file_is_one_transaction(tmp_path: Path) -> None:
    class Counted(FileConnection):
        transactions = 0

        async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
            self.transactions += 1
            return await super().run(work)

    file = Counted(tmp_path / "odd.sqlite3", 1, 2, timeout=5.0)
    database = SQLiteDatabase(tmp_path / "odd.sqlite3", 1, 2, 5.0, file)
    await database.probe()
    assert file.transactions == 1
    await database.close()
