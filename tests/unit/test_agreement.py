"""The table of rule 6: what the databases record against the settings and against what they hold."""

import secrets
from dataclasses import replace
from typing import Any

import pytest

from app.databases.record import Body, Record, State, read_record
from app.databases.session import RingRow
from app.errors import DatabaseFailed, DatabaseRefused
from app.tickets.agreement import Agreement
from app.tickets.heartbeats import UNREADABLE, Said, Server, Use
from app.tickets.sight import Entry

RING = Record("ring", 7, "w", 2, State.DRAWN, (Body(1, "A", 1), Body(2, "B", 1)))
"""Two databases, A and B."""
FORMING, ROOM = replace(RING, number=1, state=State.FORMING), replace(RING, increment=3)
RECORDS = {
    "ring": RING,
    "before": replace(RING, number=6),
    "larger": replace(RING, writer="x"),
    "other": replace(RING, ring="other", number=99, bodies=(Body(1, "X", 1), Body(2, "Y", 1))),
    "forming": FORMING,
    "forming-C": replace(FORMING, bodies=(Body(1, "A", 1), Body(2, "C", 1))),
    "forming-other": replace(FORMING, ring="other", number=9),
    "changing": replace(RING, number=8, state=State.CHANGING),
    "room": ROOM,
    "three": replace(ROOM, bodies=(*RING.bodies, Body(3, "C", 1))),
    "grown": replace(ROOM, number=9, bodies=(*RING.bodies, Body(3, "C", 9))),
    "taking": replace(ROOM, number=8, bodies=(Body(1, "new", 8), Body(2, "B", 1), Body(3, "C", 1))),
    "taking-two": replace(ROOM, number=8, bodies=(Body(1, "new", 8), Body(2, "B", 1), Body(3, "C", 8))),
    "again": replace(RING, number=8, bodies=(Body(1, "A", 8), Body(2, "B", 1))),
}
STATES: dict[str, dict[str, Any]] = {
    "used": {"life": "life of A"},
    "young": {"steady": -9.9},
    "unseen": {"steady": 0.0},
    "moving": {"row_since": -4.9},
    "still": {"row_since": -5.0},
}


@pytest.fixture(autouse=True)
def random_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _size: "new")


def entry(offset: int, words: str) -> Entry:
    """An entry of the list, from its body and then the name of its record and of a state, with `/` between.

    `away` does not answer, and `damaged` stands for such a record. Else it is in sight and unchanged for a minute.
    """
    name = f"d{offset}:3306"
    if words == "away":
        return Entry(offset, name, error=DatabaseFailed("did not answer within 0.5 s"))
    body, record, state, *_ = (*words.split("/"), "", "")
    if record == "damaged":
        return Entry(offset, name, RingRow(body, 0, RING.stamp, RING.dump()[:-3]))
    own = RECORDS.get(record)
    row = RingRow(body) if own is None else RingRow(body, 0, own.stamp, own.dump())
    seen = {"steady": -60.0, "row_since": -60.0, **STATES.get(state, {})}
    return Entry(offset, name, row, f"life of {body}", **seen)


def uses(name: str, life: str, *, has_moved: bool = True) -> Server:
    """A live server that says that it draws from the body A at offset 1, in this life."""
    return Server(name, "word", Said(6.0, {1: Use("A", life, "old:3306")}), has_moved)


Z = uses("z:8000", "life of A")
Z_BEFORE, A_BEFORE = uses("z:8000", "another"), uses("a:8000", "another")
RESTORED = uses("a:8000", "another", has_moved=False)
"""A database that was restored brings back the row of a process that has ended."""
MUTE = Server("z:8000", "word", UNREADABLE)
"""A live server whose heartbeat is damaged."""


def decide(
    words: str, server: Server | None = None, seen: str = "", increment: int | None = None, quiet: float = 0.0
) -> Agreement:
    """Decide about a list of entries. seen: the name of the highest record that was seen before."""
    entries = [entry(offset, each) for offset, each in enumerate(words.split(), 1)]
    servers, before = [server] if server is not None else [], RECORDS.get(seen)
    return Agreement(entries, increment, ("me:8000", "mine"), servers=servers, seen=before, grow_quiet=quiet)


def case(entries: str, stand: str, step: str = "", why: str = "", **settings: Any) -> Any:
    """A row: how each entry stands, what is written next at which offset, and words of a reason behind its offset."""
    said = ", ".join(str(getattr(value, "name", value)) for value in settings.values())
    return pytest.param(entries, stand, step, why, settings, id=f"{entries} {said}")


