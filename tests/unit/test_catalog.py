"""The catalog: how sequences are found, made and kept on all databases, and which definition stands; bump (rule 9)."""

import asyncio
from collections.abc import Callable

import pytest

from app import errors
from app.databases.record import State
from app.databases.session import Book, Note
from app.kinds.table import KINDS
from app.tickets import everywhere
from app.tickets.catalog import Entry
from app.tickets.definitions import Definition, Seen, seen_of
from app.tickets.floors import NUMBER, Floors
from tests.fakes.server import FakeServer
from tests.unit.lane_bench import NOW, Bench, make_bench

DEADLINE = 1e9


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
    bench = await make_bench(seen=False)
    bench.sight.is_settling = True
    finding = asyncio.create_task(bench.catalog.find("photos"))
    await asyncio.sleep(0)
    await bench.see()
    assert (await finding).name == "photos"


async def test_the_counter_of_another_kind_is_never_taken_for_plain_tickets() -> None:
    bench = await make_bench(1)
    (server,) = bench.servers

    def make_meanwhile(_client: str, call: str) -> bool:
        if call in ("sequences", "read") and "likes" not in server.data.counters:
            define(server, "likes", "instagram")
            server.add("likes")
        return False

    await bench.catalog.find("photos")  # so that a connection is open
    server.loses = make_meanwhile
    with pytest.raises(errors.UnknownSequence):
        await bench.catalog.find("likes")
    assert (await bench.catalog.find("likes")).definition.kind == "instagram"


@pytest.mark.parametrize("has_row", [True, False])
async def test_the_definition_at_the_lowest_offset_stands_and_the_other_database_is_not_drawn_from(
    bench: Bench, has_row: bool
) -> None:
    first, second = bench.members
    bench.lose(first)
    if has_row:
        define(bench.servers[1], "likes", "ticket")
    bench.servers[1].add("likes")
    before = await bench.catalog.find("likes")
    assert before.definition.kind == "ticket"
    define(bench.servers[0], "likes", "instagram")
    bench.servers[0].add("likes")
    await bench.see()
    replaced: list[Entry] = []
    bench.catalog.replaced = replaced.append
    with pytest.raises(errors.SequenceMissing):
        await bench.catalog.counter(before, first)
    assert replaced == [before]
    after = await bench.catalog.find("likes")
    assert after.definition.kind == "instagram"
    with pytest.raises(errors.SequenceUnusable, match="of a lower offset"):
        await bench.catalog.counter(after, second)
    assert (await bench.catalog.counter(after, first)).name == "likes"
    assert [each[:2] for each in bench.listing.warnings] == [("likes", second.name)]
    assert (rows(bench, "likes")[1] is not None) == has_row


async def test_a_damaged_or_unknown_definition_stops_the_sequence(bench: Bench) -> None:
    bench.servers[0].data.notes[Book.DEFINITIONS]["photos"] = Note(text="{}")
    bench.servers[1].add("photos")
    define(bench.servers[0], "likes", "later_kind")
    for name, reason in (("photos", "damaged"), ("likes", "this release cannot serve")):
        with pytest.raises(errors.NoTicketDatabase, match=reason):
            await bench.catalog.find(name)
    assert {sequence for sequence, _, _ in bench.listing.warnings} == {"photos", "likes"}


async def test_a_database_whose_table_cannot_be_used_is_left_out_and_warned_of() -> None:
    bench = await make_bench(bits=32)
    bench.servers[0].data.counters["photos"].broken = "its column is signed"
    entry = await bench.catalog.find("photos")
    assert entry.bits == 32
    assert bench.listing.warnings == [("photos", bench.members[0].name, "its column is signed")]
    with pytest.raises(errors.SequenceUnusable):
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
    with pytest.raises(errors.DatabaseFailed):
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
    with pytest.raises(errors.SequenceMissing):
        await bench.catalog.counter(entry, bench.members[0])
    with pytest.raises(errors.UnknownSequence):
        await bench.catalog.find("photos")
    await bench.listing.refresh()
    assert bench.lasts("photos") == [None, None]
    again, made = await bench.catalog.create("photos", "ticket", {"bits": 64})
    assert not made
    assert again is not entry
    assert bench.lasts("photos") == [0, 0]


async def test_what_was_read_earlier_changes_nothing() -> None:
    bench = await make_bench(1)
    entry, at = await bench.catalog.find("photos"), bench.sight.clock()
    assert bench.catalog.take("photos", {bench.members[0]: Seen(at=at - 60)}) is entry
    assert bench.catalog.take("photos", {bench.members[0]: Seen(at=at + 1)}) is None


async def test_a_sequence_is_made_on_all_databases_and_its_start_becomes_a_floor(bench: Bench) -> None:
    entry, made = await bench.catalog.create("Photos", None, {"bits": 32, "start": 1_000})
    assert (made, entry.name, entry.bits, entry.definition.start) == (True, "Photos", 32, 1_000)
    assert bench.lasts("Photos") == [999, 999]
    assert bench.floors.known == {"photos": 999}
    assert rows(bench, "photos") == 2 * [entry.definition.note()]
    with pytest.raises(errors.SequenceConflict, match="kind ticket with bits 32"):
        await bench.catalog.create("photos", "uuid4", {})


