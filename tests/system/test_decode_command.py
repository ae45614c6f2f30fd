"""`ticketd decode`, as somebody would type it."""

import json
from typing import Any

import pytest

from tests.harness.commands import forked_ticketd, ticketd
from tests.harness.kinds import KINDS

pytestmark = pytest.mark.any_engine


def test_it_prints_the_answer_on_one_line() -> None:
    ran = ticketd("decode", "--kind", "instagram", "--epoch", "0", "2217813737473025833")
    assert (ran.status, ran.errors) == (0, "")
    assert len(ran.lines) == 1
    assert json.loads(ran.output) == {
        "sequence": None,
        "kind": "instagram",
        "id_str": "2217813737473025833",
        "time": "1978-05-19T00:00:00.000Z",
        "time_ms": 264384000000,
        "shard": 1001,
        "counter": 809,
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("--kind", "instagram32", "--epoch", "1600000000000", "128000081"),
        ("--kind", "simpleflake", "--random-bits", "23", "3802532518297723456"),
        ("--kind", "ticket", "--increment", "2", "7"),
        ("--kind", "uuid4", "919108f7-52d1-4320-9bac-f847db4148a8"),
        ("--kind", "ulid", "01ARYZ6S41TSV4RRFFQ69G5FAV"),
    ],
)
def test_every_kind_s_parameters_have_a_flag(arguments: tuple[str, ...]) -> None:
    ran = forked_ticketd("decode", *arguments)
    assert (ran.status, ran.errors) == (0, "")
    said = json.loads(ran.output)
    assert (said["sequence"], said["kind"], said["id_str"]) == (None, arguments[1], arguments[-1])


def readings(*arguments: str) -> list[dict[str, Any]]:
    """The lines that decode without --kind prints, which are there."""
    ran = forked_ticketd("decode", *arguments)
    assert (ran.status, ran.errors) == (0, "")
    return [json.loads(line) for line in ran.lines]


FITTING: dict[str, dict[str, str | None]] = {
    "1541815603606036480": {
        "ticket": None,
        "instagram": "2017-06-21T04:19:24.445Z",
        "snowflake": "2022-06-28T16:07:40.105Z",
        "simpleflake": "2011-08-25T19:24:45.448Z",
    },
    "7": {
        "ticket": None,
        "instagram": "2011-08-24T21:07:01.721Z",
        "instagram32": None,
        "snowflake": "2010-11-04T01:42:54.657Z",
        "simpleflake": "2000-01-01T05:00:00.000Z",
    },
    "919108f7-52d1-4320-9bac-f847db4148a8": {"uuid4": None},
    "017f22e2-79b0-7cc3-98c4-dc0c0c07398f": {"uuid7": "2022-02-22T19:22:22.000Z"},
    "01ARYZ6S41TSV4RRFFQ69G5FAV": {"ulid": "2016-07-30T22:36:16.385Z"},
    "507f1f77bcf86cd799439011": {"objectid": "2012-10-17T21:13:27.000Z"},
    "00000192aabbccdd0000000000010000": {"flake": "2024-10-20T16:21:27.389Z"},
}
"""Ids, each with the kinds that it can be of and the time that it means there."""


@pytest.mark.parametrize("id_text", FITTING)
def test_without_a_kind_it_names_every_kind_that_fits_and_its_time(id_text: str) -> None:
    assert {each["kind"]: each.get("time") for each in readings(id_text)} == FITTING[id_text]


def test_every_kind_is_tried_here() -> None:
    assert {kind for times in FITTING.values() for kind in times} == {*KINDS}


def test_each_line_is_what_the_kind_alone_prints() -> None:
    for said in readings("2217813737473025833", "--epoch", "0"):
        ran = forked_ticketd("decode", "--kind", said["kind"], "--epoch", "0", said["id_str"])
        assert json.loads(ran.output) == said


def test_a_kind_that_needs_a_parameter_names_it_and_says_the_rest() -> None:
    by_kind = {each["kind"]: each for each in readings("128000081")}
    assert by_kind["ticket"] == {"sequence": None, "kind": "ticket", "id_str": "128000081", "needs": ["increment"]}
    assert by_kind["instagram32"] == {
        "sequence": None,
        "kind": "instagram32",
        "id_str": "128000081",
        "shard": 2,
        "counter": 17,
        "needs": ["epoch"],
    }


def test_a_parameter_leaves_only_the_kinds_that_take_it() -> None:
    assert {each["kind"] for each in readings("7", "--increment", "2")} == {"ticket"}
    assert {each["kind"] for each in readings("7", "--shards", "4")} == {"instagram", "instagram32"}


@pytest.mark.parametrize("arguments", [("x",), ("0",), ("--shards", "9000", "7"), ("--epoch", "0", "7" * 19 + "0")])
def test_an_id_that_no_kind_has_is_one_line_and_status_2(arguments: tuple[str, ...]) -> None:
    ran = forked_ticketd("decode", *arguments)
    assert (ran.status, ran.output) == (2, "")
    assert ran.errors.startswith("ticketd: no kind has such an id")
    assert len(ran.errors.splitlines()) == 1


def test_an_id_from_the_future_is_read() -> None:
    ran = forked_ticketd("decode", "--kind", "uuid7", "e0000000-0000-7000-8000-000000000000")
    assert (ran.status, json.loads(ran.output)["time"][:4]) == (0, "9774")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--kind", "instagram", "0"), "from 1 to 9223372036854775807"),
        (("--kind", "instagram", "--shards", "1000", "2217813737473025833"), "there are 1000 shards"),
        (("--kind", "instagram", "--shards", "9000", "7"), "shards is a whole number from 1 to 8192"),
        (("--kind", "ulid", "--epoch", "0", "01ARYZ6S41TSV4RRFFQ69G5FAV"), "epoch is no parameter of kind ulid"),
        (("--kind", "ticket", "7"), "increment has no default here"),
        (("--kind", "sonyflake", "7"), "there is no such kind of sequence; there are ticket, instagram"),
        (("--kind", "ulid", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ"), "the largest is 7ZZZ"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_status_2(arguments: tuple[str, ...], why: str) -> None:
    ran = forked_ticketd("decode", *arguments)
    assert (ran.status, ran.output) == (2, "")
    assert ran.errors.startswith("ticketd: ")
    assert why in ran.errors
    assert len(ran.errors.splitlines()) == 1


@pytest.mark.parametrize("command", ["decode", "sql"])
def test_help_has_examples(command: str) -> None:
    ran = ticketd(command, "--help")
    assert (ran.status, ran.errors) == (0, "")
    assert f"examples:\n  ticketd {command} " in ran.output