TWICE = "2: is the same data as d1:3306"
PLACE = "{}: was drawn at offset {}, and TICKETS_DATABASES lists it at {}"
TABLE = [
    case("A/ring B/ring", "IN IN"),
    # an increment that TICKETS_INCREMENT contradicts
    case(
        "A/ring B/ring away",
        "QUARANTINED QUARANTINED DOWN",
        "",
        "1: the recorded increment of the ring is 2, and "
        "TICKETS_INCREMENT is 3: unset it, or run `ticketd grow --increment 3`",
        increment=3,
    ),
    # a body that an earlier entry has
    case("A/ring A/ring", "IN QUARANTINED", "", TWICE),
    case("A A", "WAITS QUARANTINED", "", TWICE),
    # a damaged record is never taken for none
    case("A/damaged B/ring", "QUARANTINED IN", "", "1: its ring record is damaged"),
    case("A/damaged B", "QUARANTINED WAITS", "", "1: its ring record is damaged"),
    # no record: all form the ring, then it is drawn; a forming by another list binds nobody after 5 s
    case("A away", "WAITS DOWN", "", "every listed database has to answer once, and d2:3306 cannot be used"),
    case("A B", "WAITS WAITS", "FORM 1"),
    case("A/forming B", "WAITS WAITS", "FORM 2"),
    case("A/forming B/forming", "WAITS WAITS", "DRAW 1"),
    case("A/ring B/forming", "IN LAGS", "BRING_UP 2"),
    case("A/forming-C/moving B", "WAITS WAITS"),
    case("A/forming-C/still B", "WAITS WAITS", "FORM 1"),
    case("A/ring B/forming-other", "IN UNFINISHED", "FINISH 2"),
    case("X Y", "NEW NEW", "", "restart all ticket servers", seen="ring"),
    # another ring's word: than was seen before, or than most have
    case("A/ring Y/other", "IN QUARANTINED", "", "2: belongs to another ring", seen="ring"),
    case("A/three Y/other C/three", "IN QUARANTINED IN", "", "2: belongs to another ring"),
    case("A/ring Y/other", "QUARANTINED QUARANTINED", "", "the listed databases record different rings"),
    # an offset above the increment
    case(
        "A/ring B/ring C", "IN IN QUARANTINED", "", "3: its offset is above the ring's increment, 2: run `ticketd grow`"
    ),
    # the body that the ring has at another offset
    case("B/ring A/ring", "QUARANTINED QUARANTINED", "", PLACE.format(1, 2, 1)),
    # the body of the ring in another life than a live server uses; of two that use two, the first name keeps its own
    case("A/ring B/ring", "QUARANTINED IN", "", "restart: z:8000 draws from old:3306", server=Z_BEFORE),
    case("A/ring B/ring", "IN IN", server=Z),
    case("A/ring/used B/ring", "QUARANTINED IN", server=A_BEFORE),
    case("A/ring/used B/ring", "IN IN", server=Z_BEFORE),
    case("A/ring/used B/ring", "IN IN", server=RESTORED),
    case("A/ring B/ring", "QUARANTINED IN", server=RESTORED),
    # another body, and a live server uses the ring's body
    case("new B/ring", "QUARANTINED IN", "", "in use at offset 1: z:8000 draws from old:3306", server=Z),
    case("old/before B/ring", "QUARANTINED IN", server=Z),
    case("new B/ring", "QUARANTINED IN", "", "z:8000 has a heartbeat that cannot be read", server=MUTE),
    case("A/ring B/ring", "IN IN", server=MUTE),
    # what stays is brought up to the highest record, the lowest offset first
    case("A/before B/before", "LAGS LAGS", "BRING_UP 1", seen="ring"),
    case("A/ring B/larger", "LAGS IN", "BRING_UP 1"),
    # another body is taken in once all offsets in use are there; several are together
    case("new B/ring", "NEW IN", "TAKE_IN 2"),
    case("old/before B/ring", "NEW IN", "TAKE_IN 2"),
    case("A/room B/room new", "IN IN NEW", "TAKE_IN 1"),
    case("A/room away new", "IN DOWN NEW"),
    case("x B/room y", "NEW IN NEW", "TAKE_IN 2"),
    case("new B/ring/moving", "NEW IN", "", "1: is taken into the ring, once the ring has stood for 5 s"),
    case("newer B/taking away", "NEW IN DOWN", "", "once d3:3306 can be used"),
    case("newer B/taking", "NEW IN", "", "lists the database of offset 3"),
    case("newer B/taking C/taking/young", "NEW IN IN", "", "once d3:3306 has been in sight for 10 s"),
    # a body that is taken in gets the record last, under the same conditions
    case("new B/taking C/three", "UNFINISHED IN LAGS", "BRING_UP 3"),
    case("new B/taking C/taking", "UNFINISHED IN IN", "FINISH 1"),
    case("new B/taking away", "UNFINISHED IN DOWN", "", "once d3:3306 can be used"),
    case("new B/taking", "UNFINISHED IN", "", "lists the database of offset 3"),
    case("new B/taking C/taking/young", "UNFINISHED IN IN", "", "once d3:3306 has been in sight for 10 s"),
    case("new/taking-two/unseen B/taking-two C", "IN IN UNFINISHED", "FINISH 3"),
    case("A/before B/again", "UNFINISHED IN", "FINISH 1"),
    case("A B/ring/young", "UNFINISHED IN"),
    case("A B/ring", "UNFINISHED IN", "FINISH 1"),
    # growth: offset 1 decides, and what was left is taken back after 5 s
    case("A/changing B/ring C", "IN LAGS QUARANTINED", "", "`ticketd grow`", quiet=4.9),
    case("A/changing B/ring C", "IN LAGS QUARANTINED", "TAKE_BACK 1", quiet=5.0),
    case("A/ring B/changing", "LAGS IN", "TAKE_BACK 1", quiet=5.0),
    case("away B/changing", "DOWN IN", quiet=5.0),
    case("new B/changing", "NEW IN", quiet=4.9),
    case("new B/changing", "NEW IN", "TAKE_IN 2", quiet=5.0),
    case("A/grown B/changing C/changing", "IN LAGS UNFINISHED", "BRING_UP 2"),
]


