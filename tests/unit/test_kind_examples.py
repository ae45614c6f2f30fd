"""Kinds: ids whose parts are published, and ids that published packages make and read."""

import datetime
import uuid
from typing import Any

import bson
import pytest
import snowflake
import ulid
import uuid_utils

from app.kinds.chance import RandomKind
from app.kinds.table import KINDS
from app.kinds.timed import TimedKind

NOW = 1_795_000_000_000  # 2026-11-18
MOMENTS = [1_400_000_000_000, 1656432460105, NOW + 123]
RANDOM = {name: kind for name, kind in KINDS.items() if isinstance(kind, RandomKind)}
BITS = {"random_bits": 23}
EXAMPLES: list[tuple[str, dict[str, int], str, str | None, dict[str, Any]]] = [
    # the article's: shard 31341 % 2000, counter 5001 % 1024, 1,387,263,000 ms
    ("instagram", {}, "11637205501278089", "2011-09-09T22:28:04.721Z", {"shard": 1341, "counter": 905}),
    ("instagram", {}, "2217813737473025833", "2020-01-09T21:07:01.721Z", {"shard": 1001, "counter": 809}),
    ("instagram32", {"epoch": 1_600_000_000_000}, "128000081", "2020-09-25T02:13:20.000Z", {"shard": 2, "counter": 17}),
    (
        *("snowflake", {}, "1541815603606036480", "2022-06-28T16:07:40.105Z"),
        {"datacenter": 11, "worker": 26, "counter": 0},
    ),
    # the README's <<0,0,1,52,212,33,45,67,16,154,221,94,14,143,0,0>>
    (
        *("flake", {}, "00000134d4212d43109add5e0e8f0000", "2012-01-12T22:54:31.235Z"),
        {"worker": "109add5e0e8f", "counter": 0},
    ),
    (
        *("objectid", {}, "507f1f77bcf86cd799439011", "2012-10-17T21:13:27.000Z"),
        {"random": "bcf86cd799", "counter": 4427793},
    ),
    # what the package simpleflake 0.1.5 of 2013 answers, which has no wheel
    ("simpleflake", BITS, "3802532518297723456", "2014-05-13T16:53:20.000Z", {"random": 123456}),
    ("simpleflake", BITS, "5953643904594083840", "2022-06-28T16:07:40.105Z", {"random": 0}),
    ("simpleflake", BITS, f"{2**63 - 1}", "2034-11-04T00:53:47.775Z", {"random": 2**23 - 1}),
    (
        *("simpleflake", BITS | {"epoch": 946684800000}, "3802683513241723456", "2014-05-13T16:53:20.000Z"),
        {"random": 123456},
    ),
    # RFC 9562, appendix A.6
    (
        *("uuid7", {}, "017f22e2-79b0-7cc3-98c4-dc0c0c07398f", "2022-02-22T19:22:22.000Z"),
        {"random": f"{0xCC3 << 62 | 0x18C4DC0C0C07398F:019x}"},
    ),
    ("ulid", {}, "01ARYZ6S41TSV4RRFFQ69G5FAV", "2016-07-30T22:36:16.385Z", {"random": "d6764c61efb99302bd5b"}),
    # RFC 9562, appendix A.3
    ("uuid4", {}, "919108f7-52d1-4320-9bac-f847db4148a8", None, {}),
    ("ticket", {"increment": 2}, "7", None, {"offset": 1}),
    ("ticket", {"increment": 2}, "8", None, {"offset": 2}),
    ("ticket", {"increment": 3}, "9", None, {"offset": 3}),
]


@pytest.mark.parametrize(("name", "given", "id_text", "time", "parts"), EXAMPLES)
def test_a_published_id_is_read_and_made_again(
    name: str, given: dict[str, int], id_text: str, time: str | None, parts: dict[str, Any]
) -> None:
    kind = KINDS[name]
    parameters = kind.for_decoding(given)
    said: dict[str, Any] = {"kind": name, "id_str": id_text}
    if time:
        said |= {"time": time, "time_ms": round(datetime.datetime.fromisoformat(time).timestamp() * 1000)}
    said |= parts
    found = kind.decode(parameters, id_text)
    assert list(found.items()) == list(said.items())
    if isinstance(kind, TimedKind):
        tick = kind.tick_at(parameters, found["time_ms"]) + found["counter"]
        assert str(kind.encode(tick, part_of(found))) == id_text


