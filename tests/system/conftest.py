"""Fixtures for the system tests: networks that fail between the ticket servers and the shared databases."""

from collections.abc import Iterator

import pytest

from tests.harness.pair import MySQLPair
from tests.harness.proxy import FaultyProxy


@pytest.fixture
def proxies(mysql_pair: MySQLPair) -> Iterator[tuple[FaultyProxy, FaultyProxy]]:
    """A proxy in front of each database of the shared pair, for this test alone."""
    with FaultyProxy(mysql_pair.odd.port) as odd, FaultyProxy(mysql_pair.even.port) as even:
        yield odd, even
