"""Which other servers are live, as one server sees their heartbeats."""

import pytest

from app.databases.session import Note
from app.tickets.heartbeats import SILENCE_UNKNOWN, Heartbeats, Said, Use, silence

SAID = Said(1.0, silence(1.0, 0.5), {1: Use("A", "life", "d1:3306")}, 2, 7)


def row(high: int, word: str = "other", said: Said = SAID) -> Note:
    return Note(high, tenure=word, text=said.dump())


def names(heartbeats: Heartbeats, now: float) -> list[str]:
    return [server.name for server in heartbeats.live(now)]


def test_a_heartbeat_says_the_same_after_it_was_written_and_read() -> None:
    assert Said.load(SAID.dump()) == SAID
    assert silence(1.0, 0.5) == 6.0


@pytest.mark.parametrize("text", ["", "{}", "[]", SAID.dump()[:-9], SAID.dump().replace("6.0", "-1")])
def test_a_damaged_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        Said.load(text)


def test_the_text_of_many_databases_fits_into_a_row() -> None:
    lives = {offset: Use("0123456789abcdef", "0123456789abcdef", "a" * 200 + ":3306") for offset in range(1, 40)}
    text = Said(1.0, 6.0, lives).dump()
    assert len(text) <= 4000
    assert Said.load(text).lives[39] == Use("0123456789abcdef", "0123456789abcdef", "")


def test_a_row_counts_until_it_was_seen_to_stand_still_for_its_silence() -> None:
    heartbeats = Heartbeats("me:8000", "mine")
    heartbeats.read(1, "L", {"z:8000": row(1)}, 100.0)
    heartbeats.read(1, "L", {"z:8000": row(2)}, 104.0)
    heartbeats.read(1, "L", {"z:8000": row(2)}, 109.9)
    assert names(heartbeats, 109.9) == ["z:8000"]
    assert names(heartbeats, 110.0) == []


def test_a_process_has_moved_once_one_of_its_rows_was_seen_to_move() -> None:
    heartbeats = Heartbeats("me:8000", "mine")
    seen = []
    for high, word in ((1, "first"), (1, "first"), (7, "second"), (8, "second")):
        heartbeats.read(1, "L", {"z:8000": row(high, word)}, 100.0)
        seen.append([server.has_moved for server in heartbeats.live(100.0)])
    assert seen == [[False], [False], [False], [True]]


def test_a_row_in_another_life_of_its_database_counts_anew() -> None:
    heartbeats = Heartbeats("me:8000", "mine")
    heartbeats.read(1, "L", {"z:8000": row(1)}, 100.0)
    heartbeats.read(1, "M", {"z:8000": row(1)}, 110.0)
    assert names(heartbeats, 115.9) == ["z:8000"]


def test_a_server_is_live_if_any_of_its_rows_counts_and_its_newest_row_speaks() -> None:
    heartbeats = Heartbeats("me:8000", "mine")
    newer = Said(1.0, 6.0, {}, 2, 8)
    heartbeats.read(1, "L", {"z:8000": row(5)}, 100.0)
    heartbeats.read(2, "L", {"z:8000": row(9, said=newer)}, 110.0)
    (server,) = heartbeats.live(110.0)
    assert server.said == newer


def test_rows_of_this_process_are_no_other_server_and_another_process_is() -> None:
    heartbeats = Heartbeats("me:8000", "mine")
    heartbeats.read(1, "L", {"me:8000": row(1, "mine")}, 100.0)
    assert names(heartbeats, 100.0) == []
    heartbeats.read(1, "L", {"me:8000": row(1, "another")}, 101.0)
    assert names(heartbeats, 101.0) == ["me:8000"]


def test_a_row_that_is_gone_counts_no_more() -> None:
    heartbeats = Heartbeats("me:8000", "mine")
    heartbeats.read(1, "L", {"z:8000": row(1)}, 100.0)
    heartbeats.read(1, "L", {}, 101.0)
    assert names(heartbeats, 101.0) == []


def test_a_damaged_row_counts_as_a_live_server_that_says_nothing() -> None:
    heartbeats = Heartbeats("me:8000", "mine")
    heartbeats.read(1, "L", {"z:8000": Note(3, tenure="other", text="?")}, 100.0)
    (server,) = heartbeats.live(100.0)
    assert server.said is None
    assert heartbeats.live(100.0 + SILENCE_UNKNOWN) == []


def test_grow_is_no_server_and_is_quiet_since_its_row_moved_last() -> None:
    heartbeats = Heartbeats("me:8000", "mine")
    grow = Said(1.0, 6.0, grow=True)
    heartbeats.read(1, "L", {"host:grow": row(1, said=grow)}, 100.0)
    heartbeats.read(1, "L", {"host:grow": row(1, said=grow)}, 103.0)
    assert names(heartbeats, 103.0) == []
    assert heartbeats.grow_quiet(103.0) == 3.0


def test_a_row_that_has_not_moved_for_an_hour_is_outdated() -> None:
    heartbeats = Heartbeats("me:8000", "mine")
    heartbeats.read(1, "L", {"z:8000": row(1)}, 0.0)
    assert heartbeats.outdated(1, 3599.0) == {}
    assert heartbeats.outdated(1, 3600.0) == {"z:8000": row(1)}
