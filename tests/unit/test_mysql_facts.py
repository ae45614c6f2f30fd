"""What MySQL's settings mean: refused, warned of, or neither."""

from types import SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock

import pytest

from app.databases.mysql.facts import read_facts
from app.databases.mysql.login import Line, Result
from app.databases.session import Facts, Residue
from app.errors import DatabaseRefused

OWN = (("_ticket_notes", 5, "layout 1 on InnoDB"), ("_ticket_ring", 4, "layout 1 on InnoDB"))
PLAIN = {"version": "8.4.0", "server_uuid": "u", "auto_increment_increment": "2", "auto_increment_offset": "1"}
GROUP = {"group_replication_auto_increment_increment": "7", "group_replication_group_name": "x"}


async def found(changed: dict[str, str], residue: Residue | None = None) -> Facts:
    """Return the facts of a server with these settings."""
    settings = PLAIN | changed
    results = [Result(rows, 0, 0) for rows in (((10.5, 3),), tuple(settings.items()), OWN)]
    line = SimpleNamespace(mariadb="MariaDB" in settings["version"], run=AsyncMock(return_value=results))
    return await read_facts(cast(Line, line), residue)


@pytest.mark.parametrize("version", ["8.0.11", "9.7.4-2", "10.6.4-MariaDB", "11.4.2-MariaDB-log"])
async def test_a_server_that_fits_is_taken(version: str) -> None:
    for residue in (None, Residue(1, 2), Residue(1, 3)):  # its increment may still be that of before a growth
        assert (await found({"version": version, "sync_binlog": "0"}, residue)).warnings == ()


REFUSED: list[tuple[str, dict[str, str]]] = [
    *(("or later", {"version": version}) for version in ("5.7.44", "10.5.9-MariaDB", "9.9-MariaDB", "proxy")),
    ("wsrep_auto_increment_control=ON", {"wsrep_on": "ON", "wsrep_auto_increment_control": "ON"}),
    ("group_replication_auto_increment_increment=7", GROUP | {"auto_increment_increment": "7"}),
    ("has auto_increment_offset=2, expected 1", {"auto_increment_offset": "2"}),
]
WEAK = {
    **{"innodb_flush_log_at_trx_commit": "2", "sync_binlog": "0", "innodb_doublewrite": "DETECT_ONLY"},
    **{"innodb_flush_method": "nosync", "innodb_autoinc_lock_mode": "0"},
}


@pytest.mark.parametrize(("words", "changed"), REFUSED)
async def test_a_server_that_is_old_or_numbers_the_ids_otherwise_is_refused(
    words: str, changed: dict[str, str]
) -> None:
    with pytest.raises(DatabaseRefused, match=words):
        await found(changed, Residue(1, 2))


@pytest.mark.parametrize("name", WEAK)
async def test_what_weakens_a_guarantee_is_warned_of(name: str) -> None:
    facts = await found({"log_bin": "ON", "sync_binlog": "1", name: WEAK[name]})
    assert [warning.split()[0] for warning in facts.warnings] == [f"{name}={WEAK[name]}"]
    assert (facts.machine, facts.births, facts.version) == ("u", "5 4", "MySQL 8.4.0")


async def test_a_mariadb_is_known_by_its_place() -> None:
    place = {"server_uuid": "", "hostname": "a", "port": "1", "datadir": "/d", "server_id": "1"}
    one, other = [(await found(place | {"port": port})).machine for port in "12"]
    assert (len(one), one != other) == (32, True)
