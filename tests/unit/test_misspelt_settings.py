"""A name that is one slip away from a setting stops the start; other programs' names do not."""

import string

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.common.errors import SettingsError
from app.settings import VARIABLES, load, unknown_names

NAMES = [name + ending for name in VARIABLES for ending in ("", "_FILE")]
LETTERS = string.ascii_letters + string.digits + "_"
SECRET = "s3cret-never-shown"


def stopped(name: str) -> str:
    """The line that names this variable; empty where it stops nothing."""
    try:
        load({name: SECRET})
    except SettingsError as error:
        line = str(error)
        assert line.startswith(f"{name}: there is no such setting; rename it to TICKETS_"), line
        assert SECRET not in line
        return line
    return ""


@st.composite
def slips(draw: st.DrawFn) -> tuple[str, str]:
    """A name, and what one slip of the hand makes of it: in its letters' case too, and, in the part after the prefix,
    without the first S."""
    meant = draw(st.sampled_from(NAMES))
    name, first = draw(st.sampled_from([(meant, 0), (meant.replace("TICKETS_", "TICKET_", 1), len("TICKET_"))]))
    at = draw(st.integers(first, len(name) - 1))
    letter = draw(st.sampled_from(LETTERS))
    name = draw(
        st.sampled_from(
            [
                name,
                name[:at] + letter + name[at:],
                name[:at] + name[at + 1 :],
                name[:at] + letter + name[at + 1 :],
                name[:at] + name[at : at + 2][::-1] + name[at + 2 :],
                name + letter,
            ]
        )
    )
    cased = draw(st.sampled_from([name, name.lower(), name.title(), name.swapcase()]))
    return meant, cased


@settings(deadline=None, max_examples=2_000)
@given(slips())
def test_each_name_with_one_slip_stops_the_start(slip: tuple[str, str]) -> None:
    meant, name = slip
    assume(name not in NAMES)
    assume(not name.upper().startswith("TICKETD_"))
    assert stopped(name), meant


@settings(deadline=None, max_examples=500)
@given(st.sampled_from(NAMES), st.data())
def test_a_name_that_differs_by_more_is_a_warning_alone(name: str, data: st.DataObject) -> None:
    added = data.draw(st.text(string.ascii_uppercase, min_size=3, max_size=9))
    at = data.draw(st.integers(len("TICKETS_"), len(name)))
    other = name[:at] + added + name[at:]
    assume(not other.startswith(("TICKETS_TEST_", "TICKETS_BENCH_")))
    assert not stopped(other)
    assert unknown_names({other: "x"}) == [other]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TICKETS_DATABASE", "TICKETS_DATABASES"),
        ("TICKETS_DATBASES", "TICKETS_DATABASES"),
        ("TICKETS_DATABASES_FIEL", "TICKETS_DATABASES_FILE"),
        ("TICKETS_TOKEN", "TICKETS_TOKENS"),
        ("TICKETS_TOKEN_FILE", "TICKETS_TOKENS_FILE"),
        ("TICKETS_ADMIN_TOKEN", "TICKETS_ADMIN_TOKENS"),
        ("tickets_tokens", "TICKETS_TOKENS"),
        ("TICKET_TOKENS", "TICKETS_TOKENS"),
        ("TICKET_TOKEN", "TICKETS_TOKENS"),
        ("TICKTES_TOKENS", "TICKETS_TOKENS"),
        ("TICKETS_HOTS", "TICKETS_HOST"),
        ("TICKETS_DATADIR", "TICKETS_DATA_DIR"),
    ],
)
def test_the_setting_that_was_meant_is_named(name: str, meant: str) -> None:
    assert stopped(name) == f"{name}: there is no such setting; rename it to {meant}, or unset it"


def test_a_misspelt_name_stops_the_start_though_its_value_is_empty_and_a_flag_or_the_setting_is_there() -> None:
    with pytest.raises(SettingsError, match="TICKETS_TOKEN: there is no such setting"):
        load({"TICKETS_TOKEN": "", "TICKETS_TOKENS": SECRET})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TICKETD_DATABASES", "x"),
        ("TICKETD_TOKENS", "x"),
        ("TICKETD_URL", "x"),
        ("TICKETD_TOKEN_FILE", "x"),
        ("TICKETS_SERVICE_HOST", "10.0.0.1"),
        ("TICKETS_SERVICE_PORT", "8000"),
        ("TICKETS_SERVICE_PORT_HTTP", "8000"),
        ("TICKET_SERVICE_HOST", "10.0.0.1"),
        ("TICKETS_PORT_8000_TCP", "tcp://10.0.0.1:8000"),
        ("TICKETS_PORT_8000_TCP_ADDR", "10.0.0.1"),
        ("TICKETS_PORT_8000_TCP_PROTO", "tcp"),
        ("TICKETS_PORT_53_UDP_PORT", "53"),
        ("TICKET_PORT", "tcp://10.0.0.1:8000"),
        ("TICKETS_PORTS", "udp://10.0.0.1:8000"),
        ("TICKETS_MYSQL_PORT", "tcp://10.0.0.1:3306"),
        ("TICKETS_TEST_MYSQLD", "/usr/sbin/mysqld"),
        ("TICKETS_BENCH_MYSQLD", "/usr/sbin/mysqld"),
        ("TICKETS_DATABASE_USER", "tickets_2"),
        ("TICKETS_FRONT_REDIS_TLS", ":6380"),
        ("TICKETS_1", "10.0.0.1:8000"),
        ("TICKETS_12_REDIS", "10.0.0.1:6379"),
        ("TICKETS_PLAIN", "redirect"),
        ("OTHER", "x"),
    ],
)
def test_the_names_of_other_programs_are_passed_over(name: str, value: str) -> None:
    load({name: value})
    assert unknown_names({name: value}) == []
