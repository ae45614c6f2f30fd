"""Kinds: ids read back and made, against published ids and packages too; parameters; what cannot be an id."""

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

from app.errors import ClockAhead, Exhausted, InvalidRequest
from app.kinds.chance import RandomKind, Ulid
from app.kinds.kind import LEAST_LIFE_MS
from app.kinds.notation import LATEST_MS, ulid_number
from app.kinds.table import KINDS
from app.kinds.timed import TimedKind
from app.tickets.definitions import Definition

NOW = 1_795_000_000_000  # 2026-11-18
LAST = 2**63 - 1
TIMED = [kind for kind in KINDS.values() if isinstance(kind, TimedKind)]
GIVEN: dict[str, dict[str, int]] = {
    **{"ticket": {"increment": 3}, "instagram": {"shards": 2000}, "instagram32": {"epoch": 1600000000000}},
    "simpleflake": {"random_bits": 23},
}
"""What the ids here were made with, by kind."""
RANDOM = {name: kind for name, kind in KINDS.items() if isinstance(kind, RandomKind)}


@pytest.mark.parametrize("kind", TIMED, ids=lambda kind: kind.name)
@given(data=st.data())
def test_an_id_reads_back_and_ids_rise_with_their_ticks(kind: TimedKind, data: st.DataObject) -> None:
    parameters = kind.complete(
        {"epoch": data.draw(st.integers(0, 10**13))} if "epoch" in kind.parameters else {}, reading=True
    )
    most = min(kind.last_tick, kind.tick_at(parameters, LATEST_MS))
    tick, later = sorted(data.draw(st.lists(st.integers(1, most), min_size=2, max_size=2, unique=True)))
    part = data.draw(st.integers(0, (1 << kind.part_bits) - 1))
    said = kind.decode(parameters, str(kind.encode(tick, part)))
    assert (said["time_ms"], part_of(said)) == (kind.time_of(parameters, tick), part)
    assert kind.tick_at(parameters, said["time_ms"]) + said["counter"] == tick
    assert str(kind.encode(tick, part)) == said["id_str"]
    assert kind.encode(kind.last_tick, (1 << kind.part_bits) - 1) == (
        kind.ceiling(parameters) or "f" * (kind.bits // 4)
    )
    assert kind.encode(tick, part) < kind.encode(later, part)  # type: ignore[operator]  # both int, or both str


WRONG_IDS = [
    *(("ticket", text, "is a whole number") for text in ("", "0", "-1", "007", "7 ", "7.0", "٧", "9" * 99)),
    ("instagram", str(2**63), f"from 1 to {LAST}"),
    ("instagram", str(2000 << 10), "shard 2000; there are 2000 shards"),
    ("instagram32", str(2**32), "from 1 to 4294967295"),
    ("flake", "0" * 31, "is 32 hexadecimal digits"),
    ("uuid7", "{017f22e2-79b0-7cc3-98c4-dc0c0c07398f}", "8, 4, 4, 4 and 12"),
    ("uuid7", "017f22e2-79b0-4cc3-98c4-dc0c0c07398f", "version 4; kind uuid7 makes version 7"),
    ("uuid7", "017f22e2-79b0-7cc3-78c4-dc0c0c07398f", "variant"),
    ("uuid7", "ffffffff-ffff-7cc3-98c4-dc0c0c07398f", "after the year 9999"),
    ("ulid", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "the largest is 7ZZZ"),
    ("ulid", "01ARYZ6S4ITSV4RRFFQ69G5FAV", "without I, L, O and U"),
    ("ulid", "01ARYZ6S41TSV4RRFFQ69G5FAſ", "without I, L, O and U"),  # upper() makes an S of it
]


@pytest.mark.parametrize(("name", "id_text", "why"), WRONG_IDS)
def test_text_that_is_no_id_of_the_kind_is_refused_with_the_reason(name: str, id_text: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        KINDS[name].decode(KINDS[name].complete(GIVEN.get(name, {}), reading=True), id_text)


@pytest.mark.parametrize(
    ("name", "complete", "ends_at", "ceiling"),
    [
        ("ticket", {"bits": 64, "start": 1}, None, LAST),
        ("instagram", {"epoch": 1314220021721, "shards": 8192}, 2413731649497, LAST),  # 2046-06-27T17:00:49.497Z
        ("instagram32", {"epoch": NOW, "shards": 4}, NOW + 1000 * 2**25, 2**32 - 1),  # 388 days
        ("snowflake", {"epoch": 1288834974657}, 3487858230209, LAST),  # 2080-07-10
        ("flake", {}, 2**64, None),
        ("objectid", {}, 1000 * 2**32, None),  # 2106-02-07
        ("uuid7", {}, 2**48, None),
        ("ulid", {}, 2**48, None),
        ("simpleflake", {"epoch": 946702800000, "random_bits": 22}, 3145726055552, LAST),  # 2069-09-06
        ("uuid4", {}, None, None),
    ],
)
def test_defaults_and_the_end(name: str, complete: dict[str, int], ends_at: int | None, ceiling: int | None) -> None:
    kind = KINDS[name]
    assert kind.complete({}, NOW) == complete
    assert Definition(name, complete).is_known
    assert not Definition(name, {**complete, "salt": 1}).is_known
    assert (kind.ends_at(complete), kind.ceiling(complete)) == (ends_at, ceiling)
    assert (kind.odds(complete) is None) == (kind.unique == "certainly")
    if "epoch" in complete and ends_at is not None and kind.name != "instagram32":
        kind.check_new(complete, ends_at - LEAST_LIFE_MS)
        with pytest.raises(InvalidRequest, match="less than a year"):
            kind.check_new(complete, ends_at - LEAST_LIFE_MS + 1)


def test_a_parameter_that_cannot_be_is_refused_with_the_reason() -> None:
    rows: list[tuple[str, dict[str, Any], str]] = [
        ("ticket", {"bits": 54}, "bits is 32, 53 or 64"),
        ("instagram", {"shards": True}, "whole number"),
        ("simpleflake", {"random_bits": 24}, "from 1 to 23"),
        ("snowflake", {"epoch": -1}, "from 0 .* milliseconds since 1970: there is no earlier epoch"),
        ("snowflake", {"epoch": NOW + 1}, "lies in the future"),
    ]
    for name, wanted, why in rows:
        with pytest.raises(InvalidRequest, match=why):
            KINDS[name].check_new(KINDS[name].complete(wanted, NOW), NOW)


@pytest.mark.parametrize("name", ["uuid7", "ulid"])
@given(steps=st.lists(st.tuples(st.integers(-(10**7), 10**7), st.sampled_from([1, 2, 500])), max_size=9))
def test_uuid7_and_ulid_rise_whatever_the_clock_does(name: str, steps: list[tuple[int, int]]) -> None:
    now, last = NOW, ""
    take = RANDOM[name].make({}, lambda: now)
    for change, count in steps:
        now += change
        ids = [str(each) for each in take(count)]
        assert [last, *ids] == sorted({last, *ids})
        last = ids[-1]


def test_a_counter_that_is_full_begins_the_next_millisecond_early_and_time_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Short(Ulid):
        counter_bits = 2

    starts, now = iter([2, 1, 0]), 10
    monkeypatch.setattr("app.kinds.chance.secrets.randbits", lambda bits: next(starts))
    take = Short().make({}, lambda: now)

    def pairs(count: int) -> list[tuple[int, int]]:
        return [divmod(number, 4) for number in map(ulid_number, take(count))]

    assert pairs(3) == [(10, 2), (10, 3), (11, 0)]
    assert pairs(1) == [(11, 1)]
    now = 12
    assert pairs(1) == [(12, 1)]
    now = 2**48
    with pytest.raises(Exhausted):
        take(1)


def test_simpleflake_repeats_no_number_within_a_millisecond_and_ends_with_the_largest() -> None:
    kind, now = RANDOM["simpleflake"], NOW
    take = kind.make({"epoch": 0, "random_bits": 8}, lambda: now)
    assert len({*take(64), *take(64)}) == 128
    take = kind.make({"epoch": 1000, "random_bits": 23}, lambda: now)
    now = 1000 + 2**40 - 1
    assert all(int(each) >> 23 == LAST >> 23 for each in take(10))
    now += 1
    with pytest.raises(Exhausted):
        take(1)
    now = 999
    with pytest.raises(ClockAhead):
        take(1)


EXAMPLES: list[tuple[str, str, str | None, dict[str, Any]]] = [
    # the article's: shard 31341 % 2000, counter 5001 % 1024, 1,387,263,000 ms
    ("instagram", "11637205501278089", "2011-09-09T22:28:04.721Z", {"shard": 1341, "counter": 905}),
    ("instagram32", "128000081", "2020-09-25T02:13:20.000Z", {"shard": 2, "counter": 17}),
    ("snowflake", "1541815603606036480", "2022-06-28T16:07:40.105Z", {"datacenter": 11, "worker": 26, "counter": 0}),
    # the README's <<0,0,1,52,212,33,45,67,16,154,221,94,14,143,0,0>>
    ("flake", "00000134d4212d43109add5e0e8f0000", "2012-01-12T22:54:31.235Z", {"worker": "109add5e0e8f", "counter": 0}),
    ("objectid", "507f1f77bcf86cd799439011", "2012-10-17T21:13:27.000Z", {"random": "bcf86cd799", "counter": 4427793}),
    # what the package simpleflake 0.1.5 of 2013 answers, which has no wheel
    ("simpleflake", "3802532518297723456", "2014-05-13T16:53:20.000Z", {"random": 123456}),
    ("simpleflake", f"{2**63 - 1}", "2034-11-04T00:53:47.775Z", {"random": 2**23 - 1}),
    # RFC 9562, appendix A.6
    ("uuid7", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f", "2022-02-22T19:22:22.000Z", {"random": "330d8c4dc0c0c07398f"}),
    ("ulid", "01ARYZ6S41TSV4RRFFQ69G5FAV", "2016-07-30T22:36:16.385Z", {"random": "d6764c61efb99302bd5b"}),
    # RFC 9562, appendix A.3
    ("uuid4", "919108f7-52d1-4320-9bac-f847db4148a8", None, {}),
    ("ticket", "9", None, {"offset": 3}),
]


@pytest.mark.parametrize(("name", "id_text", "time", "parts"), EXAMPLES)
def test_a_published_id_is_read_in_either_case_and_made_again(
    name: str, id_text: str, time: str | None, parts: dict[str, Any]
) -> None:
    kind = KINDS[name]
    parameters = kind.complete(GIVEN.get(name, {}), reading=True)
    said: dict[str, Any] = {"kind": name, "id_str": id_text}
    if time:
        said |= {"time": time, "time_ms": round(datetime.datetime.fromisoformat(time).timestamp() * 1000)}
    found = kind.decode(parameters, id_text)
    assert list(found.items()) == list((said | parts).items())
    assert kind.decode(parameters, id_text.upper()) == kind.decode(parameters, id_text.lower()) == found
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


def test_packages_read_our_ids() -> None:
    ms = NOW + 123
    made = {name: [str(each) for each in RANDOM[name].make({}, lambda: ms)(100)] for name in ("uuid7", "uuid4", "ulid")}
    uuids = [uuid_utils.UUID(each) for each in made["uuid7"]]
    assert {(each.version, each.variant, each.timestamp) for each in uuids} == {(7, uuid.RFC_4122, ms)}
    assert {uuid_utils.UUID(each).version for each in made["uuid4"]} == {4}
    assert {ulid.ULID.from_str(each).milliseconds for each in made["ulid"]} == {ms}
    timed, epoch = {kind.name: kind for kind in TIMED}, 1288834974657
    twitters, mongos = timed["snowflake"], timed["objectid"]
    read = snowflake.Snowflake.parse(twitters.encode(twitters.tick_at({"epoch": epoch}, ms) + 4095, 378), epoch)
    assert read == snowflake.Snowflake(ms - epoch, 378, epoch, 4095)
    written = bson.ObjectId(str(mongos.encode(mongos.tick_at({}, ms), 7))).generation_time
    assert written.timestamp() == ms // 1000
