"""Ours and the packages that people have: each reads what the other has made, and both tell the same."""

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

from app.kinds.kind import RandomKind, TimedKind
from app.kinds.table import KINDS

MOMENTS = [1_400_000_000_000, 1656432460105, 1_795_000_000_123]
"""Milliseconds since 1970."""


def timed(name: str) -> TimedKind:
    kind = KINDS[name]
    assert isinstance(kind, TimedKind)
    return kind


def made(name: str, ms: int, **parameters: int) -> list[Any]:
    """A list of a kind from random numbers, all made at `ms`."""
    kind = KINDS[name]
    assert isinstance(kind, RandomKind)
    return list(kind.make(kind.for_decoding(parameters), lambda: ms)(100))


def said(name: str, id_text: object, **parameters: int) -> dict[str, Any]:
    """What an id says, by us."""
    kind = KINDS[name]
    return kind.decode(kind.for_decoding(parameters), str(id_text))


def milliseconds(moment: datetime.datetime) -> int:
    return round(moment.replace(tzinfo=datetime.UTC).timestamp() * 1000)


# --- snowflake-id --------------------------------------------------------------------------------------------------

SNOWFLAKE_EPOCH = 1288834974657


@given(st.integers(0, 2**41 - 1), st.integers(0, 1023), st.integers(0, 4095))
def test_snowflake_id_reads_ours_and_we_read_its(time: int, instance: int, counter: int) -> None:
    theirs = snowflake.Snowflake(time, instance, SNOWFLAKE_EPOCH, counter)
    ours = timed("snowflake").encode({"epoch": SNOWFLAKE_EPOCH}, time << 12 | counter, instance)
    assert ours == int(theirs)
    assert isinstance(ours, int)
    assert snowflake.Snowflake.parse(ours, SNOWFLAKE_EPOCH) == theirs
    if ours:
        told = said("snowflake", ours)
        assert (told["time_ms"], told["datacenter"] * 32 + told["worker"], told["counter"]) == (
            theirs.milliseconds,
            theirs.instance,
            theirs.seq,
        )


def test_the_worked_example_by_snowflake_id() -> None:
    theirs = snowflake.Snowflake.parse(1541815603606036480, SNOWFLAKE_EPOCH)
    assert (theirs.milliseconds, theirs.instance, theirs.seq) == (1656432460105, 378, 0)
    assert int(theirs) == timed("snowflake").encode(
        {"epoch": SNOWFLAKE_EPOCH}, (theirs.milliseconds - SNOWFLAKE_EPOCH) << 12, theirs.instance
    )


# --- bson ----------------------------------------------------------------------------------------------------------


def test_bson_reads_our_object_ids() -> None:
    kind = timed("objectid")
    for ms in MOMENTS:
        ours = str(kind.encode({}, kind.tick_at({}, ms) + 4427793, 0xBCF86CD799))
        theirs = bson.ObjectId(ours)
        assert str(theirs) == ours
        assert milliseconds(theirs.generation_time) == ms // 1000 * 1000
        assert theirs.binary[4:] == bytes.fromhex("bcf86cd799") + (4427793).to_bytes(3)


@pytest.mark.parametrize(
    "theirs", [bson.ObjectId("507f1f77bcf86cd799439011"), bson.ObjectId()], ids=["known", "of now"]
)
def test_we_read_the_object_ids_of_bson(theirs: bson.ObjectId) -> None:
    told = said("objectid", theirs)
    assert told["id_str"] == str(theirs)
    assert told["time_ms"] == milliseconds(theirs.generation_time)
    assert bytes.fromhex(told["random"]) + told["counter"].to_bytes(3) == theirs.binary[4:]


# --- uuid_utils, and the standard library --------------------------------------------------------------------------


