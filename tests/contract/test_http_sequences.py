"""The contract's rows on /sequence and /decode: making, listing, showing and advancing sequences, and reading ids."""

import asyncio
from typing import Any

import pytest

from tests.contract.http_bench import NOW, problem, running

pytestmark = pytest.mark.looptime

CEILING = 2**63 - 1
EPOCH = 1314220021721
LIKE: dict[str, Any] = {"kind": "instagram", "id_str": "2217813737473025833", "time": "2020-01-09T21:07:01.721Z",
        "time_ms": 1578604021721, "shard": 1001, "counter": 809}  # fmt: skip
"""The contract's example of an id that is read."""


async def test_a_sequence_is_made_once() -> None:
    async with running() as http:
        made = await http.make("Albums", bits=32, start="1000")
        told, end = made.json(), 2**32 - 1
        assert (made.status_code, told["sequence"], told["kind"], told["unique"]) == (
            201,
            "Albums",
            "ticket",
            "certainly",
        )
        assert (told["bits"], told["ceiling"], told["ceiling_str"], told["exhausted"]) == (32, end, str(end), False)
        assert (await http.get("/ticket/albums")).json()["id"] >= 1000
        for wanted in ({}, {"bits": 32}, {"start": 7}, {"kind": "ticket"}):
            again = await http.make("albums", **wanted)
            assert (again.status_code, again.json()["sequence"]) == (200, "Albums")
        for other in ({"bits": 64}, {"kind": "uuid7"}, {"kind": "instagram", "epoch": EPOCH}):
            assert "exists" in problem(await http.make("albums", **other), 409, "conflict")


async def test_without_a_body_a_sequence_has_64_bits() -> None:
    async with running() as http:
        made = await http.call("PUT", "/sequence/albums")
        assert (made.status_code, made.json()["bits"], made.json()["ceiling"]) == (201, 64, CEILING)
        assert (await http.make("narrow", bits=53)).json()["ceiling"] == 2**53 - 1


async def test_of_puts_at_the_same_moment_one_makes_the_sequence() -> None:
    async with running() as http:
        answers = await asyncio.gather(*(http.make("albums", start=1 + i) for i in range(5)))
        assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 200, 201]


async def test_a_sequence_is_made_while_one_database_is_up() -> None:
    async with running() as http:
        http.servers[1].down = True
        await http.settle(1)
        assert (await http.make("albums")).status_code == 201
        http.servers[1].down = False
        await http.settle(2)
        await asyncio.sleep(15)
        assert "albums" in http.servers[1].data.counters


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"bits": 65}, "32, 53 or 64"),
        ({"bits": True}, "32, 53 or 64"),
        ({"start": 0}, "greater than or equal to 1"),
        ({"start": "01"}, "integer"),
        ({"start": 1.5}, "integer"),
        ({"bitz": 64}, "there are kind, bits, start, epoch, shards, random_bits"),
        ({"_bits": 64}, "no parameter"),
        ({"kind": "nanoid"}, "there are ticket, instagram"),
        ({"kind": "instagram", "bits": 64}, "takes only epoch, shards"),
        ({"kind": "uuid4", "epoch": 0}, "no parameters"),
        ({"kind": "instagram", "shards": 8193}, "8192"),
        ({"kind": "instagram", "epoch": int(NOW * 1000) + 60_000}, "future"),
        ({"kind": "instagram32", "epoch": 0}, "less than a year"),
        ([], "JSON object"),
        ("x", "JSON object"),
    ],
)
async def test_what_cannot_be_a_sequence_is_refused(body: Any, says: str) -> None:
    async with running() as http:
        assert says in problem(await http.call("PUT", "/sequence/albums", json=body), 422, "invalid")
        problem(await http.get("/sequence/albums"), 404, "no-such-sequence")


async def test_a_body_that_is_no_json_is_refused() -> None:
    async with running() as http:
        as_json, as_text = {"content-type": "application/json"}, {"content-type": "text/plain"}
        for body in (b"{", b"\xff", b"[" * 60_000, b'{"start": ' + b"9" * 5000 + b"}"):
            answer = await http.call("PUT", "/sequence/albums", content=body, headers=as_json)
            assert "JSON" in problem(answer, 422, "invalid")
        # the page of another site can send text without the browser asking first, but not JSON
        plain = await http.call("PUT", "/sequence/albums", content=b'{"bits": 32}', headers=as_text)
        assert "Content-Type: application/json" in problem(plain, 422, "invalid")
        assert "there are none" in problem(await http.call("PUT", "/sequence/albums?bits=32"), 422, "invalid")
        problem(await http.get("/sequence/albums"), 404, "no-such-sequence")


async def test_a_sequence_shows_its_position_on_each_database() -> None:
    async with running() as http:
        drawn = (await http.get("/ticket/photos?count=5")).json()["ids"][-1]
        told = (await http.get("/sequence/Photos")).json()
        databases = told["databases"]
        names = [(each["name"], each["offset"], each["status"]) for each in databases]
        assert (told["sequence"], names) == ("photos", [("db1:3306", 1, "up"), ("db2:3306", 2, "up")])
        assert (drawn, str(drawn)) in [(each["last"], each["last_str"]) for each in databases]
        assert all(each["headroom_str"] == str(each["headroom"]) for each in databases)


