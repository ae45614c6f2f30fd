"""Worked examples: ids whose parts are published, or come from the package that is named, read and made again."""

from typing import Any

import pytest

from app.kinds.kind import TimedKind
from app.kinds.table import KINDS

INSTAGRAM_EPOCH = 1314220021721
EXAMPLES: list[tuple[str, dict[str, int], str, dict[str, Any]]] = [
    # the article's: shard 31341 % 2000, counter 5001 % 1024, 1,387,263,000 ms
    (
        "instagram",
        {},
        "11637205501278089",
        {"time": "2011-09-09T22:28:04.721Z", "time_ms": INSTAGRAM_EPOCH + 1_387_263_000, "shard": 1341, "counter": 905},
    ),
    (
        "instagram",
        {},
        "2217813737473025833",
        {"time": "2020-01-09T21:07:01.721Z", "time_ms": 1578604021721, "shard": 1001, "counter": 809},
    ),
    (
        "instagram32",
        {"epoch": 1_600_000_000_000},
        "128000081",
        {"time": "2020-09-25T02:13:20.000Z", "time_ms": 1_601_000_000_000, "shard": 2, "counter": 17},
    ),
    (
        "snowflake",
        {},
        "1541815603606036480",
        {"time": "2022-06-28T16:07:40.105Z", "time_ms": 1656432460105, "datacenter": 11, "worker": 26, "counter": 0},
    ),
    # the README's <<0,0,1,52,212,33,45,67,16,154,221,94,14,143,0,0>>
    (
        "flake",
        {},
        "00000134d4212d43109add5e0e8f0000",
        {"time": "2012-01-12T22:54:31.235Z", "time_ms": 1326408871235, "worker": "109add5e0e8f", "counter": 0},
    ),
    (
        "objectid",
        {},
        "507f1f77bcf86cd799439011",
        {"time": "2012-10-17T21:13:27.000Z", "time_ms": 1350508407000, "random": "bcf86cd799", "counter": 4427793},
    ),
    (
        "simpleflake",
        {"random_bits": 23},
        "3802532518297723456",
        {"time": "2014-05-13T16:53:20.000Z", "time_ms": 1_400_000_000_000, "random": 123456},
    ),
    (
        "simpleflake",
        {"random_bits": 23, "epoch": 946684800000},
        "3802683513241723456",
        {"time": "2014-05-13T16:53:20.000Z", "time_ms": 1_400_000_000_000, "random": 123456},
    ),
    # RFC 9562, appendix A.6
    (
        "uuid7",
        {},
        "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
        {
            "time": "2022-02-22T19:22:22.000Z",
            "time_ms": 1645557742000,
            "random": f"{0xCC3 << 62 | 0x18C4DC0C0C07398F:019x}",
        },
    ),
    (
        "ulid",
        {},
        "01ARYZ6S41TSV4RRFFQ69G5FAV",
        {"time": "2016-07-30T22:36:16.385Z", "time_ms": 1469918176385, "random": "d6764c61efb99302bd5b"},
    ),
    # RFC 9562, appendix A.3
    ("uuid4", {}, "919108f7-52d1-4320-9bac-f847db4148a8", {}),
    ("ticket", {"increment": 2}, "7", {"offset": 1}),
    ("ticket", {"increment": 2}, "8", {"offset": 2}),
    ("ticket", {"increment": 3}, "9", {"offset": 3}),
]


@pytest.mark.parametrize(("name", "given", "id_text", "said"), EXAMPLES)
def test_it_reads(name: str, given: dict[str, int], id_text: str, said: dict[str, Any]) -> None:
    kind = KINDS[name]
    found = kind.decode(kind.for_decoding(given), id_text)
    assert found == {"kind": name, "id_str": id_text} | said
    assert list(found) == ["kind", "id_str", *said]


@pytest.mark.parametrize(
    ("example", "part", "counter"),
    [
        (0, 31341 % 2000, 5001 % 1024),
        (1, 1001, 809),
        (2, 2, 17),
        (3, 378, 0),
        (4, 0x109ADD5E0E8F, 0),
        (5, 0xBCF86CD799, 4427793),
    ],
)
def test_it_is_made(example: int, part: int, counter: int) -> None:
    name, given, id_text, said = EXAMPLES[example]
    kind = KINDS[name]
    assert isinstance(kind, TimedKind)
    parameters = kind.for_decoding(given)
    tick = kind.tick_at(parameters, said["time_ms"]) + counter
    assert str(kind.encode(parameters, tick, part)) == id_text


@pytest.mark.parametrize("name", ["flake", "objectid", "uuid7", "uuid4", "ulid"])
def test_either_case_is_read_and_the_canonical_one_given_back(name: str) -> None:
    kind = KINDS[name]
    (id_text,) = [id_text for example, _, id_text, _ in EXAMPLES if example == name]
    assert kind.decode({}, id_text.upper()) == kind.decode({}, id_text.lower()) == kind.decode({}, id_text)
