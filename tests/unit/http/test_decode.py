"""GET /decode: what an id says, over HTTP; a server's own sequences and ids of elsewhere."""

from typing import Any

import pytest

from app.common.sequences import Width
from app.kinds.table import KINDS
from tests.fakes.ticket_server import Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.http.front import Front, front, now_ms

TOKEN = "a-token-of-some-length"
FIELDS = {
    "ticket": {"offset"},
    "instagram": {"time", "time_ms", "shard", "counter"},
    "instagram32": {"time", "time_ms", "shard", "counter"},
    "snowflake": {"time", "time_ms", "datacenter", "worker", "counter"},
    "flake": {"time", "time_ms", "worker", "counter"},
    "objectid": {"time", "time_ms", "random", "counter"},
    "uuid7": {"time", "time_ms", "random"},
    "ulid": {"time", "time_ms", "random"},
    "simpleflake": {"time", "time_ms", "random"},
    "uuid4": set[str](),
}
INSTAGRAM = 2217813737473025833
ITS_MS = 1578604021721


# -- of a sequence


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "ticket"])
def test_an_id_of_every_kind_says_what_it_is_made_of(kind: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with front() as it:
            await it.make("likes", kind)
            id_ = await it.id_of("likes")
            said = (await it.get(f"/decode/likes/{id_}")).json()
            assert said.keys() == {"sequence", "kind", "id_str"} | FIELDS[kind]
            assert (said["sequence"], said["kind"], said["id_str"]) == ("likes", kind, id_)
            if "time_ms" in said:
                assert abs(said["time_ms"] - now_ms()) < 60_000

    scenario()


def test_every_kind_has_its_fields_here() -> None:
    assert FIELDS.keys() == KINDS.keys()


@pytest.mark.parametrize(("databases", "id_", "offset"), [(2, 7, 1), (2, 8, 2), (3, 7, 1), (3, 8, 2), (3, 9, 3)])
def test_a_ticket_says_which_database_gave_it(databases: int, id_: int, offset: int) -> None:
    @virtual_time
    async def scenario() -> None:
        async with front(databases) as it:
            said = (await it.get(f"/decode/photos/{id_}")).json()
            assert said == {"sequence": "photos", "kind": "ticket", "id_str": str(id_), "offset": offset}

    scenario()


@virtual_time
async def test_a_sequence_reads_its_ids_with_its_own_parameters() -> None:
    async with front() as it:
        await it.make("likes", "instagram")
        await it.make("few", "instagram", shards=1001)
        await it.make("flakes", "simpleflake", random_bits=23)
        said = (await it.get(f"/decode/likes/{INSTAGRAM}")).json()
        assert (said["time"], said["time_ms"]) == ("2020-01-09T21:07:01.721Z", ITS_MS)
        assert (said["shard"], said["counter"]) == (1001, 809)
        assert "there are 1001 shards" in await it.refused(f"/decode/few/{INSTAGRAM}")
        assert (await it.get("/decode/flakes/3802532518297723456")).json()["random"] >> 22 in (0, 1)


@virtual_time
async def test_the_canonical_form_comes_back() -> None:
    async with front() as it:
        await it.make("sessions", "uuid4")
        upper = "919108F7-52D1-4320-9BAC-F847DB4148A8"
        assert (await it.get(f"/decode/sessions/{upper}")).json()["id_str"] == upper.lower()


@virtual_time
async def test_head_answers_as_get() -> None:
    async with front() as it:
        for target in ("/decode/photos/7", "/decode?kind=ticket&increment=2&id=7"):
            head, get = await it.get(target, method="HEAD"), await it.get(target)
            assert head.headers == get.headers


@pytest.mark.parametrize("id_", ["0", "-7", "+7", "07", " 7", "7.0", "7e3", "٧", "x", "7;8", "99999999999999999999"])
def test_what_is_no_ticket_is_refused(id_: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with front() as it:
            assert "whole number from 1 to" in await it.refused(f"/decode/photos/{id_}")

    scenario()


@pytest.mark.parametrize(("bits", "last"), [(32, 2**32 - 1), (53, 2**53 - 1), (64, 2**63 - 1)])
def test_no_ticket_is_larger_than_its_sequence_can_have(bits: int, last: int) -> None:
    @virtual_time
    async def scenario() -> None:
        async with front() as it:
            await it.make("narrow", "ticket", bits=bits)
            await it.get(f"/decode/narrow/{last}")
            await it.refused(f"/decode/narrow/{last + 1}")

    scenario()


@virtual_time
async def test_no_ticket_is_larger_than_its_column_holds() -> None:
    async with Site(2, ["photos"]) as site:
        for database in site.servers:
            table = database.state.tables["photos"]
            table.width, table.unsigned = Width.INT, False
        it = Front(await site.ticket_server())
        await it.get(f"/decode/photos/{2**31 - 1}")
        assert "larger than 2147483647" in await it.refused(f"/decode/photos/{2**31}")


@virtual_time
async def test_a_sequence_that_is_not_there_is_not_found() -> None:
    async with front() as it:
        assert "PUT /sequence/likes" in await it.refused("/decode/likes/7", 404)
        assert "1 to 64 letters" in await it.refused("/decode/_likes/7", 422)
        await it.get("/decode/photos", 404)
        await it.get("/decode/photos/7/8", 404)
        assert (await it.get("/decode/photos/7", 405, "POST")).headers["allow"] == "GET, HEAD"


@virtual_time
async def test_one_that_cannot_be_served_cannot_be_read() -> None:
    async with Site(2) as site:
        it = Front(await site.ticket_server())
        await it.make("likes", "uuid4")
        for database in site.servers:
            object.__setattr__(database.state.kinds["likes"], "kind", "uuid9")
        other = Front(await site.ticket_server())
        assert "this release cannot make" in await other.refused("/decode/likes/7", 503)


# -- the future


def uuid7_at(ms: float) -> str:
    return f"{int(ms):012x}"[:8] + "-" + f"{int(ms):012x}"[8:] + "-7000-8000-000000000000"


@virtual_time
async def test_an_id_of_more_than_a_minute_ahead_is_refused() -> None:
    async with front() as it:
        await it.make("sessions", "uuid7")
        now = now_ms()
        await it.get(f"/decode/sessions/{uuid7_at(now + 60_000)}")
        assert "61 s ahead" in await it.refused(f"/decode/sessions/{uuid7_at(now + 61_000)}")
        await it.get(f"/decode?kind=uuid7&id={uuid7_at(now + 61_000)}")


@pytest.mark.parametrize("off", [-86_400, 86_400])
def test_the_later_clock_says_what_is_ahead(off: float) -> None:
    """A server whose clock is behind reads what the others have given, by the databases' clocks."""

    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            await Front(await site.ticket_server()).make("sessions", "uuid7")
            it = Front(await site.ticket_server(wall=lambda: now_ms() / 1000 + off))
            now = now_ms() + max(0.0, off) * 1000
            await it.get(f"/decode/sessions/{uuid7_at(now + 59_000)}")
            await it.refused(f"/decode/sessions/{uuid7_at(now + 61_000)}")

    scenario()


# -- of elsewhere


@virtual_time
async def test_an_id_of_elsewhere_is_read_without_a_sequence() -> None:
    async with front() as it:
        said = (await it.get(f"/decode?kind=instagram&epoch=0&id={INSTAGRAM}")).json()
        assert said == {
            "sequence": None,
            "kind": "instagram",
            "id_str": str(INSTAGRAM),
            "time": "1978-05-19T00:00:00.000Z",
            "time_ms": 264384000000,
            "shard": 1001,
            "counter": 809,
        }
        said = (await it.get(f"/decode?id={INSTAGRAM}&kind=instagram")).json()
        assert said["time_ms"] == ITS_MS
        assert (await it.get("/decode?kind=ticket&increment=5&id=7")).json()["offset"] == 2


REFUSED: list[tuple[str, str]] = [
    ("", "kind and id are required"),
    ("kind=instagram", "kind and id are required"),
    ("id=7", "kind and id are required"),
    ("kind=sonyflake&id=7", "there is no such kind of sequence; there are ticket, instagram"),
    ("kind=instagram&id=0", "whole number from 1 to"),
    ("kind=instagram&id=7&id=7", "id has to be given once"),
    ("kind=instagram&kind=instagram&id=7", "kind has to be given once"),
    ("kind=instagram&epoch=0&epoch=0&id=7", "epoch has to be a whole number"),
    ("kind=instagram&epoch=-1&id=7", "epoch has to be a whole number"),
    ("kind=instagram&epoch=&id=7", "epoch has to be a whole number"),
    ("kind=instagram&epoch=01&id=7", "epoch has to be a whole number"),
    ("kind=instagram&epoch=253402300800000&id=7", "epoch is a whole number from 0 to 253402300799999"),
    ("kind=instagram&shards=8193&id=7", "shards is a whole number from 1 to 8192"),
    ("kind=ulid&epoch=0&id=01ARYZ6S41TSV4RRFFQ69G5FAV", "epoch is no parameter of kind ulid"),
    ("kind=ticket&id=7", "increment has no default here"),
    ("kind=ticket&increment=0&id=7", "increment is a whole number from 1 to 65535"),
    ("kind=ticket&increment=2&bits=48&id=7", "bits is 32, 53 or 64"),
    ("kind=uuid7&id=919108f7-52d1-4320-9bac-f847db4148a8", "version 4"),
    ("kind=ulid&id=8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "the largest is 7ZZZ"),
    ("kind=instagram&id=7&worker=1", "there is no parameter worker; there are kind, id, bits"),
    ("kind=instagram&id=7&start=1", "there is no parameter start"),
    ("kind=instagram&id=7&%C3%A9=1", "there is no parameter é"),
    ("&".join(f"x{number}=1" for number in range(40)), "the query cannot be read"),
    ("kind=instagram&id=é", "the query cannot be read"),
]


@pytest.mark.parametrize(("query", "why"), REFUSED)
def test_a_query_that_cannot_be_used_is_refused_with_the_reason(query: str, why: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with front() as it:
            assert why in await it.refused(f"/decode?{query}")

    scenario()


@pytest.mark.parametrize("query", ["x=1", "kind=instagram", "epoch=0", "Count"])
@virtual_time
async def test_an_id_of_a_sequence_is_read_without_parameters(query: str) -> None:
    async with front() as it:
        await it.make("likes", "uuid4")
        id_text = await it.id_of("likes")
        assert "there is no parameter" in await it.refused(f"/decode/likes/{id_text}?{query}")
        await it.get(f"/decode/likes/{id_text}?_={query}")


@virtual_time
async def test_a_parameter_that_begins_with_an_underline_is_ignored() -> None:
    async with front() as it:
        await it.get("/decode?kind=instagram&epoch=0&id=7&_=17&_x")


# -- who may


@virtual_time
async def test_it_may_be_read_with_what_may_read_sequences() -> None:
    async with front(tokens=(TOKEN,)) as it:
        allowed: dict[str, Any] = {"authorization": f"Bearer {TOKEN}"}
        for target in ("/decode/photos/7", "/decode?kind=ticket&increment=2&id=7"):
            await it.get(target, 401)
            await it.get(target, 200, **allowed)