@pytest.mark.parametrize(("entries", "stand", "step", "why", "settings"), TABLE)
def test_a_row_of_the_table(entries: str, stand: str, step: str, why: str, settings: dict[str, Any]) -> None:
    agreement = decide(entries, **settings)
    verdicts = sorted(agreement.verdicts.items())
    assert [verdict.standing.name for _, verdict in verdicts] == stand.split()
    assert why in "; ".join(f"{offset}: {verdict.reason}" for offset, verdict in verdicts)
    assert (f"{agreement.step.kind.name} {agreement.step.offset}" if agreement.step else "") == step


def test_a_body_that_was_drawn_at_another_offset_before_is_in_the_wrong_place() -> None:
    old = replace(entry(2, "old/before"), row=RingRow("old", 1, RING.stamp, RING.dump()))
    verdicts = Agreement([entry(1, "A/ring"), old], None, ("me:8000", "mine")).verdicts
    assert PLACE.format(2, 1, 2) in f"2: {verdicts[2].reason}"


@pytest.mark.parametrize(
    ("words", "record"),
    [
        ("A/ring B/ring", "ring"),
        ("A/ring B/larger", "larger"),
        ("A/ring B/forming-other", "ring"),
        ("A/changing B/ring", "changing"),
        ("A/forming B", ""),
        ("A/ring Y/other", ""),
    ],
)
def test_a_server_goes_by_the_highest_record_of_a_ring(words: str, record: str) -> None:
    assert decide(words).record == RECORDS.get(record)


NEXT = replace(RING, number=8, writer="new")
NEW = Record("new", 1, "new", 2, State.FORMING, FORMING.bodies)


@pytest.mark.parametrize(
    ("words", "setting", "record"),
    [
        ("A B", None, NEW),
        ("A B", 5, replace(NEW, increment=5)),
        ("A B", 1, replace(NEW, increment=1, bodies=NEW.bodies[:1])),
        ("A/forming B", None, FORMING),
        ("A/forming B/forming", None, replace(NEXT, number=2)),
        ("A/forming-C B", None, replace(NEW, number=2, bodies=(Body(1, "A", 2), Body(2, "B", 2)))),
        ("new B/ring", None, replace(NEXT, bodies=(Body(1, "new", 8), Body(2, "B", 1)))),
        ("x B/room y", None, replace(NEXT, increment=3, bodies=(Body(1, "x", 8), Body(2, "B", 1), Body(3, "y", 8)))),
        ("A/changing B/ring", None, replace(NEXT, number=9)),
        ("new B/changing", None, replace(NEXT, number=9, bodies=(Body(1, "new", 9), Body(2, "B", 1)))),
    ],
)
def test_the_next_record(words: str, setting: int | None, record: Record) -> None:
    step = decide(words, increment=setting, quiet=5.0).step
    assert step is not None
    assert step.record == record


def test_a_record_and_a_stamp_that_differ_are_an_error() -> None:
    with pytest.raises(DatabaseRefused, match="its ring record is damaged"):
        read_record(RingRow("A", 1, "8.w", RING.dump()))