async def test_sequences_of_other_kinds_show_their_parameters() -> None:
    async with running() as http:
        likes = (await http.make("likes", kind="instagram", epoch=str(EPOCH), shards=2000)).json()
        random = (await http.make("random", kind="simpleflake", random_bits=23)).json()
        uuids = (await http.make("uuids", kind="uuid7")).json()
        assert (likes["kind"], likes["epoch"], likes["shards"]) == ("instagram", EPOCH, 2000)
        assert (likes["unique"], "odds" in likes) == ("certainly", False)
        assert (random["unique"], random["random_bits"], random["databases"]) == ("probably", 23, [])
        assert "a day" in random["odds"]
        assert (uuids["bits"], uuids["ceiling"], uuids["ceiling_str"], uuids["databases"]) == (128, None, None, [])


async def test_sequences_are_listed_by_name_in_pages() -> None:
    async with running() as http:
        for name in ("Albums", "photo_sets", "users"):
            await http.make(name)

        async def names(query: str) -> tuple[list[str], str | None, int]:
            told = (await http.get(f"/sequence{query}")).json()
            return [each["sequence"] for each in told["sequences"]], told["next"], told["total"]

        assert await names("") == (["Albums", "photo_sets", "photos", "users"], None, 4)
        assert await names("?search=PHOTO&limit=1") == (["photo_sets"], "photo_sets", 2)
        assert await names("?search=PHOTO&limit=2&after=photo_sets") == (["photos"], None, 2)
        for wrong in ("limit=0", "limit=1001", "search=%25", "after=1", "serch=x"):
            problem(await http.get(f"/sequence?{wrong}"), 422, "invalid")


async def test_a_bump_advances_every_database() -> None:
    async with running() as http:
        told = (await http.post("/sequence/Photos/bump", json={"above": "1000000"})).json()
        assert (told["sequence"], told["above"], told["above_str"]) == ("photos", 10**6, "1000000")
        assert len(told["databases"]) == 2
        assert (await http.post("/sequence/photos/bump", json={"above": 5})).status_code == 200
        assert min([(await http.get("/ticket/photos")).json()["id"] for _ in range(4)]) > 10**6


async def test_a_bump_near_the_end_has_to_be_forced() -> None:
    async with running() as http:
        far: dict[str, Any] = {"above": CEILING // 100 * 95}
        problem(await http.post("/sequence/photos/bump", json=far), 409, "force-required")
        assert (await http.post("/sequence/photos/bump", json={**far, "force": True})).status_code == 200
        for body in ({}, {"above": -1}, {"above": "x"}, {"above": 1, "forse": True}, {"above": 1, "force": "yes"}):
            problem(await http.post("/sequence/photos/bump", json=body), 422, "invalid")
        problem(await http.post("/sequence/photos/bump?above=1", json={"above": 1}), 422, "invalid")
        problem(await http.post("/sequence/photo/bump", json={"above": 1}), 404, "no-such-sequence")


async def test_an_id_of_a_sequence_is_read() -> None:
    async with running() as http:
        await http.make("likes", kind="instagram", shards=2000)
        assert (await http.get(f"/decode/Likes/{LIKE['id_str']}")).json() == {"sequence": "likes", **LIKE}
        ticket = (await http.get("/decode/photos/8")).json()
        assert ticket == {"sequence": "photos", "kind": "ticket", "id_str": "8", "offset": 2}
        ahead = int(NOW * 1000) + 120_000 - EPOCH << 23
        assert "ahead" in problem(await http.get(f"/decode/likes/{ahead}"), 422, "invalid")
        for wrong in (f"likes/{LIKE['id_str']}?epoch=0", "photos/0", "photos/x"):
            problem(await http.get(f"/decode/{wrong}"), 422, "invalid")
        problem(await http.get("/decode/photo/1"), 404, "no-such-sequence")


async def test_an_id_of_elsewhere_is_read() -> None:
    async with running() as http:
        like = f"kind=instagram&id={LIKE['id_str']}"
        assert (await http.get(f"/decode?{like}")).json() == {"sequence": None, **LIKE}
        assert (await http.get(f"/decode?{like}&epoch=0")).json()["time_ms"] == LIKE["time_ms"] - EPOCH
        future = int(NOW * 1000) + 10**10 - EPOCH << 23
        assert (await http.get(f"/decode?kind=instagram&id={future}")).status_code == 200
        ticket = (await http.get("/decode?kind=ticket&id=7&increment=2")).json()
        assert ticket == {"sequence": None, "kind": "ticket", "id_str": "7", "offset": 1}
        assert "there are kind, id, epoch" in problem(await http.get(f"/decode?{like}&epok=0"), 422, "invalid")
        for wrong in ("kind=nanoid&id=1", "kind=instagram", "id=1", "kind=uuid4&id=x", f"{like}&random_bits=2"):
            problem(await http.get(f"/decode?{wrong}"), 422, "invalid")
