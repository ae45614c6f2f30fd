"""The contract's rows on /ticket and /block: what each answers, what draws nothing, and what each kind has."""

import pytest

from tests.contract.http_bench import Bench, problem, running

TEXT = {"accept": "text/plain"}
LONG_KINDS = "flake", "objectid", "uuid7", "ulid", "uuid4"
KINDS = "instagram", "instagram32", "snowflake", "simpleflake", *LONG_KINDS


async def test_a_ticket_by_get_and_by_post_and_as_text_and_lists_that_rise(http: Bench) -> None:
    paths = "/ticket/photos?_=17", "/ticket/PHOTOS"
    answers = [await ask(path) for ask in (http.get, http.post) for path in paths]
    ids = [answer.json()["id"] for answer in answers]
    assert len(set(ids)) == 4
    for answer, ticket in zip(answers, ids, strict=True):
        assert answer.json() == {"sequence": "photos", "id": ticket, "id_str": str(ticket)}
        assert answer.headers["cache-control"] == "no-store"
    for query, count in (("", 1), ("?count=3", 3)):
        text = await http.get(f"/ticket/photos{query}", headers=TEXT)
        assert (text.headers["cache-control"], text.headers["content-type"][:10]) == ("no-store", "text/plain")
        assert text.text == "".join(f"{ticket}\n" for ticket in sorted(map(int, text.text.split())))
        assert text.text.count("\n") == count
    for count in (1, 3, 1000):
        told = (await http.get(f"/ticket/photos?count={count}")).json()
        ids = sorted(set(told["ids"]))
        assert len(ids) == count
        assert told == {"sequence": "photos", "count": count, "ids": ids, "ids_str": [str(each) for each in ids]}


async def test_a_block_is_all_there_and_nobody_elses(http: Bench) -> None:
    told = (await http.post("/block/photos?size=500&_=17")).json()
    first = told["first"]
    assert told == {"sequence": "photos", "first": first, "first_str": str(first), "step": 2, "size": 500}
    singles = {(await http.get("/ticket/photos")).json()["id"] for _ in range(6)}
    assert not singles.intersection(range(first, first + 1000, 2))
    assert (await http.get("/block/photos?size=10000")).json()["size"] == 10_000
    async with running(increment=100) as wide:
        assert (await wide.get("/block/photos?size=655")).json()["size"] == 655
        assert "655" in problem(await wide.get("/block/photos?size=656"), 422, "invalid")


MALFORMED = {
    "/ticket/photos?cuont=3": "there are count, key, shard",
    "/ticket/photos?count=0": "greater than or equal to 1",
    "/ticket/photos?count=1001": "less than or equal to 1000",
    **{f"/ticket/photos?count={text}": "integer" for text in ("", "x", "03", "%2B3", "1.0", "1_0", "%D9%A3")},
    "/ticket/photos?count=2&count=2": "once",
    "/ticket/photos?key=1": "no shards",
    "/block/photos": "size",
    "/block/photos?size=0": "greater than or equal to 1",
    "/block/photos?size=10001": "10000",
    "/block/photos?count=3": "there is size",
    "/ticket/1photos": "a letter first",
    f"/ticket/{'a' * 65}": "1 to 64 letters",
    "/ticket/%E2%84%AAphotos": "letters, digits and underscores",
}


async def test_what_is_malformed_draws_nothing_and_neither_do_bodies_and_other_methods(http: Bench) -> None:
    for target, says in MALFORMED.items():
        for ask in (http.get, http.post):
            assert says in problem(await ask(target), 422, "invalid"), target
    for target in ("/ticket/photos", "/block/photos?size=1"):
        for body in (b'{"count": 3}', b"[]", b"count=3", b"null", b"\xff"):
            assert "parameters stand in the query" in problem(await http.post(target, content=body), 422, "invalid")
        for method in ("HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"):
            answer = await http.call(method, target)
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
    assert http.drawn == [0, 0]
    for body in (b"", b" \r\n", b"{}", b" {} \n"):
        assert (await http.post(target, content=body)).status_code == 200


@pytest.mark.parametrize("kind", KINDS)
async def test_a_kind_gives_its_ids_and_has_neither_blocks_nor_bumps(http: Bench, kind: str) -> None:
    assert (await http.make("s", kind=kind)).status_code == 201
    one, many = (await http.get("/ticket/s")).json(), (await http.get("/ticket/s?count=3")).json()
    text = (await http.get("/ticket/s", headers=TEXT)).text
    assert one["id"] == (one["id_str"] if kind in LONG_KINDS else int(one["id_str"]))
    assert len({one["id_str"], *many["ids_str"], text.strip()}) == 5
    assert kind not in LONG_KINDS or many["ids"] == many["ids_str"]
    told = (await http.get(f"/decode/s/{one['id_str']}")).json()
    assert (told["kind"], told["id_str"]) == (kind, one["id_str"])
    problem(await http.get("/block/s?size=3"), 409, "conflict")
    problem(await http.post("/sequence/s/bump", json={"above": 3}), 409, "conflict")


async def test_a_shard_is_named_by_key_or_by_number(http: Bench) -> None:
    await http.make("likes", kind="instagram", shards=2000)
    largest = 2**63 - 1
    for query, shard in (("", 0), ("?key=31341", 1341), ("?shard=5", 5), (f"?key={largest}", largest % 2000)):
        ticket = (await http.get(f"/ticket/likes{query}")).json()["id_str"]
        assert (await http.get(f"/decode/likes/{ticket}")).json()["shard"] == shard
    for query in ("key=1&shard=1", "shard=2000", f"key={2**63}", "key=-1", "shard=x"):
        problem(await http.get(f"/ticket/likes?{query}"), 422, "invalid")
