"""Which other servers are live, as one server sees their heartbeats."""

import math

import pytest

from app.databases.session import Note
from app.tickets.heartbeats import UNREADABLE, Heartbeats, Said, Use

SAID = Said(6.0, {1: Use("A", "life", "d1:3306")}, 2, 7)
NEWER, GROW = Said(6.0, {}, 2, 8), Said(6.0, grow=True)
Z = "z:8000"


def row(high: int, word: str = "other", said: Said = SAID) -> Note:
    return Note(high, tenure=word, text=said.dump())


DAMAGED = Note(3, tenure="other", text="?")


@pytest.mark.parametrize("text", ["", "{}", "[]", SAID.dump()[:-9], SAID.dump().replace("6.0", "-1")])
def test_a_damaged_text_says_nothing(text: str) -> None:
    assert Said.load(text) is UNREADABLE


def test_the_text_of_many_databases_fits_into_a_row() -> None:
    lives = {offset: Use("0123456789abcdef", "0123456789abcdef", "a" * 200 + ":3306") for offset in range(1, 40)}
    text = Said(6.0, lives).dump()
    assert len(text) <= 4000
    said = Said.load(text)
    assert said.lives[39] == Use("0123456789abcdef", "0123456789abcdef", "")


@pytest.mark.parametrize(
    ("pages", "now", "live"),
    [
        ([("L", {Z: row(1)}, 0), ("L", {Z: row(2)}, 4), ("L", {Z: row(2)}, 9.9)], 9.9, [(Z, True)]),
        ([("L", {Z: row(1)}, 0), ("L", {Z: row(2)}, 4), ("L", {Z: row(2)}, 9.9)], 10, []),
        ([("L", {Z: row(1, "first")}, 0), ("L", {Z: row(1, "first")}, 0)], 0, [(Z, False)]),
        ([("L", {Z: row(1, "first")}, 0), ("L", {Z: row(7, "second")}, 0)], 0, [(Z, False)]),
        ([("L", {Z: row(7, "second")}, 0), ("L", {Z: row(8, "second")}, 0)], 0, [(Z, True)]),
        ([("L", {Z: row(1)}, 0), ("another life", {Z: row(1)}, 10)], 15.9, [(Z, False)]),
        ([("L", {"me:8000": row(1, "mine")}, 0)], 0, []),
        ([("L", {"me:8000": row(1, "another process")}, 0)], 0, [("me:8000", False)]),
        ([("L", {Z: row(1)}, 0), ("L", {}, 1)], 1, []),
        ([("L", {Z: DAMAGED}, 0)], 29.9, [(Z, False)]),
        ([("L", {Z: DAMAGED}, 0)], 30.0, []),
        ([("L", {"host:grow": row(1, said=GROW)}, 0)], 0, []),
    ],
)
def test_a_server_is_live_until_its_row_was_seen_to_stand_still(
    pages: list[tuple[str, dict[str, Note], float]], now: float, live: list[tuple[str, bool]]
) -> None:
    """live: the names of the servers, and whether one of their rows was seen to move."""
    heartbeats = Heartbeats("me:8000", "mine")
    for life, rows, at in pages:
        heartbeats.read(1, life, rows, at)
    assert [(server.name, server.has_moved) for server in heartbeats.live(now)] == live


def test_the_newest_row_of_a_server_speaks_and_a_damaged_row_says_nothing() -> None:
    heartbeats = Heartbeats("me:8000", "mine")
    heartbeats.read(1, "L", {Z: row(5), "y:8000": DAMAGED}, 100.0)
    heartbeats.read(2, "L", {Z: row(9, said=NEWER)}, 110.0)
    assert [server.said for server in heartbeats.live(110.0)] == [UNREADABLE, NEWER]


def test_grow_is_quiet_since_its_row_moved_last() -> None:
    heartbeats = Heartbeats("me:8000", "mine")
    assert heartbeats.quiet("other", 100.0) == math.inf
    for now in (100.0, 103.0):
        heartbeats.read(1, "L", {"host:grow": row(1, said=GROW)}, now)
    assert heartbeats.quiet("other", 103.0) == 3.0
