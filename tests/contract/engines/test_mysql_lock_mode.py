"""Draws with a least under traditional locks, where a transaction that draws from a table twice deadlocks."""

from collections.abc import Iterator

import pytest

from tests.contract.engines.mysql_storage import MySQLStorage
from tests.contract.engines.storages import INCREMENT, made, take
from tests.contract.engines.test_least import race
from tests.harness.engine import Engine
from tests.harness.pair import MySQLPair

TRADITIONAL = "--innodb-autoinc-lock-mode=0"


@pytest.fixture(scope="module")
def traditional(engine: Engine) -> Iterator[MySQLPair]:
    """Two servers with that lock mode."""
    with MySQLPair(engine, increment=INCREMENT, flags=[TRADITIONAL], tables=False) as pair:
        yield pair


@pytest.mark.parametrize("counts", [[1, 2, 1, 64, 3, 1] * 5, [1, 65, 2, 500, 1] * 3], ids=["few", "blocks"])
def test_clients_with_other_leasts_get_nothing_twice_and_do_not_deadlock(
    traditional: MySQLPair, counts: list[int]
) -> None:
    storage = MySQLStorage(traditional, alone=True)
    storage.run(race(storage, counts))
    assert storage.deadlocks == []


def test_with_another_increment_it_goes_on_as_the_lock_mode_asks_before_the_next_probe(traditional: MySQLPair) -> None:
    storage = MySQLStorage(traditional, alone=True)

    async def scenario() -> None:
        database = await storage.client()
        table = await made(database, "grown")
        last = (await take(database, table, 1, 0)).last
        storage.configure(2 * INCREMENT)
        database.use_increment(2 * INCREMENT)
        before = traditional.odd.execute("SHOW GLOBAL STATUS LIKE 'Com_begin'")
        drawn = await take(database, table, 100, last)
        assert (drawn.first > last, drawn.step, drawn.size) == (True, 2 * INCREMENT, 100)
        assert traditional.odd.execute("SHOW GLOBAL STATUS LIKE 'Com_begin'") == before

    try:
        storage.run(scenario())
    finally:
        storage.configure(INCREMENT)
