"""A request for ids: one object, from the door that took it to the answer."""

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from app.errors import TicketError

MOST_TICKETS = 1_000  # in one list
LARGEST_BLOCK = 10_000  # tickets, unless the ring's increment is so large that a block has fewer


def largest_block(increment: int) -> int:
    """Return the most tickets that a block has with this increment."""
    return min(LARGEST_BLOCK, 65_535 // increment)


class Shape(Enum):
    """What the answer is: one id, a list of ids that rise, or a block of ids at equal distances."""

    SINGLE = "single"
    LIST = "list"
    BLOCK = "block"


SINGLE = Shape.SINGLE


class Block(NamedTuple):
    """The ids `first + i * step` for i from 0 to `size` - 1."""

    first: int
    step: int
    size: int


class Request:
    """What a client wants. A door derives its own class from this one, or uses `Call`.

    sequence: its name, in any case; kept in lower case. count: how many ids. shape: of the answer.
    deadline: when the request runs out of time, by the event loop's clock; the desk sets it.
    clients: how many clients wait for it. tried: the offsets of the lanes that failed it, as bits.
    key, shard: which shard a kind with shards takes the id from. is_plain: whether any single id will do.
    encode: makes the answer of what was drawn, where that is not the ids themselves; the source sets it.
    """

    count = 1
    shape = SINGLE
    key: int | None = None
    shard: int | None = None
    is_plain = True
    deadline = 0.0
    clients = 1
    tried = 0
    is_over = False
    encode: Callable[[Any], Any] | None = None

    def __init__(
        self,
        sequence: str,
        count: int = 1,
        shape: Shape = Shape.SINGLE,
        key: int | None = None,
        shard: int | None = None,
    ) -> None:
        # some letters beyond ASCII become ASCII in lower case, so they stay as they are, and are refused
        self.sequence = sequence.lower() if sequence.isascii() else sequence
        if shape is not SINGLE or key is not None or shard is not None:
            self.count, self.shape, self.key, self.shard, self.is_plain = count, shape, key, shard, False

    def done(self, answer: Any) -> None:
        """Take the answer: an int or str, a list of these, or a Block. Called once, when `is_over` is set already.

        It may not raise.
        """
        raise NotImplementedError

    def failed(self, error: TicketError) -> None:
        """Take the error that is there in place of an answer. Called once, when `is_over` is set. It may not raise."""
        raise NotImplementedError

    @property
    def is_block(self) -> bool:
        """Whether a block is wanted: ids of one statement."""
        return self.shape is Shape.BLOCK

    def finish(self, drawn: Any) -> None:
        """Answer with what was drawn: ticks or ids, one or a list, or a Block."""
        self.is_over = True
        self.done(drawn if self.encode is None else self.encode(drawn))

    def fail(self, error: TicketError) -> None:
        """Answer with an error, unless the request is over."""
        if not self.is_over:
            self.is_over = True
            self.failed(error)

    def abandon(self) -> None:
        """The client has gone: nobody is called any more, and the request's ids go to the next one."""
        self.is_over = True


class Call(Request):
    """A request whose answer goes to two functions.

    done: called once with the answer, see `Request.done`. failed: called once, in its place, with the error.
    wanted: see Request.
    """

    def __init__(
        self, sequence: str, done: Callable[[Any], None], failed: Callable[[TicketError], None], **wanted: Any
    ) -> None:
        super().__init__(sequence, **wanted)
        self.done = done  # type: ignore[method-assign, assignment]
        self.failed = failed  # type: ignore[method-assign, assignment]
