"""The kinds of sequence as the catalog asks for them."""

from collections.abc import Callable, Mapping

from app.kinds.kind import Kind
from app.kinds.table import KINDS, kind_named
from app.kinds.timed import TimedKind
from app.tickets.definitions import TICKET, Definition


class KnownKinds:
    """All kinds that there are. now_ms: the time for new sequences, in milliseconds since 1970."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms

    def complete(self, kind: str, given: Mapping[str, int]) -> Definition:
        """Return a definition with all parameters, as of now.

        Raises InvalidRequest, which says what is wanted, and what `now_ms` raises, for a kind with an epoch.
        """
        known = kind_named(kind)
        return Definition(kind, known.complete(given, self._now(known)))

    def check_new(self, definition: Definition) -> None:
        """Raise InvalidRequest where no such sequence is made any more, or yet; and what `now_ms` raises."""
        known = kind_named(definition.kind)
        known.check_new(definition.parameters, self._now(known))

    def holds(self, definition: Definition) -> bool:
        """Whether this server can serve the definition."""
        return definition.kind in KINDS and KINDS[definition.kind].holds(definition.parameters)

    def counter_bits(self, definition: Definition) -> int | None:
        """The width of the counters that ids are drawn from, in bits; None for a kind whose ids are made in memory.

        A tick needs a counter of 64 bits, whatever the length of the ids.
        """
        if definition.kind == TICKET:
            return definition.parameters.get("bits", 64)
        return 64 if is_stamped(kind_named(definition.kind)) else None

    def _now(self, kind: Kind) -> int:
        return self._now_ms() if "epoch" in kind.parameters else 0


def is_stamped(kind: Kind) -> bool:
    """Whether the ticket databases count the ids' ticks: `instagram` and `instagram32`."""
    return isinstance(kind, TimedKind) and kind.part == "shard"
