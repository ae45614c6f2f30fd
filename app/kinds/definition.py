"""A sequence's definition: its kind and that kind's parameters, as every ticket database keeps them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Definition:
    """What one sequence was made as. It never changes afterwards; two of them are compared by value."""

    sequence: str
    kind: str
    parameters: Mapping[str, int] = field(hash=False)
    """All parameters of the kind, defaults filled in. Empty also where a row could not be read: see `Kind.holds`."""

    def text(self) -> str:
        """The parameters as a database keeps them: JSON with sorted keys and no spaces, always the same text."""
        return json.dumps(dict(self.parameters), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_text(cls, sequence: str, kind: str, text: str) -> "Definition":
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
        return cls(sequence, kind, read)
