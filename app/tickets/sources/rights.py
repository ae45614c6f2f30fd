"""The right to make ids in memory: a number that no other server may use at the same time."""

from typing import Protocol

from app.common.errors import TicketError

WAIT_SECONDS = 0.02
"""How soon a request that waits for a right tries again."""


class Right(Protocol):
    """The right to make ids under a number.

    `number`: of the worker or the instance. The times in the ids have to be above `after_ms`, and at most `until_ms`,
    in milliseconds since 1970.
    """

    @property
    def number(self) -> int: ...

    @property
    def after_ms(self) -> int: ...

    @property
    def until_ms(self) -> int: ...


class Holder(Protocol):
    """Keeps the right of this server."""

    def right(self) -> Right:
        """The right that this server holds now. Raises NotYet if it holds none."""

    def renews_soon(self) -> bool:
        """Whether a right that has run out may be renewed at once. If so, the renewal is begun."""


class NotYet(Exception):
    """The request may be served a moment later. `seconds`: when to try again. `otherwise`: the error for a request that
    cannot wait."""

    def __init__(self, seconds: float, otherwise: TicketError) -> None:
        super().__init__(str(otherwise))
        self.seconds = seconds
        self.otherwise = otherwise
