"""The search: inputs from both grammars, changed towards those that cost most."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tests.long.costly import http_grammar, redis_grammar
from tests.long.costly.case import SETTINGS, Case, Port
from tests.long.costly.measure import Reading

GRAMMARS = {"http": http_grammar, "redis": redis_grammar}
LONGEST_UNIT = 300_000
"""Bytes."""
KEPT = 24
"""How many of the most expensive inputs are changed further."""
EXPLORE = 0.4
"""The share of inputs that are made from the grammar alone."""


@dataclass(frozen=True)
class Found:
    """An input and what it came to."""

    case: Case
    reading: Reading


class Search:
    """Makes inputs, and learns what they cost.

    The way in which an input differs from its parent is chosen by how often each way has made one more expensive.
    """

    def __init__(self, chance: Random, ports: Sequence[Port], first: Sequence[Case]) -> None:
        self._chance = chance
        self._ports = ports
        self._first = [case for case in first if case.port in ports]
        self._ways = {name: [1, 2] for name in _WAYS}
        """Of each way: how often it made an input more expensive, and how often it was tried."""
        self._tried: tuple[str, float] | None = None
        self.found: list[Found] = []
        """The most expensive ones, the most expensive first."""

    def next(self) -> Case:
        """The next input."""
        self._tried = None
        chance = self._chance
        if self._first:
            return self._first.pop(0)
        if not self.found or chance.random() < EXPLORE:
            return self._new()
        parent = chance.choice(self.found[: 1 + int(chance.random() * len(self.found))])
        way = chance.choices(list(_WAYS), [won / tried for won, tried in self._ways.values()])[0]
        self._ways[way][1] += 1
        self._tried = way, parent.reading.score
        return _WAYS[way](parent.case, chance)

    def learn(self, case: Case, reading: Reading) -> None:
        """Take in what the last input came to."""
        if self._tried is not None and reading.score > self._tried[1]:
            self._ways[self._tried[0]][0] += 1
        self.found.append(Found(case, reading))
        self.found.sort(key=lambda found: -found.reading.score)
        del self.found[KEPT:]

    def _new(self) -> Case:
        chance = self._chance
        port = chance.choice(self._ports)
        grammar = GRAMMARS[port]
        requests = b"".join(grammar.request(chance) for _ in range(chance.choice([1, 1, 1, 2, 8])))
        return Case(
            port,
            chance.choice(list(SETTINGS)),
            chance.choice([1, 40, 40]),
            requests[:LONGEST_UNIT] or b"\r\n",
            grammar.opening(chance),
            reads=chance.random() < 0.8,
            waits=chance.random() < 0.3,
            piece=chance.choice([0, 0, 0, 0, 1_000, 7]),
            units=chance.choice([0, 0, 0, 0, 1]),
        )


def _grow(case: Case, chance: Random) -> Case:
    """Repeat a part of it."""
    begin, end = sorted(chance.randrange(len(case.unit) + 1) for _ in range(2))
    part = case.unit[begin:end] * chance.choice([1, 3, 30])
    return case.with_changes(unit=(case.unit[:end] + part + case.unit[end:])[:LONGEST_UNIT])


def _shrink(case: Case, chance: Random) -> Case:
    """Leave out a part."""
    begin, end = sorted(chance.randrange(len(case.unit) + 1) for _ in range(2))
    return case.with_changes(unit=(case.unit[:begin] + case.unit[end:]) or case.unit)


def _add(case: Case, chance: Random) -> Case:
    """Send something else as well."""
    more = GRAMMARS[case.port].request(chance)
    unit = more + case.unit if chance.random() < 0.5 else case.unit + more
    return case.with_changes(unit=unit[:LONGEST_UNIT])


def _byte(case: Case, chance: Random) -> Case:
    """Another byte somewhere."""
    at = chance.randrange(len(case.unit))
    byte = chance.choice([b"\r", b"\n", b"%", b"*", b"9", b"\x00", b'"', b"\\", b"[", b","])
    return case.with_changes(unit=case.unit[:at] + byte + case.unit[at + 1 :])


_WAYS: dict[str, Callable[[Case, Random], Case]] = {
    "grow": _grow,
    "shrink": _shrink,
    "add": _add,
    "byte": _byte,
    "connections": lambda case, chance: case.with_changes(connections=41 - case.connections),
    "setting": lambda case, chance: case.with_changes(setting=chance.choice(list(SETTINGS))),
    "reads": lambda case, chance: case.with_changes(reads=not case.reads),
    "waits": lambda case, chance: case.with_changes(waits=not case.waits),
    "piece": lambda case, chance: case.with_changes(piece=chance.choice([0, 1, 7, 100, 1_000, 16_000])),
    "units": lambda case, chance: case.with_changes(units=chance.choice([0, 1, 2, 10])),
    "opening": lambda case, chance: case.with_changes(opening=GRAMMARS[case.port].opening(chance)),
}
