"""What a database keeps of how sequences were made: written once, and the same for everybody after that."""

import asyncio
from dataclasses import replace

from app.kinds.definition import Definition
from tests.contract.engines.storages import Storage, made, on_each_engine

LIKES = Definition("likes", "instagram", {"epoch": 1_314_220_021_721, "shards": 2000})
UPPER = Definition("Likes", "snowflake", {"epoch": 1_288_834_974_657})
PLAIN = Definition("x" * 64, "uuid4", {})
ALL = {each.sequence: each for each in (LIKES, UPPER, PLAIN)}


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
