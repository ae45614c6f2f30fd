"""Reading ids: what cannot be one is refused with the reason; whatever is made reads back."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.common.errors import InvalidRequest, SequenceExhausted
from app.kinds.kind import TimedKind
from app.kinds.notation import LATEST_MS, time_text
from app.kinds.table import KINDS, decoded, kind_named

TIMED = [kind for kind in KINDS.values() if isinstance(kind, TimedKind)]
WIDEST: dict[str, dict[str, int]] = {"ticket": {"increment": 2}, "instagram32": {"epoch": 0}}


def refused(name: str, id_text: str, parameters: dict[str, int] | None = None) -> str:
    """The reason for which an id is refused."""
    kind = KINDS[name]
    with pytest.raises(InvalidRequest) as caught:
        kind.decode(kind.for_decoding(WIDEST.get(name, {}) | (parameters or {})), id_text)
    return str(caught.value)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.bits <= 64])
@pytest.mark.parametrize(
    "id_text",
    ["", "0", "-1", "+1", "007", " 7", "7 ", "7\n", "7.0", "0x7", "1e3", "1_000", "٧", "seven", "9" * 21, "9" * 100_000]
    + [str(2**63), str(2**64)],
)
def test_a_number_has_one_form_and_an_end(name: str, id_text: str) -> None:
    assert "is a whole number from 1 to" in refused(name, id_text)


def test_the_last_number_of_each_kind() -> None:
    assert "from 1 to 4294967295" in refused("instagram32", str(2**32))
    assert "from 1 to 9007199254740991" in refused("ticket", str(2**53), {"bits": 53})
    assert "from 1 to 4294967295" in refused("ticket", str(2**32), {"bits": 32})
    assert f"from 1 to {2**51 - 1}" in refused("simpleflake", str(2**51), {"random_bits": 10})


def test_a_shard_that_the_sequence_does_not_have_is_refused() -> None:
    kind = KINDS["instagram"]
    parameters = {"epoch": 0, "shards": 1001}
    assert kind.decode(parameters | {"shards": 1002}, "2217813737473025833")["shard"] == 1001
    assert "shard 1001; there are 1001 shards" in refused("instagram", "2217813737473025833", parameters)


@pytest.mark.parametrize(("name", "digits"), [("flake", 32), ("objectid", 24)])
def test_hexadecimal_ids_have_their_length(name: str, digits: int) -> None:
    for id_text in ("", "0" * (digits - 1), "0" * (digits + 1), "g" * digits, "0x" + "0" * (digits - 2), "٠" * digits):
        assert f"is {digits} hexadecimal digits" in refused(name, id_text)


@pytest.mark.parametrize(
    ("name", "id_text", "why"),
    [
        ("uuid7", "017f22e279b07cc398c4dc0c0c07398f", "8, 4, 4, 4 and 12"),
        ("uuid7", "{017f22e2-79b0-7cc3-98c4-dc0c0c07398f}", "8, 4, 4, 4 and 12"),
        ("uuid7", "urn:uuid:017f22e2-79b0-7cc3-98c4-dc0c0c07398f", "8, 4, 4, 4 and 12"),
        ("uuid7", "017f22e2-79b0-4cc3-98c4-dc0c0c07398f", "version 4; kind uuid7 makes version 7"),
        ("uuid4", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f", "version 7; kind uuid4 makes version 4"),
        ("uuid7", "017f22e2-79b0-7cc3-78c4-dc0c0c07398f", "variant"),
        ("uuid7", "017f22e2-79b0-7cc3-c8c4-dc0c0c07398f", "variant"),
        ("uuid4", "00000000-0000-0000-0000-000000000000", "variant"),
        ("uuid7", "ffffffff-ffff-7cc3-98c4-dc0c0c07398f", "later than the year 9999"),
        ("ulid", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "later than the year 9999"),
        ("ulid", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "the largest is 7ZZZ"),
        ("ulid", "80000000000000000000000000", "the largest is 7ZZZ"),
        ("ulid", "01ARYZ6S41TSV4RRFFQ69G5FAU", "without I, L, O and U"),
        ("ulid", "01ARYZ6S4ITSV4RRFFQ69G5FAV", "without I, L, O and U"),
        ("ulid", "01ARYZ6S41TSV4RRFFQ69G5FA", "26 letters"),
        ("ulid", "01ARYZ6S41TSV4RRFFQ69G5FAVV", "26 letters"),
        ("ulid", "01ARYZ6S41TSV4RRFFQ69G5FAſ", "26 letters"),  # upper() makes an S of it
        ("flake", "ffffffffffffffff0000000000000000", "later than the year 9999"),
    ],
)
def test_what_is_no_id_of_the_kind(name: str, id_text: str, why: str) -> None:
    assert why in refused(name, id_text)


def test_a_refusal_does_not_repeat_the_id() -> None:
    for name in KINDS:
        assert "<script>" not in refused(name, "<script>")


def test_times_have_three_digits_and_end_with_the_year_9999() -> None:
    assert time_text(0) == "1970-01-01T00:00:00.000Z"
    assert time_text(1578604021721) == "2020-01-09T21:07:01.721Z"
    assert time_text(1578604021007) == "2020-01-09T21:07:01.007Z"
    assert time_text(LATEST_MS) == "9999-12-31T23:59:59.999Z"
    for ms in (-1, LATEST_MS + 1, 2**64):
        with pytest.raises(InvalidRequest):
            time_text(ms)


def test_the_answer_names_the_sequence_first() -> None:
    kind = kind_named("ticket")
    assert list(decoded("photos", kind, {"increment": 2}, "7")) == ["sequence", "kind", "id_str", "offset"]
    assert decoded(None, kind, {"increment": 2}, "7")["sequence"] is None


# --- whatever is made reads back -----------------------------------------------------------------------------------


def part_said(said: dict[str, Any]) -> int:
    """The part that a decoded id names, whatever it calls it."""
    if "shard" in said:
        return int(said["shard"])
    if "datacenter" in said:
        return int(said["datacenter"] * 32 + said["worker"])
    return int(said.get("worker") or said["random"], 16)


@pytest.mark.parametrize("kind", TIMED, ids=lambda kind: kind.name)
@given(data=st.data())
def test_an_id_reads_back(kind: TimedKind, data: st.DataObject) -> None:
    parameters = kind.for_decoding({"epoch": data.draw(st.integers(0, 10**13))} if "epoch" in kind.parameters else {})
    tick = data.draw(st.integers(1, min(kind.last_tick(parameters), kind.tick_at(parameters, LATEST_MS))))
    part = data.draw(st.integers(0, (1 << kind.part_bits) - 1))
    made = kind.encode(parameters, tick, part)
    said = kind.decode(parameters, str(made))
    assert said["id_str"] == str(made)
    assert said["time_ms"] == kind.time_of(parameters, tick)
    assert said["counter"] == tick % (1 << kind.counter_bits)
    assert part_said(said) == part
    assert kind.tick_at(parameters, said["time_ms"]) + said["counter"] == tick
    ceiling = kind.ceiling(parameters)
    if ceiling is None:
        assert isinstance(made, str)
        assert len(made) == kind.bits // 4
    else:
        assert isinstance(made, int)
        assert 0 < made <= ceiling


@pytest.mark.parametrize("kind", TIMED, ids=lambda kind: kind.name)
@given(data=st.data())
def test_no_two_ticks_and_parts_make_one_id_and_a_part_s_ids_rise_with_the_ticks(
    kind: TimedKind, data: st.DataObject
) -> None:
    parameters = kind.for_decoding({"epoch": 0} if "epoch" in kind.parameters else {})
    last = kind.last_tick(parameters)
    ticks = data.draw(st.lists(st.integers(0, last), min_size=2, max_size=2, unique=True).map(sorted))
    part, other = data.draw(
        st.lists(st.integers(0, (1 << kind.part_bits) - 1), min_size=2, max_size=2, unique=True)
    )
    # strings of one length are ordered as their numbers are
    low, high = (kind.encode(parameters, tick, part) for tick in ticks)
    assert low < high  # type: ignore[operator]
    assert len({kind.encode(parameters, tick, shard) for tick in ticks for shard in (part, other)}) == 4


@pytest.mark.parametrize("kind", TIMED, ids=lambda kind: kind.name)
def test_the_last_tick_makes_the_last_id_and_the_next_none(kind: TimedKind) -> None:
    parameters = kind.for_decoding(WIDEST.get(kind.name, {}))
    last, part = kind.last_tick(parameters), (1 << kind.part_bits) - 1
    made = kind.encode(parameters, last, part)
    ceiling = kind.ceiling(parameters)
    assert made == ("f" * (kind.bits // 4) if ceiling is None else ceiling)
    assert kind.time_of(parameters, last) + kind.unit_ms == kind.ends_at(parameters)
    with pytest.raises(SequenceExhausted):
        kind.encode(parameters, last + 1, 0)


@pytest.mark.parametrize("kind", TIMED, ids=lambda kind: kind.name)
def test_what_would_run_into_its_neighbour_s_bits_is_no_id(kind: TimedKind) -> None:
    parameters = kind.for_decoding(WIDEST.get(kind.name, {}))
    for tick, part in ((-1, 0), (1, -1), (1, 1 << kind.part_bits)):
        with pytest.raises(ValueError, match="no id of kind"):
            kind.encode(parameters, tick, part)


@pytest.mark.parametrize("kind", TIMED, ids=lambda kind: kind.name)
def test_a_moment_begins_with_counter_zero_and_lies_below_zero_before_the_epoch(kind: TimedKind) -> None:
    parameters = kind.for_decoding({"epoch": 5000} if "epoch" in kind.parameters else {})
    since = parameters.get("epoch", 0)
    assert kind.tick_at(parameters, since) == 0
    assert kind.tick_at(parameters, since + kind.unit_ms - 1) == 0
    assert kind.tick_at(parameters, since + kind.unit_ms) == 1 << kind.counter_bits
    assert kind.tick_at(parameters, since - 1) < 0


@pytest.mark.parametrize("name", KINDS)
@given(id_text=st.one_of(st.text(max_size=40), st.from_regex(r"[0-9a-fA-F]{20,40}"), st.integers().map(str)))
def test_any_text_reads_or_is_refused(name: str, id_text: str) -> None:
    kind = KINDS[name]
    with contextlib.suppress(InvalidRequest):
        said = kind.decode(kind.for_decoding(WIDEST.get(name, {})), id_text)
        assert said["id_str"].lower() == id_text.lower()
