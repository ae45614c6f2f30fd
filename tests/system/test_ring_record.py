"""The ring record: what the databases say of their ring is held against the settings before a ticket is drawn."""

from contextlib import ExitStack

import pytest

from tests.harness.commands import forked_ticketd
from tests.harness.rings import WATCHFUL, Issued, Rings, grow, last_error, refused
from tests.harness.ticketd import TicketServer

INCREMENTS: list[dict[str, object]] = [{}, {"TICKETS_INCREMENT": 3}]


def draw_some(rings: Rings, issued: Issued, *offsets: int, times: int = 10) -> None:
    """Have a ticket server draw from these, and end."""
    with TicketServer(rings.urls(*offsets), settings=WATCHFUL) as server:
        server.wait_health("pass")
        issued.take(server, times)


# --- growth as somebody does it who has not heard of `grow` ----------------------------------------------------------


@pytest.mark.parametrize(
    ("increment", "databases_first"),
    [
        pytest.param(INCREMENTS[0], True, id="databases first-unset"),
        pytest.param(INCREMENTS[1], False, id="servers first-3", marks=pytest.mark.long),
        pytest.param(INCREMENTS[1], True, id="databases first-3", marks=pytest.mark.long),
        pytest.param(INCREMENTS[0], False, id="servers first-unset", marks=pytest.mark.long),
    ],
)
def test_growth_without_grow_is_refused_and_never_twice(
    rings: Rings, issued: Issued, increment: dict[str, object], *, databases_first: bool
) -> None:
    """Old and new servers side by side, with old and new lists, while one database after the other is set to 3."""
    with ExitStack() as stack:
        old = stack.enter_context(TicketServer(rings.urls(1, 2), settings=WATCHFUL))
        old.wait_health("pass")
        rings.drift(2, 3_000_000)
        issued.take(old, 10)
        if databases_first:
            rings.configure(3, 1, 2, 3)
            issued.take_if_any(old, 10)
        new = stack.enter_context(TicketServer(rings.urls(1, 2, 3), settings={**WATCHFUL, **increment}))
        issued.take_if_any(new, 10)
        for offset in (3, 1, 2):
            issued.take_if_any(old, 5)
            rings.configure(3, offset)
            rings.pair[offset - 1].end_connections()  # as its restart does
            issued.take_if_any(new, 5)
        refused(new, "the recorded increment of the ring is 2", "run `ticketd grow --increment 3`")
        old.restart()
        issued.take_if_any(old, 10)
        old.terminate()
        old.environment["TICKETS_INCREMENT"] = "3"
        old.start()
        old.wait_alive()
        old.wait_looked()
        refused(old, "the recorded increment of the ring is 2, and TICKETS_INCREMENT is 3")
        old.terminate()
        new.terminate()
        assert grow(rings.urls(1, 2, 3), 3).status == 0
        new.environment.pop("TICKETS_INCREMENT", None)
        new.start()
        new.wait_ready()
        new.wait_health("pass")
        issued.from_now_on()
        issued.take(new, 12)
        assert issued.residues(3) == {0, 1, 2}


def test_yesterdays_environment_serves(rings: Rings, issued: Issued) -> None:
    rings.configure(4, 1, 2)
    with TicketServer(rings.urls(1, 2), settings={**WATCHFUL, "TICKETS_INCREMENT": 4}) as server:
        server.wait_health("pass")
        issued.take(server, 10)
        assert issued.residues(4) == {1, 2}
        del server.environment["TICKETS_INCREMENT"]
        server.restart()
        server.wait_health("pass")
        issued.from_now_on()
        issued.take(server, 10)
        assert issued.residues(4) == {1, 2}
    with TicketServer(rings.urls(1, 2, 3), settings=WATCHFUL) as server:  # there is room for the third
        server.wait_health("pass")
        highest = issued.highest()
        issued.from_now_on()
        issued.take(server, 12)
        assert issued.residues(4) == {1, 2, 3}
        assert all(each > highest for each in issued.ids() if each % 4 == 3)


def test_a_list_longer_than_the_recorded_increment_is_refused(rings: Rings, issued: Issued) -> None:
    draw_some(rings, issued, 1, 2)
    with TicketServer(rings.urls(1, 2, 3), settings=WATCHFUL) as server:
        refused(server, "the recorded increment of the ring is 2, and TICKETS_DATABASES lists 3")
        doctor = forked_ticketd("doctor", settings={"TICKETS_DATABASES": rings.urls(1, 2, 3)})
        assert doctor.status == 1
        assert "increment" in doctor.output


