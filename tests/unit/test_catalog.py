"""The catalog: how sequences are found, made, kept on all databases, and listed; which definition stands."""

import asyncio
from collections.abc import Callable

import pytest

from app.databases.session import Book, Note
from app.errors import (
    DatabaseFailed,
    InvalidRequest,
    NoTicketDatabase,
    SequenceMissing,
    SequenceUnusable,
    UnknownSequence,
)
from app.tickets.catalog import Entry
from app.tickets.definitions import PLAIN, Definition, Row, Seen
from app.tickets.listing import Warned
from tests.unit.catalog_bench import CatalogBench, define, lasts, rows


def count_calls(bench: CatalogBench, call: str) -> Callable[[], int]:
    """Count the calls of this name on the first database from now on."""
    calls: list[str] = []

    def note(_client: str, what: str) -> bool:
        calls.extend([what] if what == call else [])
        return False

    bench.servers[0].loses = note
    return lambda: len(calls)


# --- finding ----------------------------------------------------------------------------------------------------------


async def test_a_table_made_by_hand_is_found_in_any_case_and_known_then() -> None:
    bench = await CatalogBench.make()
    bench.servers[1].add("Tickets64", 64, 8)
    entry = await bench.catalog.find("tickets64")
    assert (entry.name, entry.definition, entry.bits) == ("Tickets64", PLAIN, 64)
    assert [each.name for each in entry.counters] == [bench.members[1].name]
    assert bench.catalog.known("tickets64") is bench.catalog.known("Tickets64") is entry
    assert await bench.catalog.find("TICKETS64") is entry


async def test_an_unknown_name_is_remembered_for_a_second() -> None:
    bench = await CatalogBench.make()
    asked = count_calls(bench, "sequences")
    for _ in range(3):
        with pytest.raises(UnknownSequence):
            await bench.catalog.find("photos")
    assert asked() == 1
    bench.servers[0].add("photos")
    bench.bench.clock.now += 1.1
    assert (await bench.catalog.find("photos")).name == "photos"
    with pytest.raises(InvalidRequest):
        await bench.catalog.find("_counts")


async def test_names_that_are_asked_for_at_the_same_time_share_a_look_up() -> None:
    bench = await CatalogBench.make()
    for number in range(20):
        bench.servers[0].add(f"s{number}")
    asked = count_calls(bench, "sequences")
    entries = await asyncio.gather(*(bench.catalog.find(f"S{number}") for number in range(20) for _ in range(3)))
    assert len(set(entries)) == 20
    assert asked() <= 2


async def test_without_a_database_no_sequence_is_known_and_none_is_denied() -> None:
    bench = await CatalogBench.make()
    for offset in (1, 2):
        bench.away(offset)
    with pytest.raises(NoTicketDatabase):
        await bench.catalog.find("photos")
    bench.servers[0].add("photos")
    await bench.bench.see()
    assert (await bench.catalog.find("photos")).name == "photos"


async def test_a_server_that_has_just_started_waits_for_its_first_look() -> None:
    bench = await CatalogBench.make(seen=False)
    bench.bench.sight.is_settling = True
    bench.servers[0].add("photos")
    finding = asyncio.create_task(bench.catalog.find("photos"))
    await asyncio.sleep(0)
    await bench.bench.see()
    assert (await finding).name == "photos"


async def test_the_counter_of_another_kind_is_never_taken_for_plain_tickets() -> None:
    bench = await CatalogBench.make(1)

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
    bench.bench.clock.now += 1.1
    assert (await bench.catalog.find("likes")).definition.kind == "instagram"


# --- which definition stands ------------------------------------------------------------------------------------------


async def test_the_definition_at_the_lowest_offset_stands_and_the_other_database_is_not_drawn_from() -> None:
    bench = await CatalogBench.make()
    bench.away(1)
    define(bench.servers[1], "likes", "ticket")
    bench.servers[1].add("likes")
    before = await bench.catalog.find("likes")
    assert before.definition.kind == "ticket"
    define(bench.servers[0], "likes", "instagram")
    bench.servers[0].add("likes")
    await bench.bench.see()
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
    assert [(each.sequence, each.database) for each in bench.listing.warnings] == [("likes", bench.members[1].name)]


async def test_a_table_of_plain_tickets_is_no_counter_of_another_kind() -> None:
    bench = await CatalogBench.make()
    define(bench.servers[0], "likes", "instagram")
    bench.servers[0].add("likes")
    bench.servers[1].add("likes")
    entry = await bench.catalog.find("likes")
    with pytest.raises(SequenceUnusable):
        await bench.catalog.counter(entry, bench.members[1])
    assert rows(bench, "likes")[1] is None


async def test_a_damaged_or_unknown_definition_stops_the_sequence() -> None:
    bench = await CatalogBench.make()
    bench.servers[0].data.notes[Book.DEFINITIONS]["photos"] = Note(text="{}")
    bench.servers[1].add("photos")
    define(bench.servers[0], "likes", "later_kind")
    for name, reason in (("photos", "damaged"), ("likes", "this release cannot serve")):
        with pytest.raises(NoTicketDatabase, match=reason):
            await bench.catalog.find(name)
    assert {each.sequence for each in bench.listing.warnings} == {"photos", "likes"}


