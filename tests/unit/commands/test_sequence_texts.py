"""How sequences are written for a terminal, whatever a server of another release says of them."""

from typing import Any

import pytest

from app.commands.remote import RemoteServer
from app.commands.sequence_texts import of_list, of_sequence
from app.commands.server_connection import RequestFailed, ServerConnection


def on(name: str, last: object, headroom: object) -> dict[str, Any]:
    """What is said of a sequence on one database."""
    return {"name": name, "offset": 1, "status": "up", "last": last, "headroom": headroom}


PHOTOS: dict[str, Any] = {
    "sequence": "photos",
    "kind": "ticket",
    "bits": 64,
    "ceiling": 2**63 - 1,
    "ceiling_str": str(2**63 - 1),
    "exhausted": False,
    "databases": [on("db1:3306", 7, 2**62), on("db2:3306", 10, 2**62)],
}


def test_a_line_for_each_sequence() -> None:
    likes = {"sequence": "likes", "kind": "instagram", "bits": 64, "databases": [on("db1:3306", 7, 5)]}
    old = {"sequence": "old", "kind": "ticket", "bits": 32, "exhausted": True, "databases": [on("a", None, 0)]}
    warnings: list[dict[str, Any]] = [
        {"sequence": "photos", "database": "db1:3306", "reason": "its keys deadlock"},
        {"sequence": "photos", "database": None, "reason": "columns differ"},
        {"sequence": None, "database": "db1:3306", "reason": "about the database"},
    ]
    assert of_list([likes, old, PHOTOS], warnings) == [
        "SEQUENCE  KIND       BITS  LAST             HEADROOM  WARNINGS",
        "likes     instagram    64     -                    -  -",
        "old       ticket       32     -                    0  exhausted",
        "photos    ticket       64    10  9223372036854775808  db1:3306: its keys deadlock; columns differ",
    ]


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"sequence": 7, "kind": None, "bits": "many", "databases": "none", "exhausted": "perhaps"},
        {"sequence": "a", "kind": "ticket", "databases": [3, {}, {"last": "x", "headroom": None}]},
        {"sequence": "a b\n\x1b[2J", "kind": "one of\tlater", "bits": [64], "new": {"a": 1}},
    ],
)
def test_what_is_missing_or_unknown_is_written_all_the_same(found: dict[str, Any]) -> None:
    (_, row) = of_list([found], [{}, {"sequence": "a", "reason": 7}])
    assert len(row.split()) >= 6
    for line in [row, *of_sequence(found, [{"sequence": "a"}])]:
        assert line.isprintable()


def test_one_sequence_with_what_a_later_release_says() -> None:
    lines = of_sequence(PHOTOS | {"colour": "blue", "reserve_seconds": None}, [])
    assert [line.split() for line in lines if line] == [
        ["kind", "ticket"],
        ["bits", "64"],
        ["ceiling", str(2**63 - 1)],
        ["exhausted", "no"],
        ["colour", "blue"],
        ["reserve", "seconds", "-"],
        ["DATABASE", "OFFSET", "STATUS", "LAST", "HEADROOM"],
        ["db1:3306", "1", "up", "7", str(2**62)],
        ["db2:3306", "1", "up", "10", str(2**62)],
    ]


class Pages(ServerConnection):
    """A server that answers with these pages, in their order."""

    def __init__(self, *pages: dict[str, Any]) -> None:
        super().__init__("http://127.0.0.1:1", None)
        self.asked: list[str] = []
        self._pages = list(pages)

    def ask(self, method: str, path: str, *_: Any, **__: Any) -> tuple[int, dict[str, Any]]:
        self.asked.append(f"{method} {path}")
        return 200, self._pages.pop(0)


def test_pages_are_one_list() -> None:
    server = Pages({"sequences": [1, 2], "next": "b", "total": 3}, {"sequences": [3], "next": None, "total": 3})
    assert RemoteServer(server).matching("é&") == {"sequences": [1, 2, 3], "next": None, "total": 3}
    assert server.asked == ["GET /sequence?search=%C3%A9%26", "GET /sequence?search=%C3%A9%26&after=b"]


@pytest.mark.parametrize("page", [{}, {"sequences": 3}, {"sequences": [], "next": 7}, {"sequences": [], "next": ""}])
def test_pages_that_lead_nowhere_end(page: dict[str, Any]) -> None:
    with pytest.raises(RequestFailed, match="a list of sequences"):
        RemoteServer(Pages(page)).matching("")


def test_a_page_that_leads_back_ends() -> None:
    with pytest.raises(RequestFailed, match="a list of sequences"):
        RemoteServer(Pages({"sequences": [], "next": "b"}, {"sequences": [], "next": "b"})).matching("")
