"""What MySQL's settings mean: refused, warned of, or neither."""

import pytest

from app.databases.mysql.facts import check, facts_of
from app.databases.session import Residue
from app.errors import DatabaseRefused

OWN = (("_ticket_notes", 5, "InnoDB", "layout 1"), ("_ticket_ring", 4, "InnoDB", "layout 1"))
PLAIN = {"version": "8.4.0", "server_uuid": "u", "auto_increment_increment": "2", "auto_increment_offset": "1"}


@pytest.mark.parametrize("greeting", ["8.0.11", "9.7.4-2", "5.5.5-10.6.4-MariaDB", "11.4.2-MariaDB-log"])
def test_a_server_of_age_is_taken(greeting: str) -> None:
    check(greeting, tuple(PLAIN.items()), OWN, Residue(1, 2))


@pytest.mark.parametrize("greeting", ["5.7.44", "10.5.9-MariaDB", "5.5.5-10.2.1-MariaDB", "proxy"])
def test_an_older_one_is_refused(greeting: str) -> None:
    with pytest.raises(DatabaseRefused, match="or later"):
        check(greeting, (), (), None)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"wsrep_on": "ON", "wsrep_auto_increment_control": "ON"}, "wsrep_auto_increment_control=ON"),
        (
            {
                "auto_increment_increment": "7",
                "group_replication_auto_increment_increment": "7",
                "group_replication_group_name": "x",
            },
            "group_replication_auto_increment_increment=7",
        ),
        ({"auto_increment_offset": "2"}, "has auto_increment_offset=2, expected 1"),
    ],
)
def test_settings_that_number_the_ids_otherwise_are_refused(changed: dict[str, str], words: str) -> None:
    with pytest.raises(DatabaseRefused, match=words):
        check("8.4.0", tuple((PLAIN | changed).items()), OWN, Residue(1, 2))


def test_the_increment_of_before_a_growth_is_taken() -> None:
    check("8.4.0", tuple(PLAIN.items()), OWN, Residue(1, 3))


@pytest.mark.parametrize(
    "changed",
    [
        {"innodb_flush_log_at_trx_commit": "2"},
        {"log_bin": "ON", "sync_binlog": "0"},
        {"innodb_doublewrite": "OFF"},
        {"innodb_doublewrite": "DETECT_ONLY"},
        {"innodb_flush_method": "nosync"},
        {"innodb_autoinc_lock_mode": "0"},
    ],
)
def test_what_weakens_a_guarantee_is_warned_of(changed: dict[str, str]) -> None:
    facts = facts_of(((10.5, 3),), tuple((PLAIN | changed).items()), OWN)
    assert len(facts.warnings) == 1
    assert list(changed)[-1] in facts.warnings[0]
    assert (facts.machine, facts.births, facts.version) == ("u", "5 4", "MySQL 8.4.0")
    assert facts_of(((10.5, 3),), tuple((PLAIN | {"sync_binlog": "0"}).items()), OWN).warnings == ()


def test_a_mariadb_is_known_by_its_place() -> None:
    places = [("hostname", "a"), ("port", "1"), ("datadir", "/d"), ("server_id", "1"), ("version", "10.6.1-MariaDB")]
    machine = facts_of(((1, 1),), tuple(places), OWN).machine
    assert len(machine) == 32
    assert facts_of(((1, 1),), (*places[:1], ("port", "2"), *places[2:]), OWN).machine != machine