def part_of(said: dict[str, Any]) -> int:
    """The part that a decoded id names, whatever it is called there."""
    if "shard" in said:
        return int(said["shard"])
    if "datacenter" in said:
        return int(said["datacenter"] * 32 + said["worker"])
    return int(said.get("worker") or said["random"], 16)


@pytest.mark.parametrize("name", ["flake", "objectid", "uuid7", "uuid4", "ulid"])
def test_either_case_is_read_and_the_canonical_one_given_back(name: str) -> None:
    (id_text,) = [id_text for example, _, id_text, *_ in EXAMPLES if example == name]
    decode = KINDS[name].decode
    assert decode({}, id_text.upper()) == decode({}, id_text.lower()) == decode({}, id_text)


def made(name: str, ms: int) -> list[Any]:
    """A list of a random kind, all made at `ms`; it rises."""
    ids: list[Any] = [*RANDOM[name].make({}, lambda: ms)(100)]
    assert ids == sorted(ids)
    return ids


def told(name: str, id_text: object) -> dict[str, Any]:
    """What an id says."""
    said = KINDS[name].decode(KINDS[name].for_decoding({}), str(id_text))
    assert said["id_str"] == str(id_text)
    return said


@pytest.mark.parametrize(("instance", "counter"), [(0, 0), (378, 1), (1023, 4095)])
def test_snowflake_id_reads_ours_and_we_read_its(instance: int, counter: int) -> None:
    kind, epoch = KINDS["snowflake"], 1288834974657
    assert isinstance(kind, TimedKind)
    for ms in MOMENTS:
        theirs = snowflake.Snowflake(ms - epoch, instance, epoch, counter)
        ours = kind.encode(kind.tick_at({"epoch": epoch}, ms) + counter, instance)
        assert (ours, snowflake.Snowflake.parse(ours, epoch)) == (int(theirs), theirs)
        said = told("snowflake", ours)
        assert (said["time_ms"], part_of(said), said["counter"]) == (ms, instance, counter)


def test_bson_reads_our_object_ids_and_we_read_its() -> None:
    for theirs in (bson.ObjectId("507f1f77bcf86cd799439011"), bson.ObjectId()):
        said = told("objectid", theirs)
        assert said["time_ms"] == theirs.generation_time.replace(tzinfo=datetime.UTC).timestamp() * 1000
        assert bytes.fromhex(said["random"]) + said["counter"].to_bytes(3) == theirs.binary[4:]


@pytest.mark.parametrize("ms", MOMENTS)
def test_packages_read_our_uuids_and_ulids_and_we_read_theirs(ms: int) -> None:
    ours = [uuid_utils.UUID(each) for each in made("uuid7", ms)]
    assert {(each.version, each.variant, each.timestamp) for each in ours} == {(7, uuid.RFC_4122, ms)}
    theirs = uuid_utils.uuid7(nanoseconds=ms * 1_000_000)
    said = told("uuid7", theirs)
    assert said["time_ms"] == ms
    assert int(said["random"], 16) == (theirs.int >> 64 & 0xFFF) << 62 | theirs.int & (1 << 62) - 1
    assert uuid_utils.UUID(str(RANDOM["uuid4"].make({}, lambda: ms)(1)[0])).version == 4
    assert told("uuid4", uuid_utils.uuid4()).keys() == {"kind", "id_str"}
    for text in made("ulid", ms):
        ours_too = ulid.ULID.from_str(text)
        assert (str(ours_too), ours_too.milliseconds) == (text, ms)
        assert ours_too.bytes[6:].hex() == told("ulid", text)["random"]
    other = ulid.ULID.from_timestamp(ms / 1000)
    assert told("ulid", other)["time_ms"] == other.milliseconds
