"""The contract's rows on /sequence and /decode: making, listing, showing and advancing sequences, and reading ids."""

from typing import Any

from tests.contract.http_bench import NOW, Bench, problem

CEILING = 2**63 - 1
EPOCH = 1314220021721
LIKE: dict[str, Any] = {"kind": "instagram", "id_str": "2217813737473025833", "time": "2020-01-09T21:07:01.721Z",
        "time_ms": 1578604021721, "shard": 1001, "counter": 809}  # fmt: skip
"""The contract's example of an id that is read."""


async def test_a_sequence_is_made_once(http: Bench) -> None:
    made, end = await http.make("Albums", bits=32, start="1000"), 2**32 - 1
    told = {"sequence": "Albums", "bits": 32, "ceiling": end, "ceiling_str": str(end), "exhausted": False}
    assert (made.status_code, made.json() | told) == (201, made.json())
    assert (await http.get("/ticket/albums")).json()["id"] >= 1000
    for wanted in ({}, {"bits": 32}, {"start": 7}, {"kind": "ticket"}):
        again = await http.make("albums", **wanted)
        assert (again.status_code, again.json()["sequence"]) == (200, "Albums")
    for other in ({"bits": 64}, {"kind": "uuid7"}, {"kind": "instagram", "epoch": EPOCH}):
        assert "exists" in problem(await http.make("albums", **other), 409, "conflict")
    made = await http.call("PUT", "/sequence/without_a_body")
    assert (made.status_code, made.json()["bits"], made.json()["ceiling"]) == (201, 64, CEILING)
    assert (await http.make("narrow", bits=53)).json()["ceiling"] == 2**53 - 1


WRONG: list[tuple[Any, str]] = [
    ({"bits": 65}, "32, 53 or 64"),
    ({"bits": True}, "32, 53 or 64"),
    ({"start": 0}, "greater than or equal to 1"),
    ({"start": "01"}, "integer"),
    ({"start": 1.5}, "integer"),
    ({"bitz": 64}, "there are kind, epoch, shards, random_bits, bits, start"),
    ({"_bits": 64}, "no parameter"),
    ({"kind": "nanoid"}, "there are ticket, instagram"),
    ({"kind": "instagram", "bits": 64}, "takes only epoch, shards"),
    ({"kind": "instagram32", "epoch": 0}, "less than a year"),
    ([], "JSON object"),
]


async def test_what_cannot_be_a_sequence_is_refused(http: Bench) -> None:
    for body, says in WRONG:
        assert says in problem(await http.call("PUT", "/sequence/albums", json=body), 422, "invalid"), body
    as_json, as_text = {"content-type": "application/json"}, {"content-type": "text/plain"}
    for content in (b"{", b"\xff", b"[" * 60_000, b'{"start": ' + b"9" * 5000 + b"}"):
        answer = await http.call("PUT", "/sequence/albums", content=content, headers=as_json)
        assert "JSON" in problem(answer, 422, "invalid")
    # the page of another site can send text without the browser asking first, but not JSON
    plain = await http.call("PUT", "/sequence/albums", content=b'{"bits": 32}', headers=as_text)
    assert "Content-Type: application/json" in problem(plain, 422, "invalid")
    assert "there are none" in problem(await http.call("PUT", "/sequence/albums?bits=32"), 422, "invalid")
    problem(await http.get("/sequence/albums"), 404, "no-such-sequence")


