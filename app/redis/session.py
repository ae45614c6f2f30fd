"""The state of one connection, as its client has set it."""

from app.access import Access, Right
from app.errors import InvalidRequest, TicketError
from app.operations.tally import Tally
from app.redis.parser import Command

QUEUED_BYTES = 65_536
"""Bytes of commands between MULTI and EXEC."""
ARGUMENT_BYTES = 64
"""The bytes that an argument takes besides its text."""


class Session:
    """What a client has said about itself.

    number: the connection's id. version: of the protocol. queue: the commands since MULTI, None outside of a
    transaction. is_broken: whether one of them was refused.
    """

    def __init__(self, access: Access, tally: Tally, number: int) -> None:
        self.number, self.tally = number, tally
        self._access = access
        self.reset()

    def reset(self) -> None:
        """Become as a new connection is."""
        self.version = 2
        self.queue: list[Command] | None = None
        self.is_broken = False
        self._token: str | None = None
        self._generation = -1
        self._may_draw = False

    def authenticate(self, token: bytes) -> bool:
        """Take this token for the connection if it may draw; return whether it may."""
        shown = token.decode("utf-8", "surrogateescape")
        if not self._allows(shown):
            self.tally.denied(Right.TICKETS)
            return False
        self._token, self._generation = shown, -1
        return True

    @property
    def may_draw(self) -> bool:
        """Whether the client may draw and read now: the tokens may have been replaced since it showed its own."""
        generation = self._access.generation
        if self._generation != generation:
            self._may_draw, self._generation = self._allows(self._token), generation
        return self._may_draw

    def _allows(self, token: str | None) -> bool:
        try:
            self._access.check(token, Right.TICKETS)
        except TicketError:
            return False
        return True

    def begin(self) -> None:
        """Begin a transaction."""
        self.queue, self.is_broken, self._queued_bytes = [], False, 0

    def end(self, command: str) -> list[Command]:
        """End a transaction; return its commands. Raises InvalidRequest where none has begun."""
        queue, self.queue = self.queue, None
        if queue is None:
            raise InvalidRequest(f"{command} without MULTI")
        return queue

    def enqueue(self, command: Command) -> None:
        """Add a command to the transaction. Raises InvalidRequest where it has no room."""
        assert self.queue is not None
        self._queued_bytes += sum(map(len, command)) + ARGUMENT_BYTES * len(command)
        if self._queued_bytes > QUEUED_BYTES:
            raise InvalidRequest("too many commands since MULTI")
        self.queue.append(command)
