"""The properties of every kind of sequence, and the two families of kinds that have a time in their ids.

Times are milliseconds since 1970 (UTC), leap seconds not counted. Parameters are whole numbers by name; "complete"
means that all of the kind's are there. What a client has got wrong raises InvalidRequest and says what is wanted.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from app.common.errors import InvalidRequest, SequenceExhausted
from app.common.sequences import TICKET_LIMIT
from app.kinds.notation import LATEST_MS, decimal, hexadecimal, time_text

LEAST_LIFE_MS = 365 * 24 * 3600 * 1000
"""An epoch has to leave this much time: a sequence that ends sooner was made by mistake."""

NUMBER_BITS = 63
"""Ids of more bits are strings."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """The values that a parameter may have: a whole number from `smallest` to `largest`, or one of `choices`."""

    default: int | None
    """The default. None: the time when the sequence is made."""
    smallest: int
    largest: int
    choices: tuple[int, ...] = ()
    unit: str = ""

    def checked(self, name: str, value: object) -> int:
        """`value` if it can be this parameter's. True and False are no numbers, and neither is 1.0."""
        if type(value) is not int or not self.smallest <= value <= self.largest:
            raise InvalidRequest(f"{name} is a whole number from {self.smallest} to {self.largest}{self.unit}")
        if self.choices and value not in self.choices:
            raise InvalidRequest(f"{name} is {', '.join(map(str, self.choices[:-1]))} or {self.choices[-1]}")
        return value


def epoch(default: int | None) -> Parameter:
    """The parameter `epoch`: when an id's time begins."""
    return Parameter(default, 0, LATEST_MS, unit=", in milliseconds since 1970: there is no earlier epoch")


class Kind(ABC):
    """One kind of sequence."""

    name: ClassVar[str]
    bits: ClassVar[int]
    """The length of an id, a sign included."""
    unique: ClassVar[Literal["certainly", "probably"]]
    ordered: ClassVar[bool]
    """Whether the ids that one server hands out increase (of `instagram`: per shard; of `ticket`: per database)."""
    parameters: ClassVar[Mapping[str, Parameter]] = {}

    @property
    def read_with(self) -> Mapping[str, Parameter]:
        """The parameters that reading an id takes: those that it was made with, unless the kind says otherwise."""
        return self.parameters

    def complete(self, given: Mapping[str, Any], now_ms: int) -> dict[str, int]:
        """All parameters of a sequence that is made now, defaults filled in."""
        complete = self._filled(given, self.parameters, now_ms)
        if "epoch" in complete:
            self._check_epoch(complete, now_ms)
        return complete

    def for_decoding(self, given: Mapping[str, Any]) -> dict[str, int]:
        """All parameters for ids of elsewhere. What is not given is as wide as the kind has it; no time is checked."""
        return self._filled(given, self.read_with, None)

    def holds(self, parameters: Mapping[str, int]) -> bool:
        """Whether these are complete parameters of this kind, as this release knows it."""
        if parameters.keys() != self.parameters.keys():
            return False
        try:
            self._filled(parameters, self.parameters, None)
        except InvalidRequest:
            return False
        return True

    def odds(self, parameters: Mapping[str, int]) -> str | None:
        """How probable equal ids are, in a sentence; None where they are impossible."""
        return None

    @abstractmethod
    def ceiling(self, parameters: Mapping[str, int]) -> int | None:
        """The largest id; None where ids are longer than 63 bits."""

    @abstractmethod
    def ends_at(self, parameters: Mapping[str, int]) -> int | None:
        """The first moment that no id can be of, in ms since 1970; None where time does not end the kind."""

    def shard_of(self, parameters: Mapping[str, int], key: int | None, shard: int | None) -> int:
        """The shard that a request names by a key or by its number; 0 where by neither."""
        if key is not None or shard is not None:
            raise InvalidRequest(f"a sequence of kind {self.name} has no shards: it takes neither key nor shard")
        return 0

    @abstractmethod
    def decode(self, parameters: Mapping[str, int], id_text: str) -> dict[str, Any]:
        """The parts of an id: kind, id_str (in canonical form), time and time_ms if there is one, then the kind's own.

        It may be of the future: the caller compares `time_ms` with the present.
        """

    def refuse_unknown(self, given: Iterable[str]) -> None:
        """InvalidRequest where one of these names is no parameter of this kind."""
        self._refuse_others(given, self.parameters)

    def _refuse_others(self, given: Iterable[str], known: Mapping[str, Parameter]) -> None:
        for name in given:
            if name not in known:
                takes = f"takes {', '.join(known)} alone" if known else "has no parameters"
                raise InvalidRequest(f"{name} is no parameter of kind {self.name}, which {takes}")

    def _filled(self, given: Mapping[str, Any], known: Mapping[str, Parameter], now_ms: int | None) -> dict[str, int]:
        self._refuse_others(given, known)
        complete = {}
        for name, parameter in known.items():
            default = parameter.default if parameter.default is not None else now_ms
            if name not in given and default is None:
                raise InvalidRequest(f"{name} has no default here: name the one that the ids were made with")
            complete[name] = parameter.checked(name, given.get(name, default))
        return complete

    def _check_epoch(self, parameters: Mapping[str, int], now_ms: int) -> None:
        if parameters["epoch"] > now_ms:
            raise InvalidRequest("the epoch lies in the future: ids of today would have a negative time")
        ends_at = self.ends_at(parameters)
        if ends_at is not None and ends_at - now_ms < LEAST_LIFE_MS:
            raise InvalidRequest(
                f"this epoch leaves less than a year: ids of kind {self.name} would end at {time_text(ends_at)}"
            )

    def _timed(self, id_str: str, ms: int) -> dict[str, Any]:
        return {"kind": self.name, "id_str": id_str, "time": time_text(ms), "time_ms": ms}


