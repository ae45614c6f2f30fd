"""What every kind of sequence has.

Times are milliseconds since 1970 (UTC), without leap seconds. Parameters are whole numbers by name; they are complete
if every parameter of the kind is there. A wrong value raises InvalidRequest, which says what is wanted.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from app.errors import InvalidRequest
from app.kinds.notation import LATEST_MS, time_text

TICKET_LIMIT = (1 << 63) - 1  # the largest id that is a number: the largest of a signed 64-bit integer
LEAST_LIFE_MS = 365 * 24 * 3600 * 1000
"""A new sequence lasts this long at least. An epoch that leaves less is a mistake."""

Parameters = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a parameter may be: a whole number from `smallest` to `largest`, and one of `choices` if there are any.

    default: None stands for the time at which the sequence is made. unit: for the error.
    """

    default: int | None
    smallest: int
    largest: int
    choices: tuple[int, ...] = ()
    unit: str = ""

    def checked(self, name: str, value: object) -> int:
        """Return the value if the parameter of this name may have it. True and 1.0 are no whole numbers."""
        if type(value) is not int or not self.smallest <= value <= self.largest:
            raise InvalidRequest(f"{name} is a whole number from {self.smallest} to {self.largest}{self.unit}")
        if self.choices and value not in self.choices:
            raise InvalidRequest(f"{name} is {', '.join(map(str, self.choices[:-1]))} or {self.choices[-1]}")
        return value


def epoch(default: int | None) -> Parameter:
    """Return the parameter `epoch`: when the time in the ids begins."""
    return Parameter(default, 0, LATEST_MS, unit=", in milliseconds since 1970: there is no earlier epoch")


class Kind(ABC):
    """One kind of sequence. The kinds have no state, so there is one object for each.

    bits: the length of an id, a sign included. parameters: what a sequence of this kind is made with.
    """

    name: str
    bits: int
    unique: ClassVar[Literal["certainly", "probably"]]
    parameters: Mapping[str, Parameter] = MappingProxyType({})

    @property
    def read_with(self) -> Mapping[str, Parameter]:
        """The parameters that reading an id takes: those of the sequence, unless the kind says otherwise."""
        return self.parameters

    def complete(self, given: Mapping[str, Any], now_ms: int | None = None, *, reading: bool = False) -> dict[str, int]:
        """Return all parameters of a sequence: those given, and the defaults of the others.

        now_ms: when the sequence is made; None where the parameters cannot depend on that. reading: return those that
        reading an id takes.
        """
        known = self.read_with if reading else self.parameters
        for name in given:
            if name not in known:
                takes = f"takes only {', '.join(known)}" if known else "has no parameters"
                raise InvalidRequest(f"{name} is no parameter of kind {self.name}, which {takes}")
        complete = {}
        for name, parameter in known.items():
            default = parameter.default if parameter.default is not None else now_ms
            if name not in given and default is None:
                raise InvalidRequest(f"{name} has no default here: name the {name} that the ids were made with")
            complete[name] = parameter.checked(name, given.get(name, default))
        return complete

    def check_new(self, parameters: Parameters, now_ms: int) -> None:
        """Raise InvalidRequest where no sequence with these parameters is made any more, or yet."""
        ends_at = self.ends_at(parameters)
        if parameters.get("epoch", 0) > now_ms:
            raise InvalidRequest("the epoch lies in the future: ids of today would have a negative time")
        if ends_at is not None and ends_at - now_ms < LEAST_LIFE_MS:
            end = time_text(ends_at)
            raise InvalidRequest(f"this epoch leaves less than a year: ids of kind {self.name} would end at {end}")

    def holds(self, parameters: Parameters) -> bool:
        """Whether these are complete parameters of this kind, as this release knows it."""
        try:
            return self.complete(parameters) == parameters
        except InvalidRequest:
            return False

    def odds(self, parameters: Parameters) -> str | None:
        """Return how probable equal ids are, in a sentence; None where they are impossible."""
        return None

    def ceiling(self, parameters: Parameters) -> int | None:
        """Return the largest id; None where ids are strings."""
        return None

    def ends_at(self, parameters: Parameters) -> int | None:
        """Return the first moment for which there is no id; None where time does not end the kind."""
        return None

    def shard_of(self, parameters: Parameters, key: int | None, shard: int | None) -> int:
        """Return the shard that a request names by a key or by its number; 0 where it names none."""
        shards = parameters.get("shards")
        if key is None and shard is None:
            return 0
        if shards is None:
            raise InvalidRequest(f"a sequence of kind {self.name} has no shards: it takes neither key nor shard")
        if key is not None and shard is not None:
            raise InvalidRequest("a request names its shard by key or by shard, not by both")
        if key is not None and not 0 <= key <= TICKET_LIMIT:
            raise InvalidRequest(f"key is a whole number from 0 to {TICKET_LIMIT}")
        if shard is not None and not 0 <= shard < shards:
            raise InvalidRequest(f"shard is a whole number from 0 to {shards - 1} for this sequence")
        return shard if shard is not None else (key or 0) % shards

    @abstractmethod
    def decode(self, parameters: Parameters, id_text: str) -> dict[str, Any]:
        """Return the parts of an id: kind, id_str in canonical form, time and time_ms if any, then the kind's own.

        The time may lie in the future. The caller compares it with the present.
        """

    def _timed(self, id_str: str, ms: int) -> dict[str, Any]:
        return {"kind": self.name, "id_str": id_str, "time": time_text(ms), "time_ms": ms}