async def test_a_database_whose_table_cannot_be_used_is_left_out_and_warned_of() -> None:
    bench = await CatalogBench.make()
    for server in bench.servers:
        server.add("photos")
    bench.servers[0].data.counters["photos"].broken = "its column is signed"
    bench.servers[1].add("photos", 32)
    entry = await bench.catalog.find("photos")
    assert entry.bits == 32
    assert bench.listing.warnings == [Warned("photos", bench.members[0].name, "its column is signed")]
    with pytest.raises(SequenceUnusable):
        await bench.catalog.counter(entry, bench.members[0])


def test_a_row_survives_the_notebook_and_damage_is_told() -> None:
    row = Row("Photos", Definition("ticket", {"bits": 64, "start": 5}), "word")
    assert Row.load("photos", row.note()) == row
    for text in ("", "null", "[]", row.note().text.replace("64", '"64"'), row.note().text.replace("Photos", "other")):
        with pytest.raises(ValueError, match=r"definition|parameters"):
            Row.load("photos", Note(text=text))


# --- counters ---------------------------------------------------------------------------------------------------------


async def test_a_missing_counter_is_made_above_all_that_is_known() -> None:
    bench = await CatalogBench.make()
    bench.servers[0].add("Photos", 32, 100)
    bench.servers[0].data.notes[Book.MARKS]["photos/2"] = Note(900)
    bench.servers[0].data.notes[Book.FLOORS]["photos"] = Note(500)
    entry = await bench.catalog.find("photos")
    counter = await bench.catalog.counter(entry, bench.members[1])
    assert (counter.name, counter.bits, counter.position) == ("Photos", 32, 900)


async def test_the_definition_is_written_before_the_counter_is_made() -> None:
    bench = await CatalogBench.make()
    define(bench.servers[0], "likes", "instagram")
    bench.servers[0].add("likes")
    entry = await bench.catalog.find("likes")
    bench.servers[1].read_only = True
    with pytest.raises(DatabaseFailed):
        await bench.catalog.counter(entry, bench.members[1])
    bench.servers[1].read_only = False
    await bench.bench.see()
    await bench.catalog.counter(entry, bench.members[1])
    assert rows(bench, "likes")[0] == rows(bench, "likes")[1]


async def test_a_definition_is_copied_to_a_database_that_has_the_counter_alone() -> None:
    bench = await CatalogBench.make()
    define(bench.servers[0], "photos", "ticket")
    for server in bench.servers:
        server.add("photos")
    await bench.listing.refresh()
    assert rows(bench, "photos")[0] == rows(bench, "photos")[1]


async def test_a_sequence_that_was_dropped_everywhere_is_not_made_again() -> None:
    bench = await CatalogBench.make()
    entry, _ = await bench.maker.create("photos", None, {})
    for server in bench.servers:
        server.drop("photos")
    with pytest.raises(SequenceMissing):
        await bench.catalog.counter(entry, bench.members[0])
    with pytest.raises(UnknownSequence):
        await bench.catalog.find("photos")
    await bench.listing.refresh()
    assert lasts(bench, "photos") == [None, None]
    again, made = await bench.maker.create("photos", "ticket", {"bits": 64})
    assert not made
    assert again is not entry
    assert lasts(bench, "photos") == [0, 0]


# --- listing ----------------------------------------------------------------------------------------------------------


async def test_sequences_are_listed_in_pages_and_made_where_they_lack() -> None:
    bench = await CatalogBench.make()
    for name in ("Photos", "accounts", "photos_old", "groups"):
        bench.servers[0].add(name, 64, 10)
    page, total = await bench.listing.page("PHOTOS", "", 1)
    assert ([entry.name for entry in page], total) == (["Photos"], 2)
    page, _ = await bench.listing.page("", "groups", 10)
    assert [entry.name for entry in page] == ["Photos", "photos_old"]
    assert lasts(bench, "groups") == [10, 10]


async def test_a_database_that_cannot_be_listed_stays_in_sight_and_is_warned_of() -> None:
    bench = await CatalogBench.make(seconds=0.2)
    bench.servers[1].add("photos")
    bench.servers[0].loses = lambda _client, call: call == "sequences"
    await bench.listing.refresh()
    assert bench.members[0].life is not None
    assert [each.database for each in bench.listing.warnings] == [bench.members[0].name]


async def test_what_was_read_earlier_changes_nothing() -> None:
    bench = await CatalogBench.make(1)
    bench.servers[0].add("photos")
    entry = await bench.catalog.find("photos")
    at = bench.catalog.view("photos", bench.members[0]).at
    assert bench.catalog.take("photos", {bench.members[0]: Seen(at=at - 1)}) is entry
    assert bench.catalog.take("photos", {bench.members[0]: Seen(at=at + 1)}) is None


@pytest.mark.looptime
async def test_a_database_that_comes_into_sight_is_given_what_it_lacks() -> None:
    bench = await CatalogBench.make()
    bench.sight.clock = asyncio.get_running_loop().time
    bench.servers[0].add("photos")
    bench.away(2)
    task = asyncio.create_task(bench.listing.run())
    await asyncio.sleep(1)
    assert lasts(bench, "photos") == [0, None]
    await bench.bench.see(bench.members[1])
    await asyncio.sleep(1)
    assert lasts(bench, "photos") == [0, 0]
    bench.servers[0].add("accounts")
    await asyncio.sleep(10)
    assert lasts(bench, "accounts") == [0, 0]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
