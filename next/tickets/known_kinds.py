"""The kinds of sequence as the catalog asks for them, see `definitions.Kinds`."""

from collections.abc import Callable, Mapping

from next.kinds.kind import Kind
from next.kinds.table import KINDS, kind_named
from next.kinds.timed import TimedKind
from next.tickets.definitions import TICKET, Definition


class KnownKinds:
    """All kinds that this release has. now_ms: the time for new sequences, in milliseconds since 1970."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms

    def complete(self, kind: str, given: Mapping[str, int]) -> Definition:
        """See Kinds.complete. Raises also what `now_ms` raises, for a kind with an epoch."""
        known = kind_named(kind)
        now = self._now_ms() if "epoch" in known.parameters else 0
        return Definition(kind, known.complete(given, now))

    def holds(self, definition: Definition) -> bool:
        """See Kinds.holds."""
        return definition.kind in KINDS and KINDS[definition.kind].holds(definition.parameters)

    def counter_bits(self, definition: Definition) -> int | None:
        """See Kinds.counter_bits. A tick needs a counter of 64 bits, whatever the length of the ids."""
        if definition.kind == TICKET:
            return definition.parameters.get("bits", 64)
        return 64 if is_stamped(kind_named(definition.kind)) else None


def is_stamped(kind: Kind) -> bool:
    """Whether the ticket databases count the ids' ticks: `instagram` and `instagram32`."""
    return isinstance(kind, TimedKind) and kind.part == "shard"
