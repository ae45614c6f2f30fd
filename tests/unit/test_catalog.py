"""The catalog: how sequences are found, made and kept on all databases; which definition stands."""

import asyncio

import pytest

from app.databases.session import Book, Note
from app.errors import (
    DatabaseFailed,
    NoTicketDatabase,
    SequenceConflict,
    SequenceMissing,
    SequenceUnusable,
    UnknownSequence,
)
from app.kinds.table import KINDS
from app.tickets.catalog import Entry
from app.tickets.definitions import Definition, Seen, seen_of
from tests.fakes.server import FakeServer
from tests.unit.lane_bench import NOW, Bench, make_bench


@pytest.fixture
async def bench() -> Bench:
    """A server and two databases, which have no sequence yet."""
    return await make_bench(last=None)


def define(server: FakeServer, name: str, kind: str) -> None:
    """Write a row of DEFINITIONS, as another server has."""
    parameters = KINDS[kind].complete({}, NOW) if kind in KINDS else {}
    server.data.notes[Book.DEFINITIONS][name.lower()] = Definition(kind, parameters, name, "other").note()


def rows(bench: Bench, key: str) -> list[Note | None]:
    """The row of DEFINITIONS on each database."""
    return [server.data.notes[Book.DEFINITIONS].get(key) for server in bench.servers]


async def test_a_server_that_has_just_started_waits_for_its_first_look() -> None:
    bench = await make_bench(last=None, seen=False)
    bench.sight.is_settling = True
    bench.servers[0].add("photos")
    finding = asyncio.create_task(bench.catalog.find("photos"))
    await asyncio.sleep(0)
    await bench.see()
    assert (await finding).name == "photos"


async def test_the_counter_of_another_kind_is_never_taken_for_plain_tickets() -> None:
    bench = await make_bench(1, last=None)

    def make_meanwhile(_client: str, call: str) -> bool:
        if call in ("sequences", "read") and "likes" not in bench.servers[0].data.counters:
            define(bench.servers[0], "likes", "instagram")
            bench.servers[0].add("likes")
        return False

    with pytest.raises(UnknownSequence):
        await bench.catalog.find("opens_the_connections")
    bench.servers[0].loses = make_meanwhile
    with pytest.raises(UnknownSequence):
        await bench.catalog.find("likes")
    assert (await bench.catalog.find("likes")).definition.kind == "instagram"


async def test_the_definition_at_the_lowest_offset_stands_and_the_other_database_is_not_drawn_from(
    bench: Bench,
) -> None:
    bench.lose(bench.members[0])
    define(bench.servers[1], "likes", "ticket")
    bench.servers[1].add("likes")
    before = await bench.catalog.find("likes")
    assert before.definition.kind == "ticket"
    define(bench.servers[0], "likes", "instagram")
    bench.servers[0].add("likes")
    await bench.see()
    replaced: list[Entry] = []
    bench.catalog.replaced = replaced.append
    with pytest.raises(SequenceMissing):
        await bench.catalog.counter(before, bench.members[0])
    assert replaced == [before]
    after = await bench.catalog.find("likes")
    assert after.definition.kind == "instagram"
    with pytest.raises(SequenceUnusable, match="of a lower offset"):
        await bench.catalog.counter(after, bench.members[1])
    assert (await bench.catalog.counter(after, bench.members[0])).name == "likes"
    assert [each[:2] for each in bench.listing.warnings] == [("likes", bench.members[1].name)]


async def test_a_table_of_plain_tickets_is_no_counter_of_another_kind(bench: Bench) -> None:
    define(bench.servers[0], "likes", "instagram")
    bench.servers[0].add("likes")
    bench.servers[1].add("likes")
    entry = await bench.catalog.find("likes")
    with pytest.raises(SequenceUnusable):
        await bench.catalog.counter(entry, bench.members[1])
    assert rows(bench, "likes")[1] is None


async def test_a_damaged_or_unknown_definition_stops_the_sequence(bench: Bench) -> None:
    bench.servers[0].data.notes[Book.DEFINITIONS]["photos"] = Note(text="{}")
    bench.servers[1].add("photos")
    define(bench.servers[0], "likes", "later_kind")
    for name, reason in (("photos", "damaged"), ("likes", "this release cannot serve")):
        with pytest.raises(NoTicketDatabase, match=reason):
            await bench.catalog.find(name)
    assert {sequence for sequence, _, _ in bench.listing.warnings} == {"photos", "likes"}


async def test_a_database_whose_table_cannot_be_used_is_left_out_and_warned_of(bench: Bench) -> None:
    for server in bench.servers:
        server.add("photos")
    bench.servers[0].data.counters["photos"].broken = "its column is signed"
    bench.servers[1].add("photos", 32)
    entry = await bench.catalog.find("photos")
    assert entry.bits == 32
    assert bench.listing.warnings == [("photos", bench.members[0].name, "its column is signed")]
    with pytest.raises(SequenceUnusable):
        await bench.catalog.counter(entry, bench.members[0])


