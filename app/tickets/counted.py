"""Sequences whose ids are made of ticks that the ticket databases count: `instagram` and `instagram32`."""

from collections.abc import Callable, Sequence
from typing import Any

from app.errors import InvalidRequest, NotForThisKind, TicketError
from app.kinds.kind import Kind
from app.kinds.timed import TimedKind
from app.tickets.request import Request, Shape
from app.tickets.sight import Sight
from app.tickets.source import Source
from app.tickets.stamps import Stamps


def check(kind: Kind, request: Request) -> None:
    """Raise NotForThisKind where a request wants a block, which only `ticket` has."""
    if request.shape is Shape.BLOCK:
        raise NotForThisKind(f"{request.sequence} is of kind {kind.name}, which has no blocks; use ?count=")


def _encoder(kind: TimedKind, shard: int) -> Callable[[Any], Any]:
    """Return what makes ids of ticks, one or a list, in this shard."""

    def encode(ticks: Any) -> Any:
        return [kind.encode(tick, shard) for tick in ticks] if isinstance(ticks, list) else kind.encode(ticks, shard)

    return encode


class Counted:
    """Gives ids for the ticks of an issuer; see `source.Source`.

    issuer: gives ticks; no counter may give a tick above `stamps.capped`. stamps: the pace of its lanes.
    """

    def __init__(self, issuer: Source, stamps: Stamps, sight: Sight) -> None:
        self.sequence, self.lanes = issuer.sequence, issuer.lanes
        self._issuer, self._stamps, self._sight = issuer, stamps, sight
        self.expire, self.end = issuer.expire, issuer.end

    def __repr__(self) -> str:
        return f"<{self._stamps.kind.name} of {self._issuer!r}>"

    @property
    def is_busy(self) -> bool:
        """See Source.is_busy."""
        return self._issuer.is_busy

    @property
    def issued(self) -> int:
        """See Source.issued."""
        return self._issuer.issued

    def give(self, request: Request) -> bool:
        """See Source.give. Refuses what this kind does not have, and everything while the clock is ahead."""
        return not self._accept(request) or self._issuer.give(request)

    def ask(self, requests: Sequence[Request]) -> None:
        """See Source.ask."""
        accepted = [request for request in requests if self._accept(request)]
        if accepted:
            self._issuer.ask(accepted)

    def hand_over(self) -> list[Request]:
        """See Source.hand_over. The requests are as the client made them."""
        requests = self._issuer.hand_over()
        for request in requests:
            request.encode = None
        return requests

    def _accept(self, request: Request) -> bool:
        """Let the answer be ids; False where the request was refused."""
        if request.encode is not None:
            return True
        stamps = self._stamps
        try:
            check(stamps.kind, request)
            shard = stamps.kind.shard_of(stamps.parameters, request.key, request.shard)
            stamps.clock.now_ms()
            record = self._sight.record
            most = stamps.most_at_once(record.increment) if record is not None else request.count
            if request.count > most:
                raise InvalidRequest(f"{request.sequence} gives at most {most} ids at once: count is {request.count}")
        except TicketError as error:
            request.fail(error)
            return False
        request.encode = _encoder(stamps.kind, shard)
        return True
