"""The state of one connection, as the client has set it."""

from app.clients.tokens import Tokens
from app.redis.parser import Command

MOST_QUEUED = 1_024
"""Commands between MULTI and EXEC."""
QUEUED_BYTES = 262_144
ARGUMENT_BYTES = 64
"""The bytes that an argument takes besides its text."""
LONGEST_NAME = 256


class Session:
    """The state of one connection. `number`: its id. `version`: of the protocol. `name`: what it calls itself.
    `queue`: the commands since MULTI, None outside. `is_broken`: whether one of them was refused."""

    def __init__(self, tokens: Tokens, number: int) -> None:
        self.number = number
        self.version = 2
        self.name = b""
        self.queue: list[Command] | None = None
        self.is_broken = False
        self._queued_bytes = 0
        self._tokens = tokens
        self._token = b""
        self._generation = 0
        self._may_draw = False

    def __repr__(self) -> str:
        return f"<Session {self.number}, RESP{self.version}>"

    def authenticate(self, token: bytes) -> bool:
        """Whether this token may draw; if so it stands for the connection from now on, as long as it is valid."""
        if not (self._tokens.tickets_are_free or self._tokens.may_draw(token)):
            return False
        self._token, self._generation = token, 0
        return True

    @property
    def may_draw(self) -> bool:
        """Whether the client may draw tickets and read: no token is needed, or its own is still valid."""
        tokens = self._tokens
        if tokens.tickets_are_free:
            return True
        if self._generation != tokens.generation:
            self._may_draw = tokens.may_draw(self._token)
            self._generation = tokens.generation
        return self._may_draw

    def begin_queue(self) -> None:
        """MULTI."""
        self.queue, self.is_broken, self._queued_bytes = [], False, 0

    def end_queue(self) -> list[Command]:
        """EXEC or DISCARD: what was queued."""
        queue, self.queue = self.queue, None
        return queue or []

    def add_to_queue(self, command: Command) -> bool:
        """Queue a command; false where there is no room for it."""
        assert self.queue is not None
        self._queued_bytes += sum(map(len, command)) + ARGUMENT_BYTES * len(command)
        if len(self.queue) >= MOST_QUEUED or self._queued_bytes > QUEUED_BYTES:
            return False
        self.queue.append(command)
        return True

    def reset(self) -> None:
        """RESET: as the connection was at its beginning."""
        self.version, self.name, self.queue = 2, b"", None
        self._token, self._generation = b"", 0
