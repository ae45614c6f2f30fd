"""Whether a client has gone whose connection is not read at present: the event loop notices only where it reads."""

import asyncio
import select

_ENDED = select.POLLHUP | select.POLLERR
_SENDS_NO_MORE = _ENDED | getattr(select, "POLLRDHUP", 0)  # Linux alone has it


def sends_no_more(transport: asyncio.Transport) -> bool:
    """Whether the client has closed its side of the connection; what it has sent before may still lie unread."""
    connection = transport.get_extra_info("socket")
    if connection is None or transport.is_closing():
        return False
    look = select.poll()
    look.register(connection.fileno(), _SENDS_NO_MORE & ~_ENDED)
    return any(events & _SENDS_NO_MORE for _, events in look.poll(0))