class TimedKind(Kind):
    """A kind whose ids are a time, a part and a counter, from high to low.

    Time and counter together are a *tick*: time * 2^counter_bits + counter, with the time in the kind's unit since its
    epoch. A server that draws a tick draws a time and a counter that no other server has.
    """

    unique = "certainly"
    ordered = True
    parts: ClassVar[Literal["shard", "worker", "instance"]]
    """The width and the bounds of `part`."""
    unit_ms: ClassVar[int] = 1
    time_bits: ClassVar[int]
    """The bits that ids use, without the one that would make them negative."""
    part_bits: ClassVar[int]
    counter_bits: ClassVar[int]

    def tick_at(self, parameters: Mapping[str, int], ms: int) -> int:
        """The first tick of that moment; negative before the epoch."""
        return (ms - parameters.get("epoch", 0)) // self.unit_ms << self.counter_bits

    def time_of(self, parameters: Mapping[str, int], tick: int) -> int:
        """When a tick's unit of time begins."""
        return parameters.get("epoch", 0) + (tick >> self.counter_bits) * self.unit_ms

    def last_tick(self, parameters: Mapping[str, int]) -> int:
        """The last tick that an id can be made of."""
        return (1 << self.time_bits + self.counter_bits) - 1

    def encode(self, parameters: Mapping[str, int], tick: int, part: int) -> int | str:
        """The id. SequenceExhausted: the tick is beyond the last one. ValueError: it, or the part, is none at all."""
        number = self._number(parameters, tick, part)
        return number if self.bits <= NUMBER_BITS + 1 else self._text(number)

    def ceiling(self, parameters: Mapping[str, int]) -> int | None:
        if self.bits > NUMBER_BITS + 1:
            return None
        return (1 << self.time_bits + self.part_bits + self.counter_bits) - 1

    def ends_at(self, parameters: Mapping[str, int]) -> int | None:
        return self.time_of(parameters, self.last_tick(parameters) + 1)

    def decode(self, parameters: Mapping[str, int], id_text: str) -> dict[str, Any]:
        ceiling = self.ceiling(parameters)
        if ceiling is None:
            number = hexadecimal(id_text, self.name, self.bits // 4)
        else:
            number = decimal(id_text, self.name, ceiling)
        counter = number & (1 << self.counter_bits) - 1
        part = number >> self.counter_bits & (1 << self.part_bits) - 1
        time = number >> self.part_bits + self.counter_bits
        said = self._timed(self._text(number), self.time_of(parameters, time << self.counter_bits))
        return said | self._told(parameters, part) | {"counter": counter}

    @abstractmethod
    def _told(self, parameters: Mapping[str, int], part: int) -> dict[str, Any]:
        """The part's fields. Raises InvalidRequest if no id of these parameters has this part."""

    def _number(self, parameters: Mapping[str, int], tick: int, part: int) -> int:
        if tick > self.last_tick(parameters):
            raise SequenceExhausted(f"ids of kind {self.name} with this epoch have come to their end")
        if tick < 0 or part < 0 or part >> self.part_bits:
            raise ValueError(f"tick {tick} and {self.parts} {part} are no id of kind {self.name}")
        counter = tick & (1 << self.counter_bits) - 1
        return (tick >> self.counter_bits << self.part_bits | part) << self.counter_bits | counter

    def _text(self, number: int) -> str:
        return str(number) if self.bits <= NUMBER_BITS + 1 else f"{number:0{self.bits // 4}x}"


class RandomKind(Kind):
    """A kind that leaves uniqueness to random numbers: every server makes its ids by itself."""

    unique = "probably"

    def ceiling(self, parameters: Mapping[str, int]) -> int | None:
        return None

    def ends_at(self, parameters: Mapping[str, int]) -> int | None:
        return None

    @abstractmethod
    def make(self, parameters: Mapping[str, int], now_ms: Callable[[], int]) -> Callable[[int], list[int] | list[str]]:
        """A generator: called with a count, it gives so many ids. It keeps what its order needs: one for a sequence.

        Called, it raises SequenceExhausted where the time has come to its end. One thread at a time may call it.
        """


def number_ceiling(bits: int) -> int:
    """The largest id of so many bits that is still a positive signed 64-bit number."""
    return min((1 << bits) - 1, TICKET_LIMIT)
