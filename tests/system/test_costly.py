"""The most expensive inputs that a search has found (`tests.long.costly`) hold up nobody, and take little memory."""

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from tests.long.costly.case import Case
from tests.long.costly.corpus import CORPUS
from tests.long.costly.measure import Attacker, Target, confirmed, measure_twice, warm

pytestmark = [pytest.mark.any_engine, pytest.mark.timeout(240)]


class Servers:
    """Servers to attack, by their setting, and one that is left alone."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.attacker = stack.enter_context(Attacker())
        self.idle = stack.enter_context(closing(Target("plain")))
        self._targets: dict[str, Target] = {}

    def target(self, setting: str) -> Target:
        if setting not in self._targets:
            self._targets[setting] = self._stack.enter_context(closing(Target(setting)))
            warm(self._targets[setting], self.attacker)
        return self._targets[setting]


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


SHORT = "empty lines", "unknown names", "tickets"
"""Of the inputs in Redis' protocol. The others are for `make long`: test_redis_attacks.py has their like."""
CASES = [
    pytest.param(case, id=name, marks=[] if case.port == "http" or name in SHORT else pytest.mark.long)
    for name, case in CORPUS.items()
]


@pytest.mark.parametrize("case", CASES)
def test_the_most_expensive_inputs_hold_up_nobody(servers: Servers, case: Case) -> None:
    reading = measure_twice(case, servers.target(case.setting), servers.idle, servers.attacker)
    if reading.breaks_a_bound:
        readings = confirmed(case, servers.attacker)
        assert not readings, "\n".join([str(case), str(reading), *map(str, readings)])