@pytest.mark.parametrize("offsets_too", [False, True], ids=["the list alone", "and their offsets"])
def test_the_order_of_the_list_changed(rings: Rings, issued: Issued, *, offsets_too: bool) -> None:
    draw_some(rings, issued, 1, 2, times=20)
    if offsets_too:
        rings.set_globals(1, 2, 2)
        rings.set_globals(2, 2, 1)
    with TicketServer(rings.urls(2, 1), settings=WATCHFUL) as server:
        refused(server, "was drawn at offset" if offsets_too else "offset")
    rings.configure(2, 1, 2)
    draw_some(rings, issued, 1, 2)


def test_one_taken_out_of_the_middle(rings: Rings, issued: Issued) -> None:
    rings.configure(3, 1, 2, 3)
    draw_some(rings, issued, 1, 2, 3, times=12)
    rings.set_globals(3, 3, 2)
    with TicketServer(rings.urls(1, 3), settings=WATCHFUL) as server:
        entry = server.wait_database(rings.name(3), "quarantined")
        assert "was drawn at offset 3, and TICKETS_DATABASES lists it at 2" in entry["last_error"]
        issued.from_now_on()
        issued.take(server, 6)
        assert issued.residues(3) == {1}


# --- databases without tickets, or without the record ---------------------------------------------------------------


def test_while_nothing_was_drawn_the_settings_overwrite_the_record(rings: Rings, issued: Issued) -> None:
    with TicketServer(rings.urls(1, 2), settings=WATCHFUL) as server:
        server.wait_health("pass")
    assert (rings.record(1) or ())[1:] == (2, "1,2", 1, "drawn")
    rings.configure(3, 1, 2, 3)
    with TicketServer(rings.urls(1, 2, 3), settings=WATCHFUL) as server:
        server.wait_health("pass")
    assert [(rings.record(offset) or ())[1:] for offset in (1, 2, 3)] == [
        (3, "1,2,3", offset, "drawn") for offset in (1, 2, 3)
    ]
    rings.set_globals(2, 3, 3)
    rings.set_globals(3, 3, 2)
    with TicketServer(rings.urls(1, 3, 2), settings=WATCHFUL) as server:  # nor does the order count yet
        server.wait_health("pass")
        issued.take(server, 9)
        assert issued.residues(3) == {0, 1, 2}
        assert sorted(issued.ids()) == list(range(1, 10))


def test_one_that_is_empty_takes_the_record_of_the_others(rings: Rings, issued: Issued) -> None:
    rings.configure(4, 1, 2)
    with TicketServer(rings.urls(1, 2), settings={**WATCHFUL, "TICKETS_INCREMENT": 4}) as server:
        server.wait_health("pass")
        issued.take(server, 50)
    for name in rings.tables(2):
        rings.execute(2, f"DROP TABLE `{name}`")
    with TicketServer(rings.urls(1, 2), settings=WATCHFUL) as server:
        server.wait_health("pass")
        issued.from_now_on()
        issued.take(server, 20)
        assert issued.residues(4) == {1, 2}
    assert (rings.record(2) or ())[1:] == (4, "1,2", 2, "drawn")


def test_empty_ones_form_no_ring_beside_one_that_is_read_only(rings: Rings, issued: Issued) -> None:
    """It cannot draw, and is asked what the ring is."""
    draw_some(rings, issued, 1, 2)
    for name in rings.tables(2):
        rings.execute(2, f"DROP TABLE `{name}`")
    rings.configure(4, 2, 3)
    rings.execute(1, "SET GLOBAL read_only = 1")
    try:
        with TicketServer(rings.urls(1, 2, 3), settings={**WATCHFUL, "TICKETS_INCREMENT": 4}) as server:
            server.wait_health("fail")
            for offset in (2, 3):
                server.wait_database(rings.name(offset), "quarantined")
                assert "the recorded increment of the ring is 2" in last_error(server, rings.name(offset))
                assert rings.record(offset) is None
            issued.take_if_any(server, 10)
    finally:
        rings.execute(1, "SET GLOBAL read_only = 0")


def test_one_restored_from_before_the_growth_is_raised_above_everything(rings: Rings, issued: Issued) -> None:
    draw_some(rings, issued, 1, 2, times=20)
    kept = rings.dump(2)
    rings.configure(3, 1, 2, 3)
    assert grow(rings.urls(1, 2, 3), 3).status == 0
    with TicketServer(rings.urls(1, 2, 3), settings=WATCHFUL) as server:
        server.wait_health("pass")
        for _ in range(30):
            issued.take_block(server)
    rings.load(2, kept)
    assert (rings.record(2) or ())[1] == 2
    highest = issued.highest()
    with TicketServer(rings.urls(1, 2, 3), settings=WATCHFUL) as server:
        server.wait_health("pass")
        issued.from_now_on()
        issued.take(server, 30)
        assert issued.residues(3) == {0, 1, 2}
        assert all(each > highest for each in issued.ids() if each % 3 == 2)


