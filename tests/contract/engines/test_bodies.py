"""The bodies of data in a ring record, and which server announces that it uses which."""

import asyncio
from dataclasses import replace

from app.databases.protocol import OLDER, USE_INTERVALS, Body, RingRecord, RingState, ServerEntry, TicketDatabase, Use
from tests.contract.engines.storages import Storage, on_each_engine

ONE = Body(3, "a" * 16, "10.0.0.1:3306")
TWO = Body(2, "0123456789abcdef", "[2001:db8::1]:3306")
RING = RingRecord(3, 2, 1, (1, 2), own=1, bodies=((1, ONE), (2, TWO)), body=ONE.word, life="life-1.x:2", former=(3, 6))
INTERVAL = 10.0
USES = (Use(1, ONE.word, ONE.place, "host-1:8000"), Use(2, TWO.word, TWO.place, "host-1:8000"))
SERVER = ServerEntry("ab12", "1.2.3", ("ticket",), INTERVAL, uses=USES)
OTHERS_USES = (Use(1, "ff", "other:1", "host-2:8000"),)
OTHER = ServerEntry("cd34", "1.2.3", ("ticket",), INTERVAL, uses=OTHERS_USES)


# --- the record ------------------------------------------------------------------------------------------------------


@on_each_engine
async def test_a_record_is_kept_with_its_bodies_and_increments(storage: Storage) -> None:
    database = await storage.client()
    records = [
        RING,
        replace(RING, number=4, bodies=((1, replace(ONE, number=4, word="b")), (2, TWO)), body="b", life=""),
        replace(RING, number=5, bodies=((1, replace(ONE, number=4, word="b")), (2, TWO)), former=()),
        replace(RING, number=6, increment=6, since=6, former=(2, 3), bodies=((1, replace(ONE, number=5)), (2, TWO))),
        replace(RING, number=7, bodies=tuple((n, Body(7, f"{n:x}", f"host{n}:1")) for n in range(1, 301))),
    ]
    for old, new in zip([None, *records], records, strict=False):
        assert await database.record_ring(old, new) == new
        assert (await database.probe()).record == new
        assert await database.recorded_ring() == new
    await storage.close(database)
    assert (await (await storage.client()).probe()).record == records[-1]


@on_each_engine
async def test_where_another_server_was_first_nothing_of_a_record_is_written(storage: Storage) -> None:
    database = await storage.client()
    await database.record_ring(None, RING)
    body = Body(9, "f" * 16, "elsewhere:1")
    late = replace(RING, number=9, bodies=((1, body), (2, body)), body=body.word, life="late", former=(7,))
    for old in (None, replace(RING, number=2), replace(RING, state=RingState.FORMING)):
        assert await database.record_ring(old, late) == RING
        assert (await database.probe()).record == RING
    assert await database.record_ring(RING, late) == late


@on_each_engine
async def test_of_two_servers_that_record_at_once_one_wins_and_both_see_it(storage: Storage) -> None:
    clients = [await storage.client() for _ in range(4)]
    old: RingRecord | None = None
    for number in range(1, 16):
        wanted = [
            replace(RING, number=number, bodies=((1, Body(number, f"{number:x}{n}", f"host{n}:1")),), life=f"l{n}")
            for n in range(len(clients))
        ]
        wanted = [replace(each, body=each.bodies[0][1].word) for each in wanted]
        found = await asyncio.gather(
            *(client.record_ring(old, new) for client, new in zip(clients, wanted, strict=True))
        )
        assert len(set(found)) == 1
        assert found[0] in wanted
        old = found[0]
        for client in clients:
            assert (await client.probe()).record == old


# --- what servers use ------------------------------------------------------------------------------------------------


async def used(database: TicketDatabase) -> set[Use]:
    """What a probe finds that other servers use."""
    uses = (await database.probe()).uses
    assert len(set(uses)) == len(uses)
    return set(uses)


@on_each_engine
async def test_what_a_server_uses_is_seen_by_all_others(storage: Storage) -> None:
    nobody = await storage.client()
    assert await used(nobody) == set()
    one, other = await storage.client(entry=SERVER), await storage.client(entry=OTHER)
    assert await used(nobody) == {*USES, *OTHERS_USES}
    assert await used(one) == set(OTHERS_USES)
    assert await used(other) == set(USES)
    assert await used(await storage.client(2)) == set()


@on_each_engine
async def test_what_a_server_uses_is_what_it_said_last(storage: Storage) -> None:
    one, nobody = await storage.client(), await storage.client()
    for uses in ((), USES, USES[1:], (replace(USES[0], word="b"), USES[1]), (), USES[:1]):
        one.announce(lambda uses=uses: replace(SERVER, uses=uses))  # type: ignore[misc]
        await one.probe()
        assert await used(nobody) == set(uses)


@on_each_engine
async def test_an_announcement_stands_for_five_intervals_of_its_server_and_is_renewed(storage: Storage) -> None:
    one, nobody = await storage.client(entry=SERVER), await storage.client()
    await storage.client(entry=replace(OTHER, probe_interval=10 * INTERVAL))
    for _ in range(2):
        storage.age_uses((USE_INTERVALS - 1) * INTERVAL)
        assert await used(nobody) == {*USES, *OTHERS_USES}
        storage.age_uses(INTERVAL)
        assert await used(nobody) == set(OTHERS_USES)
        await one.probe()
        assert await used(nobody) == {*USES, *OTHERS_USES}


@on_each_engine
async def test_a_clock_that_is_set_back_keeps_no_announcement_standing_for_longer(storage: Storage) -> None:
    one, nobody = await storage.client(entry=SERVER), await storage.client()
    storage.age_uses(-1.0)
    assert await used(nobody) == set(USES)
    storage.age_uses(-3600.0)
    assert await used(nobody) == set()
    await one.probe()
    assert await used(nobody) == set(USES)


@on_each_engine
async def test_a_server_of_an_earlier_release_is_seen_as_one_that_announces_no_bodies(storage: Storage) -> None:
    nobody = await storage.client()
    await storage.client(entry=replace(SERVER, uses=()))
    assert (await nobody.probe()).older == ()
    storage.probe_as_the_release_before("0.2.0")
    assert (await nobody.probe()).older == ("0.2.0",)
    storage.probe_as_an_older_release()
    assert (await nobody.probe()).older == ("0.2.0", OLDER)
    storage.age_servers(1)
    assert "0.2.0" not in (await nobody.probe()).older


@on_each_engine
async def test_what_a_server_uses_ends_with_it(storage: Storage) -> None:
    one, nobody = await storage.client(entry=SERVER), await storage.client()
    await storage.client(entry=OTHER)
    await storage.close(one)
    assert await used(nobody) == set(OTHERS_USES)
