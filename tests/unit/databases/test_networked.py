"""How draws wait for the connection, and how a probe's connection is renewed, in a database reached over a network."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from app.common.errors import (
    RingChanged,
    SequenceMissing,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseUnavailable,
)
from app.common.sequences import Width
from app.databases.networked import MOST_AT_ONCE, NetworkedDatabase, Wanted
from app.databases.notebook import Book, Look, Write
from app.databases.protocol import ClockReading, Draw, Drawn, Position, Residue, ServerEntry, Table
from tests.unit.databases.test_line import FakeConnection

SECONDS = 2.0


def table_of(name: str) -> Table:
    return Table(name, Width.BIGINT, 2**63 - 1, "born")


class Counters(NetworkedDatabase[FakeConnection]):
    """Sequences in memory; no notes are kept. `batches`: what each statement drew for. `fails`: what the next one
    comes to. `held`: no statement ends before it is set."""

    system = "counters"

    def __init__(self, seconds: float = SECONDS) -> None:
        super().__init__("host:1", 1, 2, self._open, seconds)
        self.opened: list[FakeConnection] = []
        self.batches: list[list[str]] = []
        self.last: dict[str, int] = {}
        self.fails: TicketDatabaseError | None = None
        self.looks: list[FakeConnection] = []
        self.look_fails: list[TicketDatabaseError] = []
        self.prepared: list[FakeConnection] = []
        self.held = asyncio.Event()
        self.held.set()

    async def _open(self) -> FakeConnection:
        self.opened.append(FakeConnection())
        return self.opened[-1]

    async def prepare(self, connection: FakeConnection) -> None:
        self.prepared.append(connection)

    async def look_on(self, connection: FakeConnection, entry: ServerEntry | None) -> Look:
        self.looks.append(connection)
        if self.look_fails:
            raise self.look_fails.pop(0)
        return Look(f"{connection.life}-1", "server", 0.0, ClockReading(0, 0, 0), None, [])

    async def draw_all(self, wanted: Mapping[str, Wanted], incarnation: str) -> Mapping[str, Drawn]:
        async def work(_: FakeConnection) -> Mapping[str, Drawn]:
            self.batches.append(list(wanted))
            await self.held.wait()
            if self.fails is not None:
                raise self.fails
            for name, each in wanted.items():
                self.last[name] = self.last.get(name, -1) + 2 * each.count
            return {name: each.ending_at(self.last[name]) for name, each in wanted.items() if name != "missing"}

        return await self.on_drawing(work)

    async def forget_server(self, connection: FakeConnection) -> None:
        connection.ended += "forgot "

    async def sequences(self, names: Iterable[str] | None) -> Sequence[tuple[Table, Position]]:
        return []

    async def clock(self) -> float:
        return 0.0

    async def read(self, book: Book, since: int | None = None, *, anybody: bool = False) -> tuple[list[Any], int]:
        return [], 0

    async def write(self, book: Book, writes: Sequence[Write[Any]], ring: int | None, **_: Any) -> list[Any]:
        return []

    async def make(self, sequence: str, width: Width, start: int) -> None:
        return

    async def advance(self, floors: Mapping[str, int]) -> None:
        return


@pytest.fixture
async def database() -> Counters:
    made = Counters()
    await made.probe()
    return made


async def drawn(database: Counters, *names: str, increment: int = 2) -> list[Draw | BaseException]:
    residue = Residue(1, increment)
    return await asyncio.gather(
        *(database.draw(residue, table_of(name), 1, 0) for name in names), return_exceptions=True
    )


# --- draws -----------------------------------------------------------------------------------------------------------


async def test_a_statement_draws_for_all_that_wait_and_names_each_sequence_once(database: Counters) -> None:
    came = await drawn(database, "a", "b", "a", "c", "a")
    assert database.batches == [["a", "b", "c"], ["a"], ["a"]]
    assert [each.first for each in came if isinstance(each, Draw)] == [1, 1, 3, 1, 5]


async def test_a_statement_names_no_more_sequences_than_it_may(database: Counters) -> None:
    await drawn(database, *(f"s{number}" for number in range(MOST_AT_ONCE + 1)))
    assert [len(batch) for batch in database.batches] == [MOST_AT_ONCE, 1]


async def test_draws_have_a_connection_of_their_own(database: Counters) -> None:
    await drawn(database, "a")
    await database.ask(_nothing)
    assert database.connections == len(database.opened) == 3


async def test_what_was_refused_does_not_keep_the_others_from_being_drawn(database: Counters) -> None:
    outdated = asyncio.ensure_future(drawn(database, "b", increment=3))
    (came,) = await drawn(database, "a")
    (refused,) = await outdated
    assert isinstance(came, Draw)
    assert isinstance(refused, RingChanged)
    assert database.batches == [["a"]]


async def test_nothing_is_drawn_of_another_incarnation_than_the_last_looks(database: Counters) -> None:
    database.held.clear()
    first = asyncio.ensure_future(drawn(database, "a"))
    second = asyncio.ensure_future(drawn(database, "a"))
    await asyncio.sleep(0)
    database.opened[0].life = "two"
    await database.probe()
    database.held.set()
    assert isinstance((await first)[0], Draw)
    assert isinstance((await second)[0], TicketDatabaseUnavailable)
    assert database.batches == [["a"]]


async def test_one_without_an_answer_is_told_so(database: Counters) -> None:
    came = await drawn(database, "missing", "a")
    assert isinstance(came[0], TicketDatabaseUnavailable)
    assert isinstance(came[1], Draw)


async def test_an_error_is_everybodys_in_the_statement_and_nobodys_behind_it(database: Counters) -> None:
    database.held.clear()
    asked = asyncio.ensure_future(drawn(database, "a", "b", "a"))
    await asyncio.sleep(0.01)
    database.fails = SequenceMissing()
    database.held.set()
    came = await asked
    assert all(isinstance(each, SequenceMissing) for each in came)
    assert database.batches == [["a", "b"], ["a"]]


async def test_what_waits_behind_a_statement_that_hangs_fails_with_it() -> None:
    database = Counters(0.3)
    await database.probe()
    database.held.clear()
    began = asyncio.get_running_loop().time()
    came = await drawn(database, "a", "a", "a")
    assert all(isinstance(each, TicketDatabaseHung) for each in came)
    assert asyncio.get_running_loop().time() - began < 0.9
    assert database.batches == [["a"]]


# --- probes ----------------------------------------------------------------------------------------------------------


async def test_a_probes_connection_is_prepared_once(database: Counters) -> None:
    await database.probe()
    assert database.prepared == [database.opened[0]]
    assert database.looks == [database.opened[0]] * 2


async def test_a_connection_that_was_cut_is_replaced_within_the_probe(database: Counters) -> None:
    database.look_fails = [TicketDatabaseUnavailable("broke the connection off")]
    await database.probe()
    assert database.looks == [database.opened[0], database.opened[0], database.opened[1]]
    assert database.opened[0].ended == "dropped"


async def test_a_new_connection_that_fails_is_not_tried_again() -> None:
    database = Counters()
    database.look_fails = [TicketDatabaseUnavailable("is read-only")] * 2
    with pytest.raises(TicketDatabaseUnavailable):
        await database.probe()
    assert len(database.looks) == 1


async def test_it_is_renewed_so_that_another_server_at_the_address_is_found(
    database: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.databases.networked.RENEW_SECONDS", 0.0)
    await database.probe()
    assert database.looks == database.opened[:2]
    assert database.opened[0].ended == "dropped"


async def test_forgotten_connections_end_when_the_next_probe_has_a_new_one(database: Counters) -> None:
    await drawn(database, "a")
    await database.ask(_nothing)
    before = list(database.opened)
    database.forget_connections()
    assert all(not each.ended for each in before)
    await database.probe()
    assert [each.ended for each in before] == ["dropped", "left", "left"]
    assert database.connections == 1


async def test_it_takes_away_what_it_announced_and_leaves() -> None:
    database = Counters()
    database.announce(lambda: ServerEntry("ab", "1.0", (), 1.0))
    await database.probe()
    await drawn(database, "a")
    await database.close()
    assert [each.ended for each in database.opened] == ["forgot left", "left"]
    assert database.connections == 0
    (late,) = await drawn(database, "a")
    assert isinstance(late, TicketDatabaseUnavailable)


async def _nothing(_: FakeConnection) -> None:
    return