def test_a_table_that_other_programs_drew_from_is_raised_above_everything_first(rings: Rings, issued: Issued) -> None:
    for offset, largest in ((1, 700_001), (2, 900_000)):
        rings.drift(offset, largest)
        rings.execute(
            offset,
            f"CREATE TABLE legacy (id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, "
            f"stub CHAR(1) NOT NULL, UNIQUE (stub)) AUTO_INCREMENT={largest // 7}",
        )
    with TicketServer(rings.urls(1, 2), settings=WATCHFUL) as server:
        for offset in (1, 2):  # Flickr's keys are warned of
            server.wait_database(rings.name(offset), "up")
        tickets = issued.take(server, 10) + issued.take(server, 10, "legacy")
        assert min(tickets[:10]) > 900_000
        assert min(tickets[10:]) >= 900_000 // 7
    assert (rings.record(1) or ())[1:] == (2, "1,2", 1, "drawn")


# --- what release 0.1.0 left ----------------------------------------------------------------------------------------


LAYOUT_1 = (
    "CREATE TABLE _probe (id INT NOT NULL PRIMARY KEY, at DATETIME(6) NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE _layout (id INT NOT NULL PRIMARY KEY, version INT NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE _high_water ("
    "sequence VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "offset_of INT NOT NULL, increment_of INT NOT NULL, mark BIGINT NOT NULL, issued BIGINT NOT NULL, "
    "token VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "changed TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6), "
    "PRIMARY KEY (sequence, offset_of, increment_of), KEY changed (changed)) ENGINE=InnoDB",
    "INSERT INTO _layout VALUES (1, 1)",
    "REPLACE INTO _probe VALUES (1, UTC_TIMESTAMP(6))",
)
TOKEN = "0123456789abcdef01234567.1763791380:89abcdef"


def left_by_0_1_0(rings: Rings, *, increment: int = 2, about: tuple[int, int] = (2, 1)) -> None:
    """Two databases that release 0.1.0 drew from: `about` which offset each of them keeps marks."""
    for offset, other, largest in ((1, about[0], 4001), (2, about[1], 4100)):
        for statement in LAYOUT_1:
            rings.execute(offset, statement)
        rings.drift(offset, largest)
        row = f"('photos', {other}, {increment}, 6000, 4100, '{TOKEN}')"
        sql = "INSERT INTO _high_water (sequence, offset_of, increment_of, mark, issued, token) VALUES "
        rings.execute(offset, sql + row)


@pytest.mark.parametrize(
    "increment",
    [pytest.param({}, id="unset"), pytest.param({"TICKETS_INCREMENT": 2}, id="2", marks=pytest.mark.long)],
)
def test_an_upgrade_from_0_1_0_in_place_serves_at_once(
    rings: Rings, issued: Issued, increment: dict[str, object]
) -> None:
    left_by_0_1_0(rings)
    with TicketServer(rings.urls(1, 2), settings={**WATCHFUL, **increment}) as server:
        server.wait_health("pass")
        tickets = issued.take(server, 10)
        assert issued.residues(2) == {0, 1}
        assert min(tickets) > 6000  # above the marks of another life, as after any restart
        assert max(tickets) < 6100
    assert [(rings.record(offset) or ())[1:] for offset in (1, 2)] == [(2, "1,2", each, "drawn") for each in (1, 2)]
    draw_some(rings, issued, 1, 2)


def test_marks_of_0_1_0_with_another_increment_are_refused(rings: Rings) -> None:
    left_by_0_1_0(rings)
    rings.configure(3, 1, 2, 3)
    for offset in (1, 2):
        rings.execute(offset, "UPDATE _high_water SET changed = changed")
    with TicketServer(rings.urls(1, 2, 3), settings={**WATCHFUL, "TICKETS_INCREMENT": 3}) as server:
        refused(server, "high-water marks are of increment 2", "ticketd grow --increment 3")
    with TicketServer(rings.urls(1, 2, 3), settings=WATCHFUL) as server:
        refused(server, "high-water marks are of increment 2", "lists 3")
    assert rings.record(1) is None


def test_marks_of_0_1_0_about_its_own_offset_are_refused(rings: Rings) -> None:
    left_by_0_1_0(rings, about=(1, 2))
    with TicketServer(rings.urls(1, 2), settings=WATCHFUL) as server:
        refused(server, "has been drawn at another offset")
    assert rings.record(1) is None


def test_growth_straight_from_0_1_0(rings: Rings, issued: Issued) -> None:
    left_by_0_1_0(rings)
    rings.configure(3, 1, 2, 3)
    assert grow(rings.urls(1, 2, 3), 3).status == 0
    with TicketServer(rings.urls(1, 2, 3), settings=WATCHFUL) as server:
        server.wait_health("pass")
        tickets = issued.take(server, 12)
        assert issued.residues(3) == {0, 1, 2}
        assert min(tickets) > 6000
