"""Kinds: ids whose parts are published, and ids that published packages make and read."""

import datetime
import uuid
from typing import Any

import bson
import pytest
import snowflake
import ulid
import uuid_utils
from hypothesis import given
from hypothesis import strategies as st

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
    """A list of a random kind, all made at `ms`."""
    return list(RANDOM[name].make({}, lambda: ms)(100))


def told(name: str, id_text: object) -> dict[str, Any]:
    """What an id says."""
    return KINDS[name].decode(KINDS[name].for_decoding({}), str(id_text))


@given(st.integers(0, 2**41 - 1), st.integers(0, 1023), st.integers(0, 4095))
def test_snowflake_id_reads_ours_and_we_read_its(time: int, instance: int, counter: int) -> None:
    epoch = 1288834974657
    theirs = snowflake.Snowflake(time, instance, epoch, counter)
    kind = KINDS["snowflake"]
    assert isinstance(kind, TimedKind)
    ours = kind.encode(time << 12 | counter, instance)
    assert ours == int(theirs)
    assert snowflake.Snowflake.parse(ours, epoch) == theirs
    if ours:
        said = told("snowflake", ours)
        assert (said["time_ms"], part_of(said), said["counter"]) == (theirs.milliseconds, theirs.instance, theirs.seq)


def test_bson_reads_our_object_ids_and_we_read_its() -> None:
    for theirs in (bson.ObjectId("507f1f77bcf86cd799439011"), bson.ObjectId()):
        said = told("objectid", theirs)
        generated = theirs.generation_time.replace(tzinfo=datetime.UTC).timestamp() * 1000
        assert (said["id_str"], said["time_ms"]) == (str(theirs), generated)
        assert bytes.fromhex(said["random"]) + said["counter"].to_bytes(3) == theirs.binary[4:]


def test_packages_read_our_uuids_and_we_read_theirs() -> None:
    for ms in MOMENTS:
        ours = made("uuid7", ms)
        theirs = [uuid_utils.UUID(each) for each in ours]
        assert [str(each) for each in theirs] == ours == sorted(ours)
        assert {(each.version, each.variant, each.timestamp) for each in theirs} == {(7, uuid.RFC_4122, ms)}
        other = uuid_utils.uuid7(nanoseconds=ms * 1_000_000)
        said = told("uuid7", other)
        assert (said["id_str"], said["time_ms"]) == (str(other), ms)
        assert int(said["random"], 16) == (other.int >> 64 & 0xFFF) << 62 | other.int & (1 << 62) - 1
    assert {uuid_utils.UUID(each).version for each in made("uuid4", NOW)} == {4}
    assert told("uuid4", theirs4 := uuid_utils.uuid4()) == {"kind": "uuid4", "id_str": str(theirs4)}


def test_python_ulid_reads_ours_and_we_read_its() -> None:
    for ms in MOMENTS:
        ours = made("ulid", ms)
        theirs = [ulid.ULID.from_str(each) for each in ours]
        assert [str(each) for each in theirs] == ours == sorted(ours)
        assert {each.milliseconds for each in theirs} == {ms}
        assert [each.bytes[6:].hex() for each in theirs] == [told("ulid", each)["random"] for each in ours]
    for other in (ulid.ULID(), ulid.ULID.from_timestamp(0)):
        assert (told("ulid", other)["id_str"], told("ulid", other)["time_ms"]) == (str(other), other.milliseconds)