def test_others_read_our_uuids_of_version_7() -> None:
    for ms in MOMENTS:
        ours = made("uuid7", ms)
        theirs = [uuid_utils.UUID(each) for each in ours]
        assert [str(each) for each in theirs] == ours
        assert {(each.version, each.variant, each.timestamp) for each in theirs} == {(7, uuid.RFC_4122, ms)}
        assert {(uuid.UUID(each).version, uuid.UUID(each).variant) for each in ours} == {(7, uuid.RFC_4122)}


def test_we_read_the_uuids_of_version_7_of_uuid_utils() -> None:
    for ms in MOMENTS:
        theirs = uuid_utils.uuid7(nanoseconds=ms * 1_000_000)
        told = said("uuid7", theirs)
        assert (told["id_str"], told["time_ms"]) == (str(theirs), ms)
        assert int(told["random"], 16) == (theirs.int >> 64 & 0xFFF) << 62 | theirs.int & (1 << 62) - 1
    ids = [str(uuid_utils.uuid7()) for _ in range(1000)]
    assert [said("uuid7", each)["id_str"] for each in ids] == ids


def test_the_rfc_s_example_by_uuid_utils() -> None:
    theirs = uuid_utils.UUID("017f22e2-79b0-7cc3-98c4-dc0c0c07398f")
    assert said("uuid7", theirs)["time_ms"] == theirs.timestamp == 1645557742000


def test_uuids_of_version_4_are_read_both_ways() -> None:
    for ours in made("uuid4", MOMENTS[0]):
        assert (uuid_utils.UUID(ours).version, str(uuid_utils.UUID(ours))) == (4, ours)
    theirs = str(uuid_utils.uuid4())
    assert said("uuid4", theirs) == {"kind": "uuid4", "id_str": theirs}


# --- python-ulid ---------------------------------------------------------------------------------------------------


def test_python_ulid_reads_ours() -> None:
    for ms in MOMENTS:
        ours = made("ulid", ms)
        theirs = [ulid.ULID.from_str(each) for each in ours]
        assert [str(each) for each in theirs] == ours
        assert {each.milliseconds for each in theirs} == {ms}
        assert [each.bytes[6:].hex() for each in theirs] == [said("ulid", each)["random"] for each in ours]
        assert theirs == sorted(theirs)


@pytest.mark.parametrize(
    "theirs",
    [ulid.ULID.from_str("01ARYZ6S41TSV4RRFFQ69G5FAV"), ulid.ULID(), ulid.ULID.from_timestamp(0)],
    ids=["known", "of now", "of 1970"],
)
def test_we_read_those_of_python_ulid(theirs: ulid.ULID) -> None:
    told = said("ulid", theirs)
    assert (told["id_str"], told["time_ms"], told["random"]) == (
        str(theirs),
        theirs.milliseconds,
        theirs.bytes[6:].hex(),
    )


# --- simpleflake ---------------------------------------------------------------------------------------------------
# The package (0.1.5, of 2013) has no wheel, and no hash would lock what builds it. These are its answers.

SIMPLEFLAKES = [
    (946702800000, 1_400_000_000_000, 123456, 3802532518297723456),
    (946684800000, 1_400_000_000_000, 123456, 3802683513241723456),
    (946702800000, 1_656_432_460_105, 0, 5953643904594083840),
    (946702800000, 1_795_000_000_122, 2**23 - 1, 7116032679329398783),
    (946702800000, 946_702_801_000, 1, 8388608001),
    (946702800000, 2_046_214_427_775, 2**23 - 1, 2**63 - 1),
]
"""Epoch, time, random part, and what simpleflake.simpleflake() made of them."""


@pytest.mark.parametrize(("epoch", "ms", "random", "theirs"), SIMPLEFLAKES)
def test_simpleflakes_are_those_of_the_package(epoch: int, ms: int, random: int, theirs: int) -> None:
    told = said("simpleflake", theirs, random_bits=23, epoch=epoch)
    assert (told["time_ms"], told["random"]) == (ms, random)
    assert {ours >> 23 for ours in made("simpleflake", ms, random_bits=23, epoch=epoch)} == {theirs >> 23}
