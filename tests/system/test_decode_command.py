"""`ticketd decode`, as somebody would type it."""

import json

import pytest

from tests.harness.commands import forked_ticketd, ticketd

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
