"""Replies of one connection, in the order of their commands, and how many bytes all connections owe."""

from collections import deque

from app.redis.requests import Slot

OWED_BYTES = 65_536
"""The most bytes of replies that wait on one connection. Beyond them the connection executes no command."""
OWED_IN_ALL = 1_048_576
"""The most bytes that wait on all connections together. A connection that owes nothing executes commands still."""
REPLY_BYTES = 32
"""The bytes that a waiting reply takes besides its text."""


class Debts:
    """The replies that all connections owe. `total`: bytes."""

    def __init__(self) -> None:
        self.total = 0

    def __repr__(self) -> str:
        return f"<Debts of {self.total} bytes>"


class ReplyQueue:
    """The replies that have not been written.

    `out`: those that may be written, of `out_bytes` bytes. `waiting`: those that wait, for a ticket or for a reply
    before them. `owed`: the bytes that these take.
    """

    def __init__(self, debts: Debts) -> None:
        self.out: list[bytes] = []
        self.out_bytes = 0
        self.waiting: deque[bytes | Slot] = deque()
        self.owed = 0
        self._debts = debts

    def __repr__(self) -> str:
        return f"<ReplyQueue, {self.out_bytes} bytes to write, {self.owed} owed>"

    @property
    def is_full(self) -> bool:
        """Whether no further command is to be executed until some of these replies have gone out."""
        owed = self.owed
        return owed >= OWED_BYTES or (owed > 0 and self._debts.total >= OWED_IN_ALL)

    def add(self, reply: bytes) -> None:
        """A whole reply, behind the others."""
        if self.waiting:
            self.waiting.append(reply)
            self._owe(len(reply) + REPLY_BYTES)
        else:
            self.out.append(reply)
            self.out_bytes += len(reply)

    def expect(self, slot: Slot) -> None:
        """A reply that is to come, behind the others."""
        self.waiting.append(slot)
        owed = slot.owed
        self.owed += owed
        self._debts.total += owed

    def _owe(self, size: int) -> None:
        self.owed += size
        self._debts.total += size

    def gather(self) -> None:
        """Have every reply written that has all before it."""
        waiting, out = self.waiting, self.out
        paid = 0
        while waiting:
            first = waiting[0]
            if isinstance(first, bytes):
                reply = first
                paid += len(first) + REPLY_BYTES
            elif first.reply is None:
                break
            else:
                reply = first.reply
                paid += first.owed
            out.append(reply)
            self.out_bytes += len(reply)
            waiting.popleft()
        self._owe(-paid)

    def take(self) -> bytes:
        """Take the replies that may be written."""
        out, self.out, self.out_bytes = self.out, [], 0
        return out[0] if len(out) == 1 else b"".join(out)

    def forget(self) -> None:
        """The only reply that waits has been written, or none is wanted."""
        self.waiting.clear()
        self._debts.total -= self.owed
        self.owed = 0

    def drop(self) -> None:
        """The client has gone."""
        waiting, self.waiting = self.waiting, deque()
        self._owe(-self.owed)
        self.out.clear()
        for slot in waiting:
            if not isinstance(slot, bytes):
                slot.drop()
