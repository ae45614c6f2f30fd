"""Parameters: what may be given, what is filled in, when a kind ends, and how a definition is kept."""

from typing import Any

import pytest

from app.common.errors import InvalidRequest
from app.kinds.definition import Definition
from app.kinds.kind import LEAST_LIFE_MS, Kind, TimedKind
from app.kinds.table import DECODE_PARAMETERS, KINDS, kind_named

NOW = 1_795_000_000_000  # 2026-11-18
LAST = 2**63 - 1


@pytest.mark.parametrize(
    ("name", "complete"),
    [
        ("ticket", {"bits": 64, "start": 1}),
        ("instagram", {"epoch": 1314220021721, "shards": 8192}),
        ("instagram32", {"epoch": NOW, "shards": 4}),
        ("snowflake", {"epoch": 1288834974657}),
        ("flake", {}),
        ("objectid", {}),
        ("uuid7", {}),
        ("ulid", {}),
        ("simpleflake", {"epoch": 946702800000, "random_bits": 22}),
        ("uuid4", {}),
    ],
)
def test_defaults(name: str, complete: dict[str, int]) -> None:
    assert KINDS[name].complete({}, NOW) == complete
    assert KINDS[name].holds(complete)
    assert list(KINDS) == [kind.name for kind in KINDS.values()]


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("instagram", {"bits": 64}, "bits is no parameter of kind instagram, which takes epoch, shards alone"),
        ("uuid4", {"epoch": 0}, "epoch is no parameter of kind uuid4, which has no parameters"),
        ("snowflake", {"shards": 4}, "shards is no parameter"),
        ("ticket", {"increment": 2}, "increment is no parameter"),
        ("ticket", {"bits": 31}, "bits is a whole number from 32 to 64"),
        ("ticket", {"bits": 54}, "bits is 32, 53 or 64"),
        ("ticket", {"start": 0}, "start is a whole number from 1"),
        ("instagram", {"shards": 0}, "shards is a whole number from 1 to 8192"),
        ("instagram", {"shards": 8193}, "from 1 to 8192"),
        ("instagram32", {"shards": 5}, "from 1 to 4"),
        ("simpleflake", {"random_bits": 0}, "from 1 to 23"),
        ("simpleflake", {"random_bits": 24}, "from 1 to 23"),
        ("instagram", {"shards": True}, "whole number"),
        ("instagram", {"shards": 5.0}, "whole number"),
        ("instagram", {"shards": "5"}, "whole number"),
        ("instagram", {"shards": None}, "whole number"),
        ("snowflake", {"epoch": -1}, "from 0 .* milliseconds since 1970: there is no earlier epoch"),
        ("snowflake", {"epoch": 10**18}, "milliseconds since 1970"),
        ("snowflake", {"epoch": NOW + 1}, "the epoch lies in the future"),
        ("instagram", {"epoch": 0}, "less than a year: ids of kind instagram would end at 2004-11-03T19:53:47.776Z"),
        ("instagram32", {"epoch": NOW - 24 * 86_400_000}, "less than a year"),
    ],
)
def test_what_cannot_be_is_refused_and_the_reason_given(name: str, given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        KINDS[name].complete(given, NOW)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if "epoch" in kind.parameters])
def test_an_epoch_has_to_leave_a_year(name: str) -> None:
    kind = KINDS[name]
    ends_at = kind.ends_at(kind.complete({}, NOW))
    assert ends_at is not None
    life = ends_at - kind.complete({}, NOW)["epoch"]
    kind.complete({"epoch": NOW - life + LEAST_LIFE_MS}, NOW)
    with pytest.raises(InvalidRequest, match="less than a year"):
        kind.complete({"epoch": NOW - life + LEAST_LIFE_MS - 1}, NOW)


@pytest.mark.parametrize(
    ("name", "given", "ends_at", "ceiling"),
    [
        ("ticket", {}, None, LAST),
        ("ticket", {"bits": 53}, None, 2**53 - 1),
        ("ticket", {"bits": 32}, None, 2**32 - 1),
        ("instagram", {}, 2413731649497, LAST),  # 2046-06-27T17:00:49.497Z
        ("instagram32", {"epoch": 0}, 1000 * 2**25, 2**32 - 1),  # 388.4 days
        ("snowflake", {}, 3487858230209, LAST),  # 2080-07-10
        ("flake", {}, 2**64, None),
        ("objectid", {}, 1000 * 2**32, None),  # 2106-02-07T06:28:16Z
        ("uuid7", {}, 2**48, None),
        ("ulid", {}, 2**48, None),
        ("simpleflake", {}, 3145726055552, LAST),  # 2069-09-06
        ("simpleflake", {"random_bits": 23}, 2046214427776, LAST),  # 2034-11-04: the original's bit 63
        ("simpleflake", {"random_bits": 10}, 3145726055552, 2**51 - 1),
        ("uuid4", {}, None, None),
    ],
)
def test_the_end(name: str, given: dict[str, int], ends_at: int | None, ceiling: int | None) -> None:
    kind = KINDS[name]
    parameters = kind.for_decoding({"increment": 2} | given if name == "ticket" else given)
    assert kind.ends_at(parameters) == ends_at
    assert kind.ceiling(parameters) == ceiling