async def test_a_sequence_shows_its_parameters_and_its_position_on_each_database(http: Bench) -> None:
    drawn = (await http.get("/ticket/photos?count=5")).json()["ids"][-1]
    told = (await http.get("/sequence/Photos")).json()
    databases = told["databases"]
    names = [(each["name"], each["offset"], each["status"]) for each in databases]
    assert (told["sequence"], names) == ("photos", [("db1:3306", 1, "up"), ("db2:3306", 2, "up")])
    assert (drawn, str(drawn)) in [(each["last"], each["last_str"]) for each in databases]
    for each in databases:
        assert int(each["headroom_str"]) == each["headroom"] == (CEILING - (each["last"] or each["offset"] - 2)) // 2
    likes = (await http.make("likes", kind="instagram", epoch=str(EPOCH), shards=2000)).json()
    assert likes.items() >= {"kind": "instagram", "epoch": EPOCH, "shards": 2000, "unique": "certainly"}.items()
    random = (await http.make("random", kind="simpleflake", random_bits=23)).json()
    assert (random["unique"], random["random_bits"], random["databases"]) == ("probably", 23, [])
    assert ("a day" in random["odds"], "odds" in likes) == (True, False)
    uuids = (await http.make("uuids", kind="uuid7")).json()
    assert (uuids["bits"], uuids["ceiling"], uuids["ceiling_str"], uuids["databases"]) == (128, None, None, [])


async def test_sequences_are_listed_by_name_in_pages(http: Bench) -> None:
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


async def test_a_bump_advances_every_database_and_near_the_end_has_to_be_forced(http: Bench) -> None:
    told = (await http.post("/sequence/Photos/bump", json={"above": "1000000"})).json()
    assert (told["sequence"], told["above"], told["above_str"]) == ("photos", 10**6, "1000000")
    assert len(told["databases"]) == 2
    assert (await http.post("/sequence/photos/bump", json={"above": 5})).status_code == 200
    assert min([(await http.get("/ticket/photos")).json()["id"] for _ in range(4)]) > 10**6
    far: dict[str, Any] = {"above": CEILING // 100 * 95}
    problem(await http.post("/sequence/photos/bump", json=far), 409, "force-required")
    assert (await http.post("/sequence/photos/bump", json={**far, "force": True})).status_code == 200
    for body in ({}, {"above": -1}, {"above": "x"}, {"above": 1, "forse": True}, {"above": 1, "force": "yes"}):
        problem(await http.post("/sequence/photos/bump", json=body), 422, "invalid")
    problem(await http.post("/sequence/photos/bump?above=1", json={"above": 1}), 422, "invalid")
    problem(await http.post("/sequence/photo/bump", json={"above": 1}), 404, "no-such-sequence")


async def test_an_id_of_a_sequence_and_of_elsewhere_is_read(http: Bench) -> None:
    await http.make("likes", kind="instagram", shards=2000)
    assert (await http.get(f"/decode/Likes/{LIKE['id_str']}")).json() == {"sequence": "likes", **LIKE}
    ticket = {"kind": "ticket", "id_str": "8", "offset": 2}
    assert (await http.get("/decode/photos/8")).json() == {"sequence": "photos", **ticket}
    assert (await http.get("/decode?kind=ticket&id=8&increment=2")).json() == {"sequence": None, **ticket}
    like = f"kind=instagram&id={LIKE['id_str']}"
    assert (await http.get(f"/decode?{like}")).json() == {"sequence": None, **LIKE}
    assert (await http.get(f"/decode?{like}&epoch=0")).json()["time_ms"] == LIKE["time_ms"] - EPOCH
    ahead = int(NOW * 1000) + 120_000 - EPOCH << 23
    assert "ahead" in problem(await http.get(f"/decode/likes/{ahead}"), 422, "invalid")
    assert (await http.get(f"/decode?kind=instagram&id={ahead}")).status_code == 200
    assert "there are kind, epoch, " in problem(await http.get(f"/decode?{like}&epok=0"), 422, "invalid")
    wrong = ["kind=nanoid&id=1", "kind=instagram", "id=1", "kind=uuid4&id=x", f"{like}&random_bits=2"]
    for rest in (f"/likes/{LIKE['id_str']}?epoch=0", "/photos/0", "/photos/x", *(f"?{query}" for query in wrong)):
        problem(await http.get(f"/decode{rest}"), 422, "invalid")
    problem(await http.get("/decode/photo/1"), 404, "no-such-sequence")
