"""Ids that hold a time, on real databases, from servers whose clocks are wrong: none twice, none far from the truth."""

from collections.abc import Iterator

import pytest

from tests.harness.clock_storm import disorder, instagram, snowflake
from tests.harness.engine import Engine
from tests.harness.pair import MySQLPair, Schema

SECONDS = 5.0
PAUSE = 0.1
"""Seconds that each client waits after an answer. `make long` draws at full rate, and for longer."""


@pytest.fixture
def databases(number: int, engine: Engine) -> Iterator[Schema]:
    """Ticket databases of the test's own, which it kills and puts back."""
    with MySQLPair(engine, n=number) as pair:
        yield pair.make_schema("kinds")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("number", "shards"),
    [
        (3, 1),
        pytest.param(2, 1, marks=pytest.mark.long),
        pytest.param(3, 2000, marks=pytest.mark.long),
        pytest.param(2, 2000, marks=pytest.mark.long),
    ],
)
def test_instagram_ids_survive_wrong_clocks_and_a_database_that_comes_back_older(
    databases: Schema, shards: int
) -> None:
    load = instagram(databases, SECONDS, shards=shards, pause=PAUSE)
    assert load.ids > 1000


@pytest.mark.timeout(120)
def test_snowflake_ids_survive_what_happens_to_servers_clocks_and_databases(engine: Engine) -> None:
    with MySQLPair(engine) as pair:
        load = snowflake(pair.make_schema("kinds"), SECONDS, pause=PAUSE)
    assert load.ids > 1000
    assert disorder(load) == []
