"""What the desk hands requests to: the source of one sequence's ids."""

from collections.abc import Sequence
from typing import Protocol

from app.errors import NotForThisKind
from app.kinds.kind import Kind, Parameters
from app.tickets.lane import Lane
from app.tickets.request import Request


class Source(Protocol):
    """Gives the ids of one sequence: an `Issuer`, or a `memory.MemorySource`.

    sequence: its name as it was made. lanes: that the ids are drawn by; none for ids from memory. issued: how many ids
    were given since the start.
    """

    sequence: str
    lanes: Sequence[Lane]

    @property
    def issued(self) -> int: ...

    def ready(self) -> int | str | None:
        """Issue one id that is there already; None where a request has to be asked."""
        ...

    def ask(self, request: Request) -> None:
        """Serve a request after those that came before, or refuse one that this kind of sequence cannot serve."""
        ...

    async def end(self) -> list[Request]:
        """End what is under way. Returns the requests that were not served, as the client made them."""
        ...


def shard_of(kind: Kind, parameters: Parameters, request: Request) -> int:
    """Return the shard that a request for ids of another kind than `ticket` names.

    Raises NotForThisKind for a block, InvalidRequest for a shard that is none.
    """
    if request.is_block:
        raise NotForThisKind(f"{request.sequence} is of kind {kind.name}, which has no blocks; use ?count=")
    return kind.shard_of(parameters, request.key, request.shard)