async def test_of_requests_at_the_same_moment_one_makes_the_sequence(bench: Bench) -> None:
    servers = [bench.another() for _ in range(5)]
    for each in servers:
        await each.see()
    calls = (each.catalog.create("photos", None, {"start": 100 * number}) for number, each in enumerate(servers, 1))
    results = await asyncio.gather(*calls)
    assert sorted(made for _, made in results) == [False] * 4 + [True]
    assert len({entry.definition.start for entry, _ in results}) == 1
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
    assert (made, entry.is_counted) == (True, False)
    await bench.see()
    await bench.listing.refresh()
    assert rows(bench, "tokens") == 2 * [entry.definition.note()]
    assert bench.lasts("tokens") == [None, None]
    assert bench.catalog.entries["tokens"] is entry


# --- bump -------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def photos(bench: Bench) -> Bench:
    """The same with the sequence Photos."""
    await bench.catalog.create("Photos", None, {"bits": 32})
    return bench


async def bump(bench: Bench, above: int, known: Callable[[], object] = lambda: True) -> None:
    """Bump Photos. known: whether every live server has the number of the floors in time."""

    async def wait_known(_number: int, deadline: float) -> bool:
        assert deadline == DEADLINE
        return known() is not False

    bench.floors.wait_known = wait_known
    assert (await bench.catalog.bump("photos", above, force=False, deadline=DEADLINE)).name == "Photos"


def floors(bench: Bench) -> list[int]:
    return [note.high for server in bench.servers for note in server.data.notes[Book.FLOORS].values()]


def numbers(bench: Bench) -> list[int]:
    return [server.data.notes[Book.COUNTS][NUMBER].high for server in bench.servers]


async def test_a_bump_raises_floors_and_counters_before_it_waits_for_live_servers(photos: Bench) -> None:
    bench, seen = photos, []

    def known() -> None:
        seen.append((numbers(bench), floors(bench), bench.lasts("Photos")))

    bench.servers[1].drop("Photos")  # a bump makes the counter where it is missing
    await bump(bench, 5_000, known)
    await bump(bench, 70, known)
    assert seen == [([number] * 2, [5_000] * 2, [5_000] * 2) for number in (1, 2)]
    assert bench.floors.known == {"photos": 5_000}


async def test_a_bump_is_confirmed_once_every_database_and_every_live_server_knows_of_it(photos: Bench) -> None:
    bench, (first, second) = photos, photos.members
    bench.lose(second)
    with pytest.raises(errors.NotConfirmed, match=second.name):
        await bump(bench, 50)
    await bench.see()
    bench.servers[1].read_only = True
    with pytest.raises(errors.NotConfirmed):
        await bump(bench, 50)
    assert second.life is None
    bench.servers[1].read_only = False
    await bench.see()
    with pytest.raises(errors.NotConfirmed, match="ask for the same bump again"):
        await bump(bench, 50, lambda: False)
    with pytest.raises(errors.NotConfirmed, match=first.name):
        await bump(bench, 50, lambda: bench.sight.enter(first, "another life"))
    await bench.see()
    await bump(bench, 50)


async def test_nothing_is_written_for_a_bump_to_the_end_or_while_the_ring_grows(photos: Bench) -> None:
    with pytest.raises(errors.AboveCeiling):
        await bump(photos, 2**32 - 1)
    record = photos.sight.record
    assert record is not None
    photos.sight.go_by(record.next(2, state=State.CHANGING))
    with pytest.raises(errors.Growing):
        await bump(photos, 50)
    assert floors(photos) == []


async def read(bench: Bench, reader: Floors) -> None:
    """Read the floors of the first database, as a look that saw its number does."""
    member = bench.members[0]
    await reader.read(member, member.life or "", numbers(bench)[0])


async def test_servers_that_keep_floors_at_once_lose_none_and_the_number_rises_above_all(bench: Bench) -> None:
    servers = [Floors(bench.sight) for _ in range(4)]
    await asyncio.gather(*(each.keep("Photos", 100 * value) for value, each in enumerate(servers, 1)))
    assert floors(bench) == [400, 400]
    reader = Floors(bench.sight, lambda: 20)  # that much was heard
    await read(bench, reader)
    assert (reader.number, reader.known) == (max(numbers(bench)), {"photos": 400})
    assert await reader.keep("Photos", 100) == ({member: member.life for member in bench.members}, 21)
    assert numbers(bench) == [21, 21]


async def test_no_floor_is_kept_on_a_database_that_has_another_ring_number(bench: Bench) -> None:
    bench.servers[0].data.ring = bench.servers[0].data.ring._replace(stamp="9.other")
    assert list((await bench.floors.keep("photos", 500))[0]) == [bench.members[1]]
    bench.sight.refused = True
    assert (await bench.floors.keep("photos", 500))[0] == {}


async def test_the_number_counts_as_read_only_with_every_floor_before_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(everywhere, "PAGE", 2)
    server, reader, kept = bench.servers[0], Floors(bench.sight), {f"s{value}": value for value in range(1, 8)}
    for name, value in kept.items():
        await bench.floors.keep(name, value)

    def keep_another(_client: str, call: str) -> bool:
        if call == "page":
            server.loses = None
            server.data.notes[Book.FLOORS]["a"] = Note(9)
            server.data.notes[Book.COUNTS][NUMBER] = Note(50)
        return False

    server.loses = keep_another
    await read(bench, reader)
    assert reader.known.items() >= kept.items()
    assert reader.number == 7
    await read(bench, reader)
    assert (reader.number, reader.known["a"]) == (50, 9)
