"""Sequences whose ids are made of ticks that the ticket databases count: `instagram` and `instagram32`."""

from collections.abc import Callable, Sequence
from typing import Any

from next.errors import InvalidRequest, NotForThisKind, TicketError
from next.kinds.kind import Kind
from next.kinds.timed import TimedKind
from next.tickets.request import Request, Shape
from next.tickets.sight import Sight
from next.tickets.source import Source
from next.tickets.stamps import Stamps


def check(kind: Kind, request: Request) -> None:
    """Raise NotForThisKind where a request wants a block, which only `ticket` has."""
    if request.shape is Shape.BLOCK:
        raise NotForThisKind(f"{request.sequence} is of kind {kind.name}, which has no blocks; use ?count=")


class _Encode:
    """Answers a request with ids in place of ticks, in the request's shard."""

    __slots__ = ("done", "encode", "shard")

    def __init__(self, kind: TimedKind, shard: int, done: Callable[[Any], None]) -> None:
        self.encode, self.shard, self.done = kind.encode, shard, done

    def __call__(self, ticks: Any) -> None:
        encode, shard = self.encode, self.shard
        self.done([encode(tick, shard) for tick in ticks] if isinstance(ticks, list) else encode(ticks, shard))


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
            if isinstance(request.done, _Encode):
                request.done = request.done.done
        return requests

    def _accept(self, request: Request) -> bool:
        """Let the answer be ids; False where the request was refused."""
        if isinstance(request.done, _Encode):
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
        request.done = _Encode(stamps.kind, shard, request.done)
        return True