def test_a_row_survives_the_notebook_and_damage_is_told() -> None:
    row = Definition("ticket", {"bits": 64, "start": 5}, "Photos", "word")
    whole = row.note().text
    assert seen_of("photos", None, row.note(), 0.0).row == row
    wrong = [("64", '"64"'), ("64", "true"), ("Photos", "other"), ("word", ""), ('"bits":64,"start":5', "")]
    for text in ("", "null", "[]", *(whole.replace(old, new) for old, new in wrong)):
        assert "damaged" in str(seen_of("photos", None, Note(text=text), 0.0).row)


async def test_a_missing_counter_is_made_above_all_that_is_known(bench: Bench) -> None:
    bench.servers[0].add("Photos", 32, 100)
    for floor, mark, position in ((0, 0, 100), (500, 0, 500), (500, 900, 900)):
        bench.floors.remember("photos", floor)
        bench.servers[0].data.notes[Book.MARKS]["photos/2"] = Note(mark)
        entry = await bench.catalog.find("photos")
        counter = await bench.catalog.counter(entry, bench.members[1])
        assert (counter.name, counter.bits, counter.position) == ("Photos", 32, position)
        bench.servers[1].drop("Photos")


async def test_the_definition_is_written_before_the_counter_is_made_or_beside_it(bench: Bench) -> None:
    define(bench.servers[0], "likes", "instagram")
    bench.servers[0].add("likes")
    entry = await bench.catalog.find("likes")
    bench.servers[1].read_only = True
    with pytest.raises(DatabaseFailed):
        await bench.catalog.counter(entry, bench.members[1])
    bench.servers[1].read_only = False
    await bench.see()
    await bench.catalog.counter(entry, bench.members[1])
    assert rows(bench, "likes")[0] == rows(bench, "likes")[1]
    define(bench.servers[0], "photos", "ticket")
    for server in bench.servers:  # the second has the counter alone
        server.add("photos")
    await bench.listing.refresh()
    assert rows(bench, "photos")[0] == rows(bench, "photos")[1]


async def test_a_sequence_that_was_dropped_everywhere_is_not_made_again(bench: Bench) -> None:
    entry, _ = await bench.catalog.create("photos", None, {})
    for server in bench.servers:
        server.drop("photos")
    with pytest.raises(SequenceMissing):
        await bench.catalog.counter(entry, bench.members[0])
    with pytest.raises(UnknownSequence):
        await bench.catalog.find("photos")
    await bench.listing.refresh()
    assert bench.lasts("photos") == [None, None]
    again, made = await bench.catalog.create("photos", "ticket", {"bits": 64})
    assert not made
    assert again is not entry
    assert bench.lasts("photos") == [0, 0]


async def test_what_was_read_earlier_changes_nothing() -> None:
    bench = await make_bench(1, last=None)
    bench.servers[0].add("photos")
    entry = await bench.catalog.find("photos")
    at = bench.sight.clock()
    assert bench.catalog.take("photos", {bench.members[0]: Seen(at=at - 60)}) is entry
    assert bench.catalog.take("photos", {bench.members[0]: Seen(at=at + 1)}) is None


# --- making sequences -------------------------------------------------------------------------------------------------


async def test_a_sequence_is_made_on_all_databases_and_its_start_becomes_a_floor(bench: Bench) -> None:
    entry, made = await bench.catalog.create("Photos", None, {"bits": 32, "start": 1_000})
    assert made
    assert (entry.name, entry.bits, entry.definition.start) == ("Photos", 32, 1_000)
    assert bench.lasts("Photos") == [999, 999]
    assert bench.floors.known == {"photos": 999}
    assert rows(bench, "photos") == 2 * [entry.definition.note()]
    with pytest.raises(SequenceConflict, match="kind ticket with bits 32"):
        await bench.catalog.create("photos", "uuid4", {})


async def test_of_requests_at_the_same_moment_one_makes_the_sequence(bench: Bench) -> None:
    servers = [bench.another() for _ in range(5)]
    for each in servers:
        await each.see()
    results = await asyncio.gather(
        *(each.catalog.create("photos", None, {"start": 100 * number}) for number, each in enumerate(servers, 1))
    )
    assert sum(made for _, made in results) == 1
    (start,) = [entry.definition.start for entry, made in results if made]
    assert {entry.definition.start for entry, _ in results} == {start}
    assert rows(bench, "photos")[0] == rows(bench, "photos")[1]


async def test_a_lost_answer_of_the_first_database_leaves_one_definition() -> None:
    bench = await make_bench(last=None, seconds=0.2)
    bench.servers[0].loses = lambda _client, call: call == "write"
    entry, made = await bench.catalog.create("photos", None, {})
    assert made
    assert rows(bench, "photos") == 2 * [entry.definition.note()]
    assert bench.members[0].life is None


async def test_a_kind_from_memory_has_a_definition_and_no_counter(bench: Bench) -> None:
    bench.lose(bench.members[1])
    entry, made = await bench.catalog.create("tokens", "uuid4", {})
    assert made
    assert not entry.is_counted
    await bench.see()
    await bench.listing.refresh()
    assert rows(bench, "tokens") == 2 * [entry.definition.note()]
    assert bench.lasts("tokens") == [None, None]
    assert bench.catalog.entries["tokens"] is entry