def test_for_decoding_the_widest_is_taken_and_no_time_is_looked_at() -> None:
    assert KINDS["instagram"].for_decoding({"epoch": 0}) == {"epoch": 0, "shards": 8192}
    assert KINDS["instagram"].for_decoding({"epoch": 4_000_000_000_000})["epoch"] == 4_000_000_000_000
    assert set(DECODE_PARAMETERS) == {"bits", "increment", "epoch", "shards", "random_bits"}


@pytest.mark.parametrize(("name", "missing"), [("instagram32", "epoch"), ("ticket", "increment")])
def test_for_decoding_what_has_no_default_has_to_be_given(name: str, missing: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{missing} has no default here"):
        KINDS[name].for_decoding({})


def test_an_unknown_kind_is_answered_with_all_there_are() -> None:
    with pytest.raises(InvalidRequest, match="ticket, instagram, instagram32, snowflake, flake, objectid, uuid7, ulid"):
        kind_named("sonyflake")
    assert kind_named("ulid") is KINDS["ulid"]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_each_kind_says_what_it_promises(kind: Kind) -> None:
    parameters = kind.complete({}, NOW)
    assert (kind.odds(parameters) is None) == (kind.unique == "certainly")
    assert kind.ordered == (kind.name not in ("simpleflake", "uuid4"))
    assert isinstance(kind, TimedKind) <= (kind.unique == "certainly")


def test_the_odds_of_simpleflake_are_those_of_its_bits() -> None:
    odds = KINDS["simpleflake"].odds
    assert "10 pairs a day are equal, and at 10,000 a second 1,030" in str(odds({"epoch": 0, "random_bits": 22}))
    assert "5 pairs a day are equal, and at 10,000 a second 515" in str(odds({"epoch": 0, "random_bits": 23}))


# --- definitions ---------------------------------------------------------------------------------------------------


def test_a_definition_is_kept_as_canonical_text() -> None:
    made = Definition("likes", "instagram", {"shards": 2000, "epoch": 1314220021721})
    assert made.text() == '{"epoch":1314220021721,"shards":2000}'
    assert Definition.from_text("likes", "instagram", made.text()) == made
    assert Definition("ids", "uuid4", {}).text() == "{}"
    assert hash(made) == hash(Definition("likes", "instagram", {}))
    assert made != Definition("likes", "instagram", {"shards": 2000, "epoch": 0})


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"epoch":true}', '{"epoch":"7"}', '{"epoch":1.0}', "{" * 100_000, "[" * 100_000]
)
def test_what_cannot_be_read_is_a_definition_that_its_kind_does_not_hold(text: str) -> None:
    read = Definition.from_text("likes", "instagram", text)
    assert (read.sequence, read.kind, dict(read.parameters)) == ("likes", "instagram", {})
    assert not KINDS["instagram"].holds(read.parameters)


@pytest.mark.parametrize(
    "parameters", [{"epoch": 0}, {"epoch": 0, "shards": 9000}, {"epoch": 0, "shards": 1, "salt": 1}]
)
def test_a_kind_holds_its_own_parameters_alone(parameters: dict[str, int]) -> None:
    assert not KINDS["instagram"].holds(parameters)
    assert KINDS["instagram"].holds({"epoch": 0, "shards": 1})


# --- shards --------------------------------------------------------------------------------------------------------


def test_a_key_or_a_number_names_the_shard() -> None:
    shard_of = KINDS["instagram"].shard_of
    parameters = {"epoch": 0, "shards": 2000}
    assert shard_of(parameters, None, None) == 0
    assert shard_of(parameters, 31341, None) == 1341
    assert shard_of(parameters, 0, None) == 0
    assert shard_of(parameters, LAST, None) == LAST % 2000
    assert shard_of(parameters, None, 1999) == 1999


@pytest.mark.parametrize(
    ("key", "shard", "why"),
    [
        (1, 1, "not by both"),
        (-1, None, f"from 0 to {LAST}"),
        (LAST + 1, None, f"from 0 to {LAST}"),
        (None, -1, "from 0 to 1999"),
        (None, 2000, "from 0 to 1999"),
    ],
)
def test_a_shard_that_is_none_is_refused(key: int | None, shard: int | None, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        KINDS["instagram"].shard_of({"epoch": 0, "shards": 2000}, key, shard)


@pytest.mark.parametrize("name", [name for name in KINDS if not name.startswith("instagram")])
def test_other_kinds_have_no_shards(name: str) -> None:
    assert KINDS[name].shard_of({}, None, None) == 0
    for key, shard in ((0, None), (None, 0)):
        with pytest.raises(InvalidRequest, match="has no shards"):
            KINDS[name].shard_of({}, key, shard)
