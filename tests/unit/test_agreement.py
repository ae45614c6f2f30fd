"""The table of rule 6, a row a test: what the databases record against the settings and against what they hold.

This file is long because the table is.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.databases.record import Body, Record, State
from app.databases.session import RingRow
from app.tickets.agreement import agree
from app.tickets.heartbeats import Said, Server, Use
from app.tickets.situation import Agreement, Entry, Kind, Situation, Standing, read_record

RING = Record("ring", 7, "w", 2, State.DRAWN, (Body(1, "A", 1), Body(2, "B", 1)))
"""Two databases, A and B."""
FORMING = replace(RING, number=1, state=State.FORMING)
CHANGING = replace(RING, number=8, state=State.CHANGING)
ROOM = replace(RING, increment=3)
LONG = 60.0


def holds(offset: int, body: str, record: Record | None = None, *, drawn_at: int = 0, **more: object) -> Entry:
    """An entry that answers: in sight for a minute where it has the record of a ring, unless `more` says otherwise."""
    row = RingRow(body, drawn_at) if record is None else RingRow(body, drawn_at, record.stamp, record.dump())
    seen = {"in_sight_for": LONG if record is not None else 0.0, "unchanged_for": LONG}
    return Entry(offset, f"d{offset}:3306", row, f"life of {body}", **{**seen, **more})  # type: ignore[arg-type]


def away(offset: int) -> Entry:
    return Entry(offset, f"d{offset}:3306", failure="did not answer within 0.5 s")


def uses(name: str, offset: int, body: str, life: str = "") -> Server:
    """A live server that says what it draws from."""
    return Server(name, "word", Said(1.0, 6.0, {offset: Use(body, life or f"life of {body}", "old:3306")}))


def decide(
    *entries: Entry,
    increment: int | None = None,
    servers: Sequence[Server] = (),
    seen: Record | None = None,
    grow_quiet: float = 0.0,
) -> Agreement:
    number = seen.number if seen is not None else 0
    return agree(Situation(entries, increment, ("me:8000", "mine"), "new", servers, seen, number, grow_quiet))


def standings(agreement: Agreement) -> list[Standing]:
    return [verdict.standing for _, verdict in sorted(agreement.verdicts.items())]


# --- the rows of the table --------------------------------------------------------------------------------------------


def test_a_body_that_the_ring_has_at_its_offset_is_in() -> None:
    agreement = decide(holds(1, "A", RING), holds(2, "B", RING))
    assert agreement.record == RING
    assert standings(agreement) == [Standing.IN, Standing.IN]
    assert agreement.step is None


def test_an_increment_that_the_setting_contradicts_is_refused_with_both_numbers() -> None:
    agreement = decide(holds(1, "A", RING), holds(2, "B", RING), away(3), increment=3)
    assert agreement.record is None
    assert standings(agreement) == [Standing.QUARANTINED, Standing.QUARANTINED, Standing.DOWN]
    assert "increment of the ring is 2, and TICKETS_INCREMENT is 3" in agreement.verdicts[1].reason
    assert "`ticketd grow --increment 3`" in agreement.verdicts[1].reason


def test_the_same_data_twice_quarantines_the_later_entry() -> None:
    for one in (decide(holds(1, "A", RING), holds(2, "A", RING)), decide(holds(1, "A"), holds(2, "A"))):
        assert one.verdicts[2].standing is Standing.QUARANTINED
        assert one.verdicts[2].reason == "is the same data as d1:3306"
        assert one.step is None


def test_another_rings_database_is_quarantined() -> None:
    other = replace(RING, ring="other", number=99, bodies=(Body(1, "X", 1), Body(2, "Y", 1)))
    three = replace(RING, increment=3, bodies=(*RING.bodies, Body(3, "C", 1)))
    seen = decide(holds(1, "A", RING), holds(2, "Y", other), seen=RING)
    fitting = decide(holds(1, "A", three), holds(2, "Y", other), holds(3, "C", three))
    for one in (seen, fitting):
        assert one.verdicts[1].standing is Standing.IN
        assert "belongs to another ring" in one.verdicts[2].reason


def test_two_rings_of_equal_standing_are_refused_both() -> None:
    other = replace(RING, ring="other", number=99, bodies=(Body(2, "Y", 1),))
    agreement = decide(holds(1, "A", RING), holds(2, "Y", other))
    assert standings(agreement) == [Standing.QUARANTINED] * 2
    assert agreement.record is None


def test_an_offset_above_the_increment_names_grow() -> None:
    agreement = decide(holds(1, "A", RING), holds(2, "B", RING), holds(3, "C"))
    assert agreement.verdicts[3].standing is Standing.QUARANTINED
    assert "run `ticketd grow`" in agreement.verdicts[3].reason
    assert agreement.step is None


def test_a_body_of_another_offset_is_listed_in_the_wrong_place() -> None:
    agreement = decide(holds(1, "B", RING), holds(2, "A", RING))
    assert standings(agreement) == [Standing.QUARANTINED] * 2
    assert "was drawn at offset 2, and TICKETS_DATABASES lists it at 1" in agreement.verdicts[1].reason
    replaced = decide(holds(1, "A", RING), holds(2, "old A", replace(RING, number=3), drawn_at=1))
    assert "was drawn at offset 1, and TICKETS_DATABASES lists it at 2" in replaced.verdicts[2].reason


def test_another_life_than_a_live_servers_waits_until_that_server_lets_go() -> None:
    entries = holds(1, "A", RING), holds(2, "B", RING)
    agreement = decide(*entries, servers=[uses("z:8000", 1, "A", "another life")])
    assert agreement.verdicts[1].standing is Standing.QUARANTINED
    assert agreement.verdicts[1].reason.endswith("z:8000 draws from old:3306")
    assert agreement.verdicts[2].standing is Standing.IN
    assert standings(decide(*entries, servers=[uses("z:8000", 1, "A")])) == [Standing.IN] * 2


@pytest.mark.parametrize(("name", "standing"), [("a:8000", Standing.QUARANTINED), ("z:8000", Standing.IN)])
def test_of_two_servers_with_two_lives_the_name_that_comes_first_keeps_its_own(name: str, standing: Standing) -> None:
    agreement = decide(holds(1, "A", RING, used=True), servers=[uses(name, 1, "A", "another life")])
    assert agreement.verdicts[1].standing is standing


def test_a_heartbeat_that_was_never_seen_to_move_dislodges_nothing_in_use() -> None:
    """A database that was restored brings back the rows of processes that have ended."""
    restored = replace(uses("a:8000", 2, "B", "an old life"), has_moved=False)
    verdicts = [
        decide(holds(1, "A", RING), holds(2, "B", RING, used=used), servers=[restored]).verdicts[2].standing
        for used in (True, False)
    ]
    assert verdicts == [Standing.IN, Standing.QUARANTINED]


@pytest.mark.parametrize("body", ["new", "A of before"])
def test_another_body_waits_while_a_live_server_uses_the_rings_body(body: str) -> None:
    record = replace(RING, number=3, bodies=(Body(1, body, 2), Body(2, "B", 1))) if body != "new" else None
    entries = holds(1, body, record), holds(2, "B", RING)
    agreement = decide(*entries, servers=[uses("z:8000", 1, "A")])
    assert agreement.verdicts[1].standing is Standing.QUARANTINED
    assert agreement.verdicts[1].reason.endswith("in use at offset 1: z:8000 draws from old:3306")
    assert agreement.step is None
    assert decide(*entries).step is not None


def test_a_live_server_whose_heartbeat_is_damaged_holds_a_replacement_up() -> None:
    damaged = Server("z:8000", "word", None)
    agreement = decide(holds(1, "new"), holds(2, "B", RING), servers=[damaged])
    assert agreement.verdicts[1].standing is Standing.QUARANTINED
    assert "z:8000" in agreement.verdicts[1].reason
    assert standings(decide(holds(1, "A", RING), holds(2, "B", RING), servers=[damaged])) == [Standing.IN] * 2


def test_a_replacement_is_taken_in_by_the_next_number() -> None:
    agreement = decide(holds(1, "new"), holds(2, "B", RING))
    assert standings(agreement) == [Standing.NEW, Standing.IN]
    step = agreement.step
    assert step is not None
    assert (step.kind, step.offset, step.level) == (Kind.TAKE_IN, 2, ())
    assert step.record == replace(RING, number=8, writer="new", bodies=(Body(1, "new", 8), Body(2, "B", 1)))


def test_several_replacements_and_a_free_offset_are_taken_in_together() -> None:
    three = replace(RING, increment=4, bodies=(*RING.bodies, Body(3, "C", 1)))
    step = decide(holds(1, "new 1"), holds(2, "B", three), holds(3, "new 3"), holds(4, "new 4")).step
    assert step is not None
    assert [body.word for body in step.record.bodies] == ["new 1", "B", "new 3", "new 4"]


def test_a_damaged_record_is_never_taken_for_none() -> None:
    row = RingRow("A", 1, RING.stamp, RING.dump()[:-3])
    for others in ([holds(2, "B", RING)], [holds(2, "B")]):
        agreement = decide(Entry(1, "d1:3306", row, "life"), *others)
        assert "damaged" in agreement.verdicts[1].reason
        assert agreement.step is None
    with pytest.raises(ValueError, match="not a ring record"):
        read_record("8.w", RING.dump())


# --- forming ----------------------------------------------------------------------------------------------------------


def test_a_ring_is_formed_once_all_that_are_listed_answer() -> None:
    agreement = decide(holds(1, "A"), away(2))
    assert agreement.step is None
    assert "every listed database has to answer once, and d2:3306 cannot be used" in agreement.verdicts[1].reason
    step = decide(holds(1, "A"), holds(2, "B")).step
    assert step is not None
    bodies = (Body(1, "A", 1), Body(2, "B", 1))
    assert (step.kind, step.offset) == (Kind.FORM, 1)
    assert step.record == Record("new", 1, "new", 2, State.FORMING, bodies)


def test_forming_is_on_all_before_the_ring_is_drawn() -> None:
    agreement = decide(holds(1, "A", FORMING), holds(2, "B"))
    assert agreement.record is None
    assert agreement.step is not None
    assert (agreement.step.kind, agreement.step.offset, agreement.step.record) == (Kind.FORM, 2, FORMING)
    step = decide(holds(1, "A", FORMING), holds(2, "B", FORMING)).step
    assert step is not None
    assert (step.kind, step.offset) == (Kind.DRAW, 1)
    assert step.record == replace(FORMING, number=2, writer="new", state=State.DRAWN)
    drawn = decide(holds(1, "A", step.record), holds(2, "B", FORMING))
    assert drawn.step is not None
    assert (drawn.step.kind, drawn.step.offset) == (Kind.BRING_UP, 2)


@pytest.mark.parametrize(("setting", "increment"), [(None, 2), (5, 5), (1, 1)])
def test_the_increment_of_a_new_ring_is_the_setting_or_the_number_of_databases(
    setting: int | None, increment: int
) -> None:
    agreement = decide(holds(1, "A"), holds(2, "B"), increment=setting)
    assert agreement.step is not None
    assert agreement.step.record.increment == increment
    assert len(agreement.step.record.bodies) == min(increment, 2)


def test_a_forming_by_another_list_binds_nobody_once_it_has_stood_still_for_5_s() -> None:
    other = replace(FORMING, bodies=(Body(1, "A", 1), Body(2, "C", 1)))
    moving = decide(holds(1, "A", other, unchanged_for=4.9), holds(2, "B"))
    assert moving.step is None
    assert standings(moving) == [Standing.WAITS] * 2
    step = decide(holds(1, "A", other, unchanged_for=5.0), holds(2, "B")).step
    assert step is not None
    assert (step.kind, step.record.number, step.record.offset_of("B")) == (Kind.FORM, 2, 2)


def test_a_drawn_record_outranks_any_forming() -> None:
    other = replace(FORMING, ring="other", number=9)
    agreement = decide(holds(1, "A", RING), holds(2, "B", other))
    assert agreement.record == RING
    assert standings(agreement) == [Standing.IN, Standing.UNFINISHED]


def test_a_server_that_has_seen_a_ring_forms_no_other() -> None:
    agreement = decide(holds(1, "X"), holds(2, "Y"), seen=RING)
    assert agreement.step is None
    assert "restart all ticket servers" in agreement.verdicts[1].reason


# --- bringing up, taking in -------------------------------------------------------------------------------------------


def test_what_stays_is_brought_up_to_the_highest_record_the_lowest_offset_first() -> None:
    before = replace(RING, number=6)
    agreement = decide(holds(1, "A", before), holds(2, "B", before), seen=RING)
    assert standings(agreement) == [Standing.LAGS] * 2
    assert agreement.step is not None
    assert (agreement.step.kind, agreement.step.offset, agreement.step.record) == (Kind.BRING_UP, 1, RING)


def test_of_two_records_with_one_number_the_larger_word_of_the_writer_stands() -> None:
    agreement = decide(holds(1, "A", replace(RING, writer="a")), holds(2, "B", replace(RING, writer="b")))
    assert agreement.record == replace(RING, writer="b")
    assert standings(agreement) == [Standing.LAGS, Standing.IN]


TAKING = replace(RING, number=8, bodies=(Body(1, "new", 8), Body(2, "B", 1), Body(3, "C", 1)), increment=3)


def test_a_body_that_is_taken_in_gets_the_record_last_and_after_it_was_made_level() -> None:
    before = replace(TAKING, number=7, bodies=(Body(1, "A", 1), *TAKING.bodies[1:]))
    lags = decide(holds(1, "new"), holds(2, "B", TAKING), holds(3, "C", before))
    assert lags.step is not None
    assert (lags.step.kind, lags.step.offset) == (Kind.BRING_UP, 3)
    step = decide(holds(1, "new"), holds(2, "B", TAKING), holds(3, "C", TAKING)).step
    assert step is not None
    assert (step.kind, step.offset, step.record, step.level) == (Kind.FINISH, 1, TAKING, (1, 2, 3))


def test_a_body_that_came_back_from_before_the_ring_was_formed_waits_for_those_that_stay() -> None:
    agreement = decide(holds(1, "A"), holds(2, "B", RING, in_sight_for=9.9))
    assert standings(agreement) == [Standing.UNFINISHED, Standing.IN]
    assert agreement.step is None
    assert decide(holds(1, "A"), holds(2, "B", RING)).step is not None


def test_bodies_that_are_taken_in_together_do_not_wait_for_each_other() -> None:
    both = replace(TAKING, bodies=(Body(1, "new", 8), Body(2, "B", 1), Body(3, "C", 8)))
    entries = holds(1, "new", both, in_sight_for=0.0), holds(2, "B", both), holds(3, "C")
    step = decide(*entries).step
    assert step is not None
    assert (step.kind, step.offset) == (Kind.FINISH, 3)


def test_a_body_that_was_taken_in_again_since_is_not_in_by_its_old_record() -> None:
    before = replace(RING, number=5)
    again = replace(RING, number=8, bodies=(Body(1, "A", 8), Body(2, "B", 1)))
    assert standings(decide(holds(1, "A", before), holds(2, "B", again))) == [Standing.UNFINISHED, Standing.IN]


@pytest.mark.parametrize("finishing", [False, True], ids=["begin", "finish"])
@pytest.mark.parametrize(
    ("third", "reason"),
    [
        (away(3), "once d3:3306 can be used"),
        (None, "lists the database of offset 3"),
        (holds(3, "C", TAKING, in_sight_for=9.9), "once d3:3306 has been in sight for 10 s"),
    ],
)
def test_each_step_of_a_taking_in_waits_for_all_offsets_in_use(
    third: Entry | None, reason: str, *, finishing: bool
) -> None:
    first = holds(1, "new" if finishing else "newer")
    agreement = decide(*[each for each in (first, holds(2, "B", TAKING), third) if each is not None])
    assert agreement.step is None
    assert reason in agreement.verdicts[1].reason


def test_a_free_offset_waits_for_all_offsets_in_use_too() -> None:
    assert decide(holds(1, "A", ROOM), away(2), holds(3, "new")).step is None
    assert decide(holds(1, "A", ROOM), holds(2, "B", ROOM), holds(3, "new")).step is not None


def test_a_record_stands_for_5_s_before_another_body_takes_the_place() -> None:
    agreement = decide(holds(1, "new"), holds(2, "B", RING, unchanged_for=4.9))
    assert agreement.step is None
    assert "once the ring has stood for 5 s" in agreement.verdicts[1].reason


# --- growth -----------------------------------------------------------------------------------------------------------


def test_a_change_that_grow_left_is_taken_back_on_offset_1_with_the_increment_of_before() -> None:
    entries = holds(1, "A", CHANGING), holds(2, "B", RING), holds(3, "C")
    under_way = decide(*entries, grow_quiet=4.9)
    assert under_way.step is None
    assert under_way.record == CHANGING
    assert not CHANGING.drawn
    assert "`ticketd grow`" in under_way.verdicts[3].reason
    step = decide(*entries, grow_quiet=5.0).step
    assert step is not None
    assert (step.kind, step.offset) == (Kind.TAKE_BACK, 1)
    assert step.record == replace(RING, number=9, writer="new")


def test_offset_1_decides_a_change_even_if_it_came_back_older() -> None:
    step = decide(holds(1, "A", RING), holds(2, "B", CHANGING), grow_quiet=5.0).step
    assert step is not None
    assert (step.kind, step.offset, step.record.number) == (Kind.TAKE_BACK, 1, 9)
    assert decide(away(1), holds(2, "B", CHANGING), grow_quiet=5.0).step is None


def test_while_the_ring_changes_a_replacement_of_offset_1_is_taken_in_as_drawn() -> None:
    step = decide(holds(1, "new"), holds(2, "B", CHANGING), grow_quiet=5.0).step
    assert step is not None
    assert (step.kind, step.offset) == (Kind.TAKE_IN, 2)
    assert (step.record.state, step.record.increment, step.record.number) == (State.DRAWN, 2, 9)
    assert decide(holds(1, "new"), holds(2, "B", CHANGING), grow_quiet=4.9).step is None


def test_a_decided_growth_is_finished_by_anybody() -> None:
    grown = replace(RING, number=9, increment=3, bodies=(*RING.bodies, Body(3, "C", 9)))
    entries = holds(1, "A", grown), holds(2, "B", CHANGING), holds(3, "C", CHANGING)
    agreement = decide(*entries)
    assert standings(agreement) == [Standing.IN, Standing.LAGS, Standing.UNFINISHED]
    assert agreement.step is not None
    assert (agreement.step.kind, agreement.step.offset) == (Kind.BRING_UP, 2)
