"""What a database keeps of how sequences were made: written once, and the same for everybody after that."""

import asyncio
from dataclasses import replace

from app.kinds.definition import Definition
from tests.contract.engines.storages import Storage, made, on_each_engine

LIKES = Definition("likes", "instagram", {"epoch": 1_314_220_021_721, "shards": 2000})
UPPER = Definition("Likes", "snowflake", {"epoch": 1_288_834_974_657})
OTHER = Definition("Events", "snowflake", {"epoch": 1_288_834_974_657})
CLAIM = replace(LIKES, decided=False, by="0123456789abcdef")
PLAIN = Definition("x" * 64, "uuid4", {})
ALL = {each.key: each for each in (LIKES, OTHER, PLAIN)}


@on_each_engine
async def test_what_is_defined_is_kept_for_everybody(storage: Storage) -> None:
    one, other, beside = await storage.client(), await storage.client(), await storage.client(2)
    assert await one.definitions() == {}
    for each in ALL.values():
        assert await one.define(each) == each
    for client in (one, other):
        assert await client.definitions() == ALL
    assert await beside.definitions() == {}


@on_each_engine
async def test_one_that_is_there_stays_and_is_answered(storage: Storage) -> None:
    one, other = await storage.client(), await storage.client()
    await one.define(LIKES)
    for client in (one, other):
        for changed in (LIKES, replace(LIKES, kind="ticket", parameters={}), replace(LIKES, parameters={"epoch": -7})):
            assert await client.define(changed) == LIKES
    assert await other.definitions() == {"likes": LIKES}


@on_each_engine
async def test_it_is_committed_and_apart_from_the_table(storage: Storage) -> None:
    database = await storage.client()
    await made(database, "likes")
    await database.define(LIKES)
    storage.drop("likes")
    await storage.close(database)
    assert await (await storage.client()).definitions() == {"likes": LIKES}


@on_each_engine
async def test_of_several_that_define_one_sequence_one_does(storage: Storage) -> None:
    clients = [await storage.client() for _ in range(4)]
    for round_ in range(5):
        wanted = [Definition(f"s{round_}", "instagram", {"shards": number}) for number in range(len(clients))]
        came = await asyncio.gather(*(client.define(each) for client, each in zip(clients, wanted, strict=True)))
        assert came[0] in wanted
        assert all(each == came[0] for each in came)
        assert (await clients[round_ % 4].definitions())[f"s{round_}"] == came[0]


@on_each_engine
async def test_many_are_listed(storage: Storage) -> None:
    database = await storage.client()
    wanted = {f"s{number}": Definition(f"s{number}", "instagram", {"shards": number}) for number in range(200)}
    for each in wanted.values():
        await database.define(each)
    assert await database.definitions() == wanted


@on_each_engine
async def test_what_this_release_cannot_read_has_no_parameters(storage: Storage) -> None:
    """Another release's, or damage; it hides no other one, and is not overwritten."""
    database = await storage.client()
    await database.define(LIKES)
    for number, text in enumerate(("", "{", "[1]", '{"a":"b"}', '{"a":1.5}', "null", '{"a":{"b":1}}')):
        storage.write_definition(f"s{number}", "of_2040", text)
    storage.write_definition("plain", "of_2040", '{"new": 7}')
    found = await database.definitions()
    assert found.pop("likes") == LIKES
    assert found.pop("plain") == Definition("plain", "of_2040", {"new": 7})
    assert found == {f"s{number}": Definition(f"s{number}", "of_2040", {}) for number in range(7)}
    assert await database.define(Definition("s0", "ticket", {})) == Definition("s0", "of_2040", {})


@on_each_engine
async def test_of_names_that_differ_by_case_one_is_kept(storage: Storage) -> None:
    one, other = await storage.client(), await storage.client()
    assert await one.define(UPPER) == UPPER
    for client in (one, other):
        assert await client.define(LIKES) == UPPER
        assert await client.definitions() == {"likes": UPPER}


@on_each_engine
async def test_a_claim_is_replaced_by_whoever_has_read_it_and_what_is_decided_is_not(storage: Storage) -> None:
    database = await storage.client()
    assert await database.define(CLAIM) == CLAIM
    plain = Definition("LIKES", "ticket", {"bits": 64, "start": 5}, by="ab")
    for stale in (None, replace(CLAIM, by="ab"), replace(CLAIM, kind="uuid4"), replace(CLAIM, parameters={}), LIKES):
        assert await database.define(plain, stale) == CLAIM
    assert await database.define(plain, CLAIM) == plain
    for old in (None, CLAIM, plain):
        assert await database.define(CLAIM, old) == plain
    assert await database.definitions() == {"likes": plain}


@on_each_engine
async def test_of_several_that_replace_a_claim_one_does(storage: Storage) -> None:
    clients = [await storage.client() for _ in range(4)]
    for round_ in range(5):
        claim = replace(CLAIM, sequence=f"s{round_}")
        await clients[0].define(claim)
        wanted = [replace(claim, decided=True, by=f"{number:x}") for number in range(len(clients))]
        came = await asyncio.gather(*(client.define(each, claim) for client, each in zip(clients, wanted, strict=True)))
        assert came[0] in wanted
        assert all(each == came[0] for each in came)


@on_each_engine
async def test_what_is_forgotten_is_what_was_read(storage: Storage) -> None:
    database = await storage.client()
    await database.define(CLAIM)
    await database.forget_definition(LIKES)
    assert await database.definitions() == {"likes": CLAIM}
    await database.forget_definition(CLAIM)
    assert await database.definitions() == {}


@on_each_engine
async def test_what_a_server_of_release_0_2_0_has_decided_takes_the_place_of_a_claim(storage: Storage) -> None:
    if storage.has_no_earlier_release:
        return
    database = await storage.client()
    await database.define(CLAIM)
    storage.write_definition("Likes", "uuid4", "{}")
    older = Definition("Likes", "uuid4", {})
    assert await database.definitions() == {"likes": older}
    assert await database.define(replace(CLAIM, decided=True), CLAIM) == older
    assert await database.definitions() == {"likes": older}


@on_each_engine
async def test_servers_of_release_0_2_0_read_what_is_decided_of_other_kinds_and_no_plain_tickets(
    storage: Storage,
) -> None:
    if storage.has_no_earlier_release:
        return
    database = await storage.client()
    await database.define(CLAIM)
    await database.define(Definition("songs", "ticket", {"bits": 64, "start": 1}))
    assert storage.definitions_of_0_2_0() == []
    await database.define(LIKES, CLAIM)
    assert storage.definitions_of_0_2_0() == [("likes", "instagram", LIKES.text())]
