"""What a server has to hold before it makes ids by itself: a number that no other server may use at the same time."""

from typing import Protocol

from app.common.errors import TicketError

WAIT_SECONDS = 0.02
"""How soon a request looks again that waits for a right."""


class Right(Protocol):
    """The right to make ids under a number.

    `number`: of the worker or instance. The times stamped under it are above `after_ms` and at most `until_ms`, in
    milliseconds since 1970.
    """

    @property
    def number(self) -> int: ...

    @property
    def after_ms(self) -> int: ...

    @property
    def until_ms(self) -> int: ...


class Holder(Protocol):
    """What keeps the right of this server."""

    def right(self) -> Right:
        """What it holds now. Raises NotYet where that is nothing."""

    def renews_soon(self) -> bool:
        """Whether a right that has run out may be renewed within a moment, which is begun."""


class NotYet(Exception):
    """What was asked for may be there a moment later. `seconds`: when to ask again; `otherwise`: what a request is told
    that cannot wait."""

    def __init__(self, seconds: float, otherwise: TicketError) -> None:
        super().__init__(str(otherwise))
        self.seconds = seconds
        self.otherwise = otherwise
