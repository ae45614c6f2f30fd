"""Making sequences: on which databases, of which definition, and what is refused."""

import asyncio

import pytest

from app.databases.record import State
from app.databases.session import Book
from app.errors import (
    AboveCeiling,
    Growing,
    InvalidRequest,
    NoTicketDatabase,
    SequenceConflict,
    UnknownSequence,
)
from tests.unit.catalog_bench import CatalogBench, define, lasts, rows


async def test_a_sequence_is_made_on_all_databases_and_its_start_becomes_a_floor() -> None:
    bench = await CatalogBench.make()
    entry, made = await bench.maker.create("Photos", None, {"bits": 32, "start": 1_000})
    assert made
    assert (entry.name, entry.bits, entry.floor) == ("Photos", 32, 999)
    assert lasts(bench, "Photos") == [999, 999]
    assert bench.bench.floors.known == {"photos": 999}
    assert len({row.word for row in rows(bench, "photos") if row is not None}) == 1
    assert await bench.maker.create("photos", "ticket", {"start": 7}) == (entry, False)
    assert await bench.maker.create("photos", None, {}) == (entry, False)
    for kind, given in (("ticket", {"bits": 64}), ("instagram", {}), ("uuid4", {})):
        with pytest.raises(SequenceConflict, match="kind ticket with bits 32"):
            await bench.maker.create("photos", kind, given)


async def test_a_new_sequence_skips_nothing() -> None:
    bench = await CatalogBench.make()
    entry, _ = await bench.maker.create("photos", None, {})
    assert [each.position for each in entry.counters.values()] == [0, 0]


async def test_of_requests_at_the_same_moment_one_makes_the_sequence() -> None:
    bench = await CatalogBench.make()
    servers = [bench.another() for _ in range(5)]
    for each in servers:
        await each.bench.see()
    results = await asyncio.gather(
        *(each.maker.create("photos", None, {"start": 100 * number}) for number, each in enumerate(servers, 1))
    )
    assert sum(made for _, made in results) == 1
    (start,) = [entry.definition.start for entry, made in results if made]
    assert {entry.definition.start for entry, _ in results} == {start}
    others = await asyncio.gather(
        *(
            each.maker.create("likes", kind, {})
            for each, kind in zip(servers, ("uuid4", "instagram") * 3, strict=False)
        ),
        return_exceptions=True,
    )
    assert sum(isinstance(each, tuple) and each[1] for each in others) == 1
    assert any(isinstance(each, SequenceConflict) for each in others)


async def test_a_definition_that_came_first_is_passed_on_to_the_other_databases() -> None:
    bench = await CatalogBench.make()
    with pytest.raises(UnknownSequence):
        await bench.catalog.find("opens_the_connections")

    def come_first(_client: str, call: str) -> bool:
        if call == "read" and "photos" not in bench.servers[0].data.notes[Book.DEFINITIONS]:
            define(bench.servers[0], "photos", "ticket", start=50)
        return False

    bench.servers[0].loses = come_first
    entry, made = await bench.maker.create("photos", None, {"start": 70})
    assert not made
    assert entry.definition.start == 50
    assert rows(bench, "photos")[0] == rows(bench, "photos")[1]


async def test_a_sequence_is_made_where_databases_are_up_and_on_the_others_when_they_come() -> None:
    bench = await CatalogBench.make()
    bench.away(1)
    entry, made = await bench.maker.create("photos", None, {})
    assert made
    assert lasts(bench, "photos") == [None, 0]
    await bench.bench.see()
    await bench.listing.refresh()
    assert lasts(bench, "photos") == [0, 0]
    assert rows(bench, "photos")[0] == rows(bench, "photos")[1] == entry.row


async def test_a_lost_answer_of_the_first_database_leaves_one_definition() -> None:
    bench = await CatalogBench.make(seconds=0.2)
    bench.servers[0].loses = lambda _client, call: call == "write"
    entry, made = await bench.maker.create("photos", None, {})
    assert made
    assert rows(bench, "photos") == [entry.row, entry.row]
    assert bench.members[0].life is None


async def test_a_kind_from_memory_has_a_definition_and_no_counter() -> None:
    bench = await CatalogBench.make()
    bench.away(2)
    entry, made = await bench.maker.create("tokens", "uuid4", {})
    assert made
    assert not entry.is_counted
    await bench.bench.see()
    await bench.listing.refresh()
    assert rows(bench, "tokens") == [entry.row, entry.row]
    assert lasts(bench, "tokens") == [None, None]
    assert bench.catalog.known("tokens") is entry


async def test_what_cannot_be_made_is_refused() -> None:
    bench = await CatalogBench.make()
    with pytest.raises(AboveCeiling):
        await bench.maker.create("photos", None, {"bits": 32, "start": 2**32 - 1})
    with pytest.raises(InvalidRequest):
        await bench.maker.create("photos", None, {"epoch": 1})
    record = bench.sight.record
    assert record is not None
    bench.sight.go_by(record.next(2, state=State.CHANGING))
    with pytest.raises(Growing):
        await bench.maker.create("photos", None, {})
    for offset in (1, 2):
        bench.away(offset)
    bench.sight.go_by(record)
    with pytest.raises(NoTicketDatabase):
        await bench.maker.create("photos", None, {})
    assert rows(bench, "photos") == [None, None]
