"""A sequence's definition: its kind and that kind's parameters, as every ticket database keeps them.

A server that makes a sequence first claims its name with a definition. Once all servers can only agree on that
definition it is decided, and never changes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition that a sequence is made by. Two definitions are compared by value.

    `decided`: false for a claim that another definition may still replace. `by`: hexadecimal digits of the request
    that claimed the name, which no other request has; empty in what servers of release 0.2.0 wrote.
    """

    sequence: str
    kind: str
    parameters: Mapping[str, int] = field(hash=False)
    """All parameters of the kind, defaults filled in. Empty also where a row could not be read: see `Kind.holds`."""
    decided: bool = True
    by: str = ""

    @property
    def key(self) -> str:
        """The name without case. Two sequences never differ by case alone."""
        return self.sequence.lower()

    def same_as(self, other: "Definition") -> bool:
        """Whether both make the same sequence, no matter which server claimed it."""
        mine, others = (self.sequence, self.kind, self.parameters), (other.sequence, other.kind, other.parameters)
        return mine == others

    def text(self) -> str:
        """The parameters as a database keeps them: JSON with sorted keys and no spaces, always the same text."""
        return json.dumps(dict(self.parameters), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_text(cls, sequence: str, kind: str, text: str, *, decided: bool = True, by: str = "") -> "Definition":
        """The definition whose parameters are `text`.

        Text that is not a JSON object of whole numbers is what another release has written, or a damaged row. It gives
        no parameters, so that the sequence is there and its kind refuses it.
        """
        try:
            read = json.loads(text)
        except (ValueError, RecursionError):
            read = None
        if not isinstance(read, dict) or not all(type(value) is int for value in read.values()):
            read = {}
        return cls(sequence, kind, read, decided, by)
